"""What a figure of a trace is: declared once, where it is computed, and read by all that show it.

The rows of a level are objects of one class: a case, a device, a queue, an operation, a step, a
rank. A field or a `figure` of that class whose type has a unit is a figure: its name, unit, level,
sentence (the docstring) and formula. JSON, tables, limits and the reference read the declarations.

A figure that may be None says why: the code of what the trace lacks then (`trust.LACKING`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.limits import UnitName

Value = TypeVar("Value")


@dataclass(frozen=True)
class Unit:
    """What a figure is counted in, and how it is written."""

    name: UnitName


@dataclass(frozen=True)
class Lacking:
    """Why a figure may be None: a code of what the trace lacks."""

    code: str


SECONDS, SHARE, RATIO, COUNT = Unit("seconds"), Unit("share"), Unit("ratio"), Unit("count")
Seconds = Annotated[float, SECONDS]
Share = Annotated[float, SHARE]
Ratio = Annotated[float, RATIO]
Count = Annotated[int, COUNT]
SecondsInterval = Annotated[Interval, SECONDS]
ShareInterval = Annotated[Interval, SHARE]


class figure(cached_property[Value]):  # noqa: N801
    """A method of a row that is a figure: it is computed when asked for, and kept."""


@dataclass(frozen=True)
class Figure:
    """The declaration of a figure."""

    name: str
    unit: Unit | None
    """None if it is a name, or has figures of its own."""
    lacking: str
    """The code of what the trace lacks where it is None; empty if it never is."""
    sentence: str
    """What it is; empty for a field, whose docstring only the reference reads."""


DECLARED: dict[type, Mapping[str, Figure]] = {}
"""What `figures_of_level` has read: types are resolved once."""


def figures_of_level(level: type) -> Mapping[str, Figure]:
    """Return the declarations of a class of rows, by name, in their order."""
    if level not in DECLARED:
        hints = hints_of(level)
        DECLARED[level] = {name: _declared(level, name, hint) for name, hint in hints.items()}
    return DECLARED[level]


def hints_of(level: type) -> dict[str, Any]:
    """Return the types of a class's figures, and of the fields that name its rows."""
    hints = {}
    if is_dataclass(level):
        hints_of_fields = get_type_hints(level, include_extras=True)
        # What is not shown of a row is not written.
        hints = {field.name: hints_of_fields[field.name] for field in fields(level) if field.repr}
    for name, method in vars(level).items():
        if isinstance(method, figure):
            hints[name] = get_type_hints(method.func, include_extras=True)["return"]
    return hints


def _declared(level: type, name: str, hint: Any) -> Figure:
    """Return a declaration from a type: `Annotated[Share | None, Lacking("no-exchange")]`."""
    marks = list(_marks(hint))
    units = [mark for mark in marks if isinstance(mark, Unit)]
    codes = [mark.code for mark in marks if isinstance(mark, Lacking)]
    method = vars(level).get(name)
    sentence = " ".join((method.func.__doc__ or "").split()) if isinstance(method, figure) else ""
    return Figure(name, next(iter(units), None), next(iter(codes), ""), sentence)


def _marks(hint: Any) -> Iterator[object]:
    """Yield what a type is annotated with, or one of its alternatives is."""
    yield from getattr(hint, "__metadata__", ())
    if get_origin(hint) in (Annotated, Union, UnionType):
        for inner in get_args(hint):
            yield from _marks(inner)


def as_json(value: Any) -> Any:
    """Return a row, or what lies in one, as JSON has it.

    What is null is named under `unknown`, with the code of what the trace lacks.
    """
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_json(item) for item in value]
    declared = figures_of_level(type(value))
    if not declared:
        return value
    written = {name: as_json(getattr(value, name)) for name in declared}
    lacking = {
        name: figure.lacking
        for name, figure in declared.items()
        if written[name] is None and figure.lacking
    }
    return {**written, "unknown": lacking} if lacking else written


def ratio(part: float, whole: float) -> float | None:
    """Return a share; None of nothing."""
    return part / whole if whole else None
