"""No number that is given is too large for what it counts: every option that takes one has a bound,
and tells it.
"""

from collections.abc import Iterator

import click
import pytest

from parallel_core.command_line import cli
from parallel_core.command_line.options import Parsed

LARGE = ("--lr",)
"""What may be larger than others: a training that diverges does so in one line."""


def commands(
    command: click.Command = cli, *names: str
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Iterate over all commands and groups of commands, each with the words by which it is
    called.
    """
    yield names, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from commands(subcommand, *names, name)


def is_numeric(option: click.Parameter) -> bool:
    """Return whether an option takes a number, or a text that we read as numbers."""
    if isinstance(option.type, Parsed):
        # Such types are called `number`, `numbers` and the like; `names` are no numbers.
        return option.type.name.startswith("n") and option.type.name != "names"
    return isinstance(option.type, click.types.IntParamType)


OPTIONS = {
    f"{' '.join(names)} {option.opts[0]}": option
    for names, command in commands()
    for option in command.params
    if isinstance(option, click.Option) and is_numeric(option) and not option.multiple
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_huge_number_is_refused_and_the_help_tells_the_bounds_of_whole_numbers(name: str) -> None:
    option = OPTIONS[name]
    may_be_large = option.opts[0] in LARGE
    for number in (10**400,) if may_be_large else (10**14, 10**19, 10**400):
        with pytest.raises(click.BadParameter):
            option.type.convert(str(number), option, None)
    if isinstance(option.type, click.types.IntParamType):
        assert isinstance(option.type, click.IntRange)
        assert option.type.min is not None
        assert option.type.max is not None


def test_options_that_take_numbers_were_found() -> None:
    assert len(OPTIONS) > 50
