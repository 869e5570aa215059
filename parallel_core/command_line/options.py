"""Options that several commands share, and the kinds of values they take."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from backends import BackendError, Device
from backends.devices import parse_devices

__all__ = [
    "POSITIVE",
    "Command",
    "Devices",
    "Integers",
    "Names",
    "Number",
    "Numbers",
    "Parsed",
    "device_kind",
    "devices",
    "devices_of_a_process",
    "json_file",
    "plot_file",
    "threads",
    "timeline_file",
    "trace_file",
    "trace_if_possible",
    "variants",
    "workers",
]

POSITIVE = click.IntRange(min=1)
Command = TypeVar("Command", bound=Callable[..., Any])


class Number(click.ParamType[float]):
    """A positive number, neither NaN nor infinite; zero if it is allowed."""

    name = "number"

    def __init__(self, zero: bool = False) -> None:
        self.zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail with a line that names the value."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and (number > 0 or (self.zero and number == 0))):
            self.fail(f"{value!r} is not {'zero or ' if self.zero else ''}a positive number", param, ctx)
        return number


class Numbers(click.ParamType[tuple[float, ...]]):
    """Positive numbers with commas between them, none twice."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Return the numbers, or fail with a line that names the one that is wrong."""
        parts = value.split(",") if isinstance(value, str) else value
        numbers = tuple(Number().convert(part, param, ctx) for part in parts)
        if len(set(numbers)) < len(numbers):
            self.fail(f"{value!r} names one number twice", param, ctx)
        return numbers


class Names(click.ParamType[tuple[str, ...]]):
    """Names with commas between them, each one known and none twice."""

    name = "names"

    def __init__(self, what: str, known: Callable[[], tuple[str, ...]]) -> None:
        self.what, self.known = what, known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return the names, or fail with a line that says which one is wrong."""
        names = tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else tuple(value)
        for name in names:
            if name not in self.known():
                self.fail(f"unknown {self.what} {name!r} (known: {', '.join(self.known())})", param, ctx)
        if len(set(names)) < len(names):
            self.fail(f"{value!r} names one {self.what} twice", param, ctx)
        return names


class Devices(click.ParamType["int | tuple[Device, ...]"]):
    """A positive number of devices, or their names with commas between them."""

    name = "devices"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | tuple[Device, ...]:
        """Return the number or the devices, or fail with a line that says what is wrong."""
        try:
            wanted = parse_devices(value) if isinstance(value, str) else value
        except BackendError as error:
            self.fail(str(error), param, ctx)
        if wanted == 0:
            self.fail("0 is not in the range x>=1.", param, ctx)
        return wanted


class Integers(click.ParamType[tuple[int, ...]]):
    """Positive whole numbers with commas between them."""

    name = "integers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Return the numbers, or fail with a line that names the value."""
        if not isinstance(value, str):
            return tuple(value)
        parts = [part.strip() for part in value.split(",")]
        if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
            self.fail(f"{value!r} is not a list of positive whole numbers, such as 1,2", param, ctx)
        return tuple(map(int, parts))


class Parsed(click.ParamType[object]):
    """Values of which a function knows how they are written; it raises ValueError for those that it cannot read."""

    name = "value"

    def __init__(self, parse: Callable[[str], object]) -> None:
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Return the value, or fail with a line that says what is wrong."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def devices(default: int = 2) -> Callable[[Command], Command]:
    """Make the option for the number of devices."""
    return click.option("--devices", type=POSITIVE, default=default, show_default=True, help="Logical devices.")


def devices_of_a_process(alone: int) -> Callable[[Command], Command]:
    """Make the option for a process's devices, None unless given; `alone` is the default of a single process."""
    return click.option(
        "--devices",
        type=Devices(),
        metavar="N|NAMES",
        help="Logical devices of a process: how many, or which (cpu:1,gpu:0; gpu:0/0,gpu:0/1 for two streams on a GPU)."
        f"  [default: {alone}; 1 for each of several processes]",
    )


device_kind = click.option("--device-kind", metavar="auto|cpu|gpu", default="auto", show_default=True)
threads = click.option("--threads", type=POSITIVE, help="Threads per CPU device. Default: its share of the cores.")
workers = click.option(
    "--workers", type=POSITIVE, default=1, show_default=True, help="Workers per CPU device, each with these threads."
)
variants = click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="How it schedules; --explain lists the names. Repeatable.",
)
json_file = click.option(
    "--json", "json_path", type=click.Path(path_type=Path), metavar="FILE", help="- for standard output."
)
plot_file = click.option(
    "--plot",
    "plot_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A picture, by its ending PNG, SVG or PDF.",
)
trace_file = click.option(
    "--trace",
    "trace_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A Chrome trace (.json or .json.gz) of one more repetition, from the framework's own profiler.",
)
# A comparison asks for it: what cannot be profiled must be measured all the same.
trace_if_possible = click.option("--trace-if-possible", type=click.Path(path_type=Path), hidden=True)
timeline_file = click.option(
    "--timeline",
    "timeline_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A picture of that repetition, a lane for each queue: PNG, SVG or PDF.",
)
