"""Options that several commands share, and the types of their values."""

import math
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from backends import BackendError, Device
from backends.devices import parse_devices
from backends.errors import unknown
from parallel_core.experiments.runner.parameters import MOST
from parallel_core.system.errors import MeasurementError
from parallel_core.system.files import STANDARD_OUTPUT
from parallel_core.terminal.console import terminal_console

POSITIVE = click.IntRange(1, MOST)
PROCESSES = click.IntRange(1, 1024)
"""A number of processes, or of threads of a device."""
MOST_DEVICES = 256
Command = TypeVar("Command", bound=Callable[..., Any])


class _PathThatCanBe(click.Path):
    """A path of a file that exists or could exist."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or fail if no file can have it, for example because it is too long."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            # A missing file is reported when it is read or written.
            pass
        except (OSError, ValueError) as error:
            name = click.format_filename(path, shorten=True)
            reason = getattr(error, "strerror", error)
            self.fail(f"{name!r}: {reason}", param, ctx)
        return path


PATH = _PathThatCanBe()


class Parsed(click.ParamType[Any]):
    """The type of values that a function reads from a text.

    The function raises ValueError, BackendError or MeasurementError if it cannot. `name` is the
    word for a value in the help, in capitals.
    """

    def __init__(self, parse: Callable[[str], Any], name: str = "value") -> None:
        self.parse, self.name = parse, name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value, or fail with a line that says what is wrong."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except (BackendError, MeasurementError, ValueError) as error:
            self.fail(str(error), param, ctx)


def _positive(text: str, most: float = MOST, or_zero: bool = False) -> float:
    """Read a positive number of at most `most`; raises ValueError for anything else."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    is_allowed_zero = or_zero and number == 0
    is_positive = number > 0 and math.isfinite(number)
    if not is_positive and not is_allowed_zero:
        description = "zero or a positive number" if or_zero else "a positive number"
        raise ValueError(f"{text!r} is not {description}")
    if number > most:
        raise ValueError(f"{text!r} is more than {most:g}")
    return number


def _several(parse: Callable[[str], Any], text: str) -> tuple[Any, ...]:
    """Read values with commas between them; raises ValueError if one is repeated."""
    values = tuple(parse(word.strip()) for word in text.split(","))
    if len(set(values)) < len(values):
        raise ValueError(f"{text!r} names one twice")
    return values


def _devices(text: str) -> int | tuple[Device, ...]:
    """Read a number of devices, or their names; raises ValueError for too many."""
    wanted = parse_devices(text)
    count = wanted if isinstance(wanted, int) else len(wanted)
    if not 1 <= count <= MOST_DEVICES:
        raise ValueError(f"{count} is not in the range 1<=x<={MOST_DEVICES}.")
    return wanted


def _interpreter(text: str) -> tuple[str, str]:
    """Read NAME=PATH: a backend, and the Python that runs it; raises ValueError for other texts."""
    backend, _, program = text.partition("=")
    if not backend or not program:
        raise ValueError(f"{text!r} is not of the form NAME=PATH, torch=/opt/new/bin/python say")
    path = shutil.which(program)
    if path is None:
        raise ValueError(f"{program!r} is not a program that can be run")
    return backend, path


NUMBER = Parsed(_positive, "number")
"""A positive number, neither NaN nor infinite."""
NUMBERS = Parsed(partial(_several, _positive), "numbers")
"""Positive numbers with commas between them, none twice."""
DEVICES = Parsed(_devices, "n|names")
"""A number of devices, or their names with commas between them."""


def number(most: float = MOST, or_zero: bool = False) -> Parsed:
    """Make the type of a positive number."""
    return Parsed(partial(_positive, most=most, or_zero=or_zero), "number")


def integers(most: int) -> Parsed:
    """Make the type of positive whole numbers with commas between them, none twice."""
    return Parsed(partial(_several, click.IntRange(1, most)), f"numbers, 1<=x<={most}")


def names(what: str, known: Callable[[], tuple[str, ...]]) -> Parsed:
    """Make the type of names with commas between them: known ones, and none twice.

    `what` is the noun for a name in errors.
    """

    def parse(name: str) -> str:
        if name not in known():
            raise ValueError(unknown(what, name, known()))
        return name

    return Parsed(partial(_several, parse), "names")


def option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """Make an option whose default the help shows."""
    return click.option(*names, **{"show_default": True, **settings})


def path(
    name: str, parameter: str, text: str, metavar: str = "FILE"
) -> Callable[[Command], Command]:
    """Make an option that takes a path, None unless it is given."""
    return click.option(name, parameter, type=PATH, metavar=metavar, help=text)


def console_beside(*outputs: Path | None) -> Console:
    """Return the console for people: on standard error, if an output goes to standard output."""
    is_taken = STANDARD_OUTPUT in outputs or Path("/dev/stdout") in outputs
    return terminal_console(stderr=is_taken)


interpreters = click.option(
    "--python",
    "interpreters",
    type=Parsed(_interpreter, "name=path"),
    multiple=True,
    help="The Python that runs a backend. Default: this one, or that of an environment that make "
    "made for it.",
)
"""The option of commands that run several backends."""
device_kind = option("--device-kind", metavar="auto|cpu|gpu", default="auto")
threads = option(
    "--threads", type=PROCESSES, help="Threads per CPU device. Default: its share of the cores."
)
workers = option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    help="Workers per CPU device, each with these threads.",
)
variants = click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="How it schedules; --explain lists the names. Repeatable.",
)
details = click.option("--details", is_flag=True, help="All figures, not only what fits a screen.")
json_file = path("--json", "json_path", "The results as JSON; - for standard output.")
