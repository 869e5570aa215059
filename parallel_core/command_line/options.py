"""Options that several commands share, and the kinds of values they take."""

import math
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from backends import BackendError, Device
from backends.devices import parse_devices
from backends.errors import unknown
from parallel_core.experiments.runner.parameters import MOST
from parallel_core.system.errors import MeasurementError

POSITIVE = click.IntRange(1, MOST)
PROCESSES = click.IntRange(1, 1024)
"""Processes, and threads of a device."""
MOST_DEVICES = 256
PATH = click.Path(path_type=Path)
Command = TypeVar("Command", bound=Callable[..., Any])


class Parsed(click.ParamType[Any]):
    """Values that a function reads from a text; it raises ValueError or an error of ours if it cannot read one.

    `name` stands for a value in the help, in capitals.
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


def _positive(text: str, or_zero: bool = False, most: float = MOST) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and (number > 0 or (or_zero and number == 0))):
        raise ValueError(f"{text!r} is not {'zero or ' if or_zero else ''}a positive number")
    if number > most:
        raise ValueError(f"{text!r} is more than {most:g}")
    return number


def _positive_numbers(text: str) -> tuple[float, ...]:
    numbers = tuple(map(_positive, text.split(",")))
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{text!r} names one number twice")
    return numbers


def _positive_integers(text: str, most: int) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch("0*[1-9][0-9]{0,17}", part, re.ASCII) and int(part) <= most for part in parts):
        raise ValueError(f"{text!r} is not a list of whole numbers from 1 to {most}, such as 1,2")
    return tuple(map(int, parts))


def _devices(text: str) -> int | tuple[Device, ...]:
    wanted = parse_devices(text)
    count = wanted if isinstance(wanted, int) else len(wanted)
    if not 1 <= count <= MOST_DEVICES:
        raise ValueError(f"{count} is not in the range 1<=x<={MOST_DEVICES}.")
    return wanted


def _interpreter(text: str) -> tuple[str, str]:
    backend, equals, given = text.partition("=")
    path = shutil.which(given)
    if not (backend and equals and given):
        raise ValueError(f"{text!r} is not of the form NAME=PATH, torch=/opt/new/bin/python say")
    if path is None:
        raise ValueError(f"{given!r} is not a program that can be run")
    return backend, path


NUMBER = Parsed(_positive, "number")
"""A positive number, neither NaN nor infinite."""
NUMBER_OR_ZERO = Parsed(partial(_positive, or_zero=True), "number")
NUMBERS = Parsed(_positive_numbers, "numbers")
"""Positive numbers with commas between them, none twice."""
DEVICES = Parsed(_devices, "n|names")
"""A number of devices, or their names with commas between them."""


def number(most: float) -> Parsed:
    """Make the type of a positive number."""
    return Parsed(partial(_positive, most=most), "number")


def integers(most: int) -> Parsed:
    """Make the type of positive whole numbers with commas between them."""
    return Parsed(partial(_positive_integers, most=most), f"numbers, 1<=x<={most}")


def names(what: str, known: Callable[[], tuple[str, ...]]) -> Parsed:
    """Make the type of names with commas between them, each one known and none twice; errors call them `what`."""

    def parse(text: str) -> tuple[str, ...]:
        parts = tuple(part.strip() for part in text.split(","))
        for name in parts:
            if name not in known():
                raise ValueError(unknown(what, name, known()))
        if len(set(parts)) < len(parts):
            raise ValueError(f"{text!r} names one {what} twice")
        return parts

    return Parsed(parse, "names")


def devices(default: int = 2) -> Callable[[Command], Command]:
    """Make the option for the number of devices."""
    return click.option(
        "--devices", type=click.IntRange(1, MOST_DEVICES), default=default, show_default=True, help="Logical devices."
    )


def devices_of_a_process(alone: int) -> Callable[[Command], Command]:
    """Make the option for a process's devices, None unless given; `alone` is the default of a single process."""
    return click.option(
        "--devices",
        type=DEVICES,
        help="Logical devices of a process: how many, or which (cpu:1,gpu:0; gpu:0/0,gpu:0/1 for two streams on a GPU)."
        f"  [default: {alone}; 1 for each of several processes; at most {MOST_DEVICES}]",
    )


interpreters = click.option(
    "--python",
    "interpreters",
    type=Parsed(_interpreter, "name=path"),
    multiple=True,
    help="The Python that runs a backend. Default: this one, or that of an environment that make made for it.",
)
"""Of commands that run several backends."""
device_kind = click.option("--device-kind", metavar="auto|cpu|gpu", default="auto", show_default=True)
threads = click.option("--threads", type=PROCESSES, help="Threads per CPU device. Default: its share of the cores.")
workers = click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Workers per CPU device, each with these threads.",
)
variants = click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="How it schedules; --explain lists the names. Repeatable.",
)
json_file = click.option("--json", "json_path", type=PATH, metavar="FILE", help="- for standard output.")
plot_file = click.option("--plot", "plot_path", type=PATH, metavar="FILE", help="A picture, as SVG.")
trace_file = click.option(
    "--trace",
    "trace_path",
    type=PATH,
    metavar="FILE",
    help="A Chrome trace (.json or .json.gz) of one more repetition, from the framework's own profiler.",
)
# A comparison asks for it: what cannot be profiled must be measured all the same.
work = click.option(
    "--work",
    type=click.Choice(["kept", "new", "own"]),
    metavar="kept|new",
    default="kept",
    show_default=True,
    help="Sizes that are not given: those kept for this machine, so that all frameworks do the same, or new ones.",
)
"""Where sizes come from; `own`, for comparisons, neither takes nor keeps any."""
trace_if_possible = click.option("--trace-if-possible", type=PATH, hidden=True)
timeline_file = click.option(
    "--timeline",
    "timeline_path",
    type=PATH,
    metavar="FILE",
    help="A picture of that repetition, a lane for each queue, as SVG.",
)
