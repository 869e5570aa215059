"""No number that is given is too large for what it counts: every option that takes one has a bound, and tells it."""

from collections.abc import Iterator

import click
import pytest

import backends
from backends import BackendError
from parallel_core.command_line import cli
from parallel_core.command_line.options import Parsed
from parallel_core.experiments import EXPERIMENTS
from tests.conftest import RunProgram

HUGE = (10**14, 10**19, 10**400)
LARGE = ("--lr",)
"""What may be larger than others: a training that diverges does so in one line."""
NEEDED = {"conformance": ("--backend", "numpy"), "trace": ("trace.json",), "diff": ("old", "new")}


def commands(group: click.Command = cli, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield from commands(command, *names, name)
    else:
        yield names, group


def numeric(option: click.Parameter) -> bool:
    own = isinstance(option.type, Parsed) and option.type.name.startswith("n") and option.type.name != "names"
    return own or isinstance(option.type, click.types.IntParamType)


OPTIONS = [
    (names, option)
    for names, command in commands()
    for option in command.params
    if isinstance(option, click.Option) and numeric(option) and not option.multiple
]


def test_every_whole_number_has_bounds_that_the_help_tells() -> None:
    whole = [option.type for _, option in OPTIONS if isinstance(option.type, click.types.IntParamType)]
    assert len(whole) > len(EXPERIMENTS)
    assert all(isinstance(one, click.IntRange) and None not in (one.min, one.max) for one in whole)


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize(
    ("names", "option"), [pytest.param(*one, id=f"{' '.join(one[0])} {one[1].opts[0]}") for one in OPTIONS]
)
def test_a_huge_number_is_one_line_and_status_2(
    program: RunProgram, names: tuple[str, ...], option: click.Option, value: int
) -> None:
    if option.opts[0] in LARGE:
        value = 10**400
    needed = ("--backend", "numpy") if names[0] == "run" else NEEDED.get(names[-1], ())
    done = program(*names, *needed, option.opts[0], str(value))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert option.opts[0] in done.stderr


def test_threads_are_counted_over_all_devices_and_workers() -> None:
    with pytest.raises(BackendError):
        backends.load("numpy", 64, "cpu", "sync", 65, 1)
