"""Groups of commands, whose errors say what could have been meant, and the backend that is meant if
none is named.
"""

from collections.abc import Sequence

import click

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


USUAL_ORDER = ("torch", "mxnet", "jax", "numpy")
"""Which framework a command takes that names none: the first that is installed."""


def usual_backend() -> str:
    """Return the backend of a command that names none."""
    return next(name for name in USUAL_ORDER if name == "numpy" or is_installed(name))
