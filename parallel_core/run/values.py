"""The types of values as they are written on a command line: each reads a text, and refuses what is
out of its bounds.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from backends import BackendError
from backends.devices import Wanted, parse_devices
from backends.errors import unknown
from parallel_core.experiments.runner.parameters import MOST, Parameter
from parallel_core.measurement.request import MOST_PROCESSES
from parallel_core.system.errors import MeasurementError

POSITIVE = click.IntRange(1, MOST)
PROCESSES = click.IntRange(1, MOST_PROCESSES)
"""A number of processes, or of threads of a device."""
MOST_DEVICES = 256


PATH = click.Path(path_type=Path)


class Parsed(click.ParamType[Any]):
    """The type of values that a function reads from a text.

    The function raises ValueError, BackendError or MeasurementError if it cannot. `name` is the
    word for a value in the help, in capitals. With `as_written` a text is only checked, and stays.
    """

    def __init__(
        self, parse: Callable[[str], Any], name: str = "value", as_written: bool = False
    ) -> None:
        self.parse, self.name, self.as_written = parse, name, as_written

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value, or fail with a line that says what is wrong."""
        if not isinstance(value, str):
            return value
        try:
            parsed = self.parse(value)
        except (BackendError, MeasurementError, ValueError) as error:
            self.fail(str(error), param, ctx)
        return value if self.as_written else parsed


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


def _devices(text: str) -> Wanted:
    """Read a number of devices, or their names; raises ValueError for too many."""
    wanted = parse_devices(text)
    count = wanted if isinstance(wanted, int) else len(wanted)
    if not 1 <= count <= MOST_DEVICES:
        raise ValueError(f"{count} is not in the range 1<=x<={MOST_DEVICES}.")
    return wanted


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


def type_of(parameter: Parameter) -> click.ParamType | type:
    """Return the type of the values of an experiment's parameter."""
    if parameter.parse is not None:
        return Parsed(parameter.parse)
    if parameter.choices:
        return names(parameter.option, lambda: parameter.choices)
    origin, type_arguments = get_origin(parameter.type), get_args(parameter.type)
    if origin is Literal:
        return click.Choice(type_arguments)
    is_sequence = origin is not None
    if is_sequence and type_arguments[0] is int:
        return integers(int(parameter.maximum))
    if is_sequence:
        return NUMBERS
    if parameter.type is int:
        return click.IntRange(parameter.minimum, int(parameter.maximum))
    if parameter.type is float:
        return number(parameter.maximum)
    return str
