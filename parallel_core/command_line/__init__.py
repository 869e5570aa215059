"""The command line: `parallel-core list`, and the commands of the other modules."""

from importlib import import_module

import click

import backends
from backends.registry import named, package_version
from parallel_core.command_line.commands import Commands
from parallel_core.experiments import EXPERIMENTS

COMMANDS = (
    "run",
    "trace",
    "profile",
    "compare",
    "report",
    "diff",
    "launch",
    "doctor",
    "conformance",
    "lab",
)
"""The commands that have a module, of the same name."""


BACKEND_OPTIONS = ("--backend", "--backends")


class _Program(Commands):
    """A group whose commands are imported only when they are needed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Register backends that are given as files, and replace them by names, in any command."""
        try:
            for position, word in enumerate(args):
                if word == "--":
                    # The words after it are another program's.
                    break
                option, equals, value = word.partition("=")
                is_after_option = position > 0 and args[position - 1] in BACKEND_OPTIONS
                if option in BACKEND_OPTIONS and equals:
                    args[position] = f"{option}={_names_of_backends(value)}"
                elif is_after_option:
                    args[position] = _names_of_backends(word)
        except backends.BackendError as error:
            raise click.UsageError(str(error), ctx) from error
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List all commands by name."""
        return sorted([*super().list_commands(ctx), *COMMANDS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name, or None if there is none."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module = import_module(f"{__name__}.{cmd_name}")
        return getattr(module, cmd_name)


def _names_of_backends(words: str) -> str:
    """Return the names of backends, which may be given as files, with commas between them."""
    return ",".join(named(word) for word in words.split(","))


@click.group(
    cls=_Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_version(), prog_name="parallel-core")
def cli() -> None:
    """See how deep-learning frameworks schedule work: the same experiments on every backend."""


@cli.command("list")
def _list_all() -> None:
    """List the experiments, exercises and backends."""
    # These imports are here because the other commands need not wait for them.
    from parallel_core.terminal.console import terminal_console
    from parallel_core.terminal.explanation import show_catalogue

    show_catalogue(EXPERIMENTS.values(), backends.names(), terminal_console())
