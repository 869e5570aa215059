"""Groups of commands, whose errors suggest the right command."""

from collections.abc import Sequence

import click

from backends.errors import unknown


class Commands(click.Group):
    """A group that suggests the right command for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or raise UsageError with the names of those that are not hidden."""
        names = self.list_commands(ctx)
        is_option = args[0].startswith("-")
        if args[0] not in names and not is_option:
            shown = []
            for name in names:
                command = self.get_command(ctx, name)
                if command is not None and command.name and not command.hidden:
                    shown.append(command.name)
            raise click.UsageError(self.about_unknown(args[0], shown))
        return super().resolve_command(ctx, args)

    def about_unknown(self, name: str, known: Sequence[str]) -> str:
        """Say that no command has this name, and which one may be meant."""
        return unknown("command", name, known)
