"""Groups of commands, and names of backends, whose errors say what could have been meant."""

from collections.abc import Sequence

import click

import backends
from backends.errors import unknown
from backends.installation.frameworks import is_installed


class Commands(click.Group):
    """A group that says of an unknown command which one may be meant; errors call its commands
    `what`.
    """

    what = "command"

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which ones there are."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            commands = [self.get_command(ctx, name) for name in names]
            shown = [
                one.name for one in commands if one is not None and one.name and not one.hidden
            ]
            raise click.UsageError(self.about_unknown(args[0], shown))
        return super().resolve_command(ctx, args)

    def about_unknown(self, name: str, known: Sequence[str]) -> str:
        """Say that no command has this name, and which one may be meant."""
        return unknown(self.what, name, known)


class BackendName(click.types.StringParamType):
    """The name of a backend, or several with commas between them; if it is missing, the error names
    those installed.
    """

    def get_missing_message(self, *_: object, **__: object) -> str:
        """Name the backends that are installed."""
        return f"Installed: {', '.join(filter(is_installed, backends.names()))}"
