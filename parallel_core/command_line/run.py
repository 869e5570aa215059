"""`parallel-core run`: the experiments' commands in one group, in the catalogue's order."""

import click

from parallel_core.command_line import experiment_command, training_commands
from parallel_core.experiments import EXPERIMENTS

__all__ = ["run"]


class ExperimentGroup(click.Group):
    """Commands that are called experiments when one is not known."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the experiment, or say which ones there are."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            raise click.UsageError(f"unknown experiment {args[0]!r} (known: {', '.join(self.commands)})")
        return super().resolve_command(ctx, args)

    def list_commands(self, _: click.Context) -> list[str]:
        """List the experiments in the catalogue's order."""
        return list(self.commands)


COMMANDS = {
    command.name: command
    for module in (experiment_command, training_commands)
    for command in (getattr(module, name) for name in module.__all__)
    if isinstance(command, click.Command)
}


@click.group("run", cls=ExperimentGroup, commands={name: COMMANDS[name] for name in EXPERIMENTS})
def run() -> None:
    """Run one experiment on one backend."""
