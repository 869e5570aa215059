"""The command line: `parallel-core list`, and the commands that are in the modules of their
names.
"""

from importlib import import_module

import click

import backends
from backends.registry import named, package_version
from parallel_core.command_line.commands import Commands
from parallel_core.experiments import EXPERIMENTS

COMMANDS = {
    **{
        name: name
        for name in ("run", "trace", "profile", "compare", "launch", "doctor", "conformance", "lab")
    },
    "measure": "run",
    "report": "saved",
    "diff": "saved",
}
"""By command, the module that it is in."""


class _Program(Commands):
    """Commands whose modules are imported when they are asked for, so that none waits for another's
    imports.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Register the backends that stand in files, and name them, whichever command follows."""
        try:
            for place, word in enumerate(args):
                if word == "--":
                    # What follows is another program's.
                    break
                option, equals, value = word.partition("=")
                if option in ("--backend", "--backends") and equals:
                    args[place] = f"{option}={_named(value)}"
                elif place and args[place - 1] in ("--backend", "--backends"):
                    args[place] = _named(word)
        except backends.BackendError as error:
            raise click.UsageError(str(error), ctx) from error
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List all commands by name."""
        return sorted([*super().list_commands(ctx), *COMMANDS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None for one that is not known."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(
            import_module(f"{__name__}.{COMMANDS[cmd_name]}"), cmd_name
        )
        return command


def _named(names: str) -> str:
    return ",".join(map(named, names.split(",")))


@click.group(
    cls=_Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_version(), prog_name="parallel-core")
def cli() -> None:
    """See how deep-learning frameworks schedule work: the same experiments on every backend."""


@cli.command("list")
def _list_all() -> None:
    """List the experiments, exercises and backends."""
    # The other commands need not wait for it.
    from parallel_core.terminal.console import terminal_console
    from parallel_core.terminal.explanation import show_catalogue

    show_catalogue(EXPERIMENTS.values(), backends.names(), terminal_console())
