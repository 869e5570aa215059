"""A Chrome trace as its slices, the names of its rows and what was wrong with it, whatever program
wrote it.

A million slices are too many for objects, so they are columns: an array has an entry for each
slice. Names, categories and rows are few, so each is kept once and a column holds its position.
Arguments stay as they stand in the file until `Slices.arguments` decodes those of a name.
"""

import json
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter, eq
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, final, overload

import msgspec
import numpy as np

from backends.profiling.doubts import Doubt
from backends.profiling.texts import Texts

TraceThread = tuple[int | str, int | str]
"""A thread in a trace: its process and its number there."""
FINDINGS = 1_886_547_826
"""The process of the tracks that we add to a trace: no number that an operating system gives."""
Value = TypeVar("Value", bound=Hashable)
Other = TypeVar("Other", bound=Hashable)
Row = TypeVar("Row", covariant=True)


@final
class Places(dict[Value, int]):
    """Numbers values from 0 in the order in which they are first asked for."""

    def __missing__(self, value: Value) -> int:
        number = len(self)
        self[value] = number
        return number


def coded(values: Iterable[Value]) -> tuple[tuple[Value, ...], np.ndarray]:
    """Return the distinct values in the order in which they first come, and each value's code.

    The code of a value is its position among the distinct ones.
    """
    code_of: Places[Value] = Places()
    codes = np.fromiter(map(code_of.__getitem__, values), np.int32)
    return tuple(code_of), codes


def recoded(
    values: Sequence[Value], codes: np.ndarray, change: Callable[[Value], Other]
) -> tuple[tuple[Other, ...], np.ndarray]:
    """Return a coded column with each value changed: those that become equal become one.

    `values` and `codes` are what `coded` returns, and so is the result. `change` is not called for
    values without a code.
    """
    used_codes = np.flatnonzero(np.bincount(codes, minlength=len(values)))
    changed_values = [change(values[code]) for code in used_codes.tolist()]
    distinct_values, new_codes = coded(changed_values)
    new_code_of = np.zeros(len(values), np.int32)
    new_code_of[used_codes] = new_codes
    return distinct_values, new_code_of[codes]


class Slice(NamedTuple):
    """One complete event: `X`, or a begin and its end. Times are in nanoseconds from the trace's
    earliest event.
    """

    name: str
    category: str
    process: int | str
    thread: int | str
    start: int
    end: int
    raw_args: bytes = b""

    @property
    def args(self) -> dict[str, Any]:
        """The arguments; each access decodes them, because most are never asked for."""
        return decoded_args(self.raw_args)


def decoded_args(raw: bytes) -> dict[str, Any]:
    """Decode an event's arguments; there are none if they are no object, or cannot be decoded."""
    # The standard library's decoder takes lone surrogates, which msgspec passes over and then
    # refuses.
    try:
        decoded = json.loads(raw or b"{}")
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


class Columns(Sequence[Row]):
    """Rows as columns, the fields that hold an entry for each: a sequence whose rows are made when
    they are asked for.

    Subclasses are dataclasses.
    """

    COLUMNS: ClassVar[tuple[str, ...]]
    starts: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> "Row | Self":
        if isinstance(index, slice):
            return self.select(index)
        (row,) = self.select(np.array([index]))
        return row

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(map(eq, self, other))

    def select(self, where: "np.ndarray | slice") -> Self:
        """Return the rows that a mask selects, or those at some positions."""
        columns = {column: getattr(self, column)[where] for column in self.COLUMNS}
        return replace(self, **columns)  # type: ignore[type-var]


@final
@dataclass(frozen=True, eq=False)
class Slices(Columns[Slice]):
    """Slices in the order of their start: a sequence of `Slice`, made when asked for, and the
    columns they come from.

    For all slices of a trace use the columns (`starts[has_category("kernel")]`), or `select` a few
    first: to go through a million objects takes a second.
    """

    names: tuple[str, ...]
    categories: tuple[str, ...]
    rows: tuple[TraceThread, ...]
    """Processes and threads."""
    name_of: np.ndarray
    """Positions in `names`; `category_of` and `row_of` likewise."""
    category_of: np.ndarray
    row_of: np.ndarray
    starts: np.ndarray
    """Nanoseconds, int64; `ends` likewise."""
    ends: np.ndarray
    raw_args: Texts
    """Arguments as they stand in the file; empty without any."""

    COLUMNS = ("name_of", "category_of", "row_of", "starts", "ends", "raw_args")

    @classmethod
    def of(cls, slices: Iterable[Slice]) -> "Slices":
        """Put slices into columns."""
        if isinstance(slices, Slices):
            return slices
        listed = list(slices)
        names, name_of = coded(item.name for item in listed)
        categories, category_of = coded(item.category for item in listed)
        rows, row_of = coded((item.process, item.thread) for item in listed)
        starts = np.array([item.start for item in listed], np.int64)
        ends = np.array([item.end for item in listed], np.int64)
        raw_args = Texts.of([item.raw_args for item in listed])
        return cls(names, categories, rows, name_of, category_of, row_of, starts, ends, raw_args)

    def __iter__(self) -> Iterator[Slice]:
        names, categories, rows = self.names, self.categories, self.rows
        columns = (getattr(self, column).tolist() for column in self.COLUMNS)
        for name, category, row, start, end, raw in zip(*columns, strict=True):
            process, thread = rows[row]
            yield Slice(names[name], categories[category], process, thread, start, end, raw)

    def has_category(self, *categories: str) -> np.ndarray:
        """Return which slices are of one of these categories: a mask."""
        return _holds_wanted(self.categories, self.category_of, categories)

    def has_name(self, names: Container[str]) -> np.ndarray:
        """Return which slices have one of these names: a mask."""
        return _holds_wanted(self.names, self.name_of, names)

    def named(self, suits: Callable[[str], object]) -> np.ndarray:
        """Return which slices have a name of which a function says that it suits."""
        return np.array([bool(suits(name)) for name in self.names], bool)[self.name_of]

    def on_threads(self, threads: Container[TraceThread]) -> np.ndarray:
        """Return which slices are on one of these threads: a mask."""
        return _holds_wanted(self.rows, self.row_of, threads)

    def counts(self) -> dict[str, int]:
        """Return the number of slices of each category that has any."""
        counts = np.bincount(self.category_of, minlength=len(self.categories)).tolist()
        count_of = dict(zip(self.categories, counts, strict=True))
        return {category: count for category, count in count_of.items() if count > 0}

    def threads(self) -> list[TraceThread]:
        """Return the threads that have slices, in the order of their first slices."""
        row_numbers, first_positions = np.unique(self.row_of, return_index=True)
        in_order = row_numbers[np.argsort(first_positions)]
        return [self.rows[number] for number in in_order.tolist()]

    def arguments(self, *names: str) -> list[tuple[Any, ...]]:
        """Return for each slice its arguments of these names; None for one that it lacks."""
        arguments_of: list[tuple[Any, ...]] = [()] * len(self)
        for positions, values_by_name in self._decoded(names):
            values_by_slice = zip(*values_by_name, strict=True)
            for position, values in zip(positions.tolist(), values_by_slice, strict=True):
                arguments_of[position] = values
        return arguments_of

    def coded_arguments(self, *names: str) -> tuple[tuple[tuple[Any, ...], np.ndarray], ...]:
        """Return for each argument its distinct values, and the code of each slice's value.

        The code is a position among the distinct values. Only texts and numbers count. A slice
        without the argument has the value None. Few slices are decoded at the same time: there may
        be a million.
        """
        code_of_value: list[Places[Hashable]] = [Places() for _ in names]
        code_of_slice = [np.empty(len(self), np.int32) for _ in names]
        for positions, values_by_name in self._decoded(names):
            for argument, values in enumerate(values_by_name):
                code_of_slice[argument][positions] = _codes(values, code_of_value[argument])
        distinct_values = map(tuple, code_of_value)
        return tuple(zip(distinct_values, code_of_slice, strict=True))

    def _decoded(self, names: Sequence[str]) -> Iterator[tuple[np.ndarray, list[list[Any]]]]:
        """Yield the arguments of a few thousand slices at a time.

        They are the slices' positions, and for each name a list of those slices' values.
        """
        decode = _decoder(names)
        for positions, texts in self.raw_args.by_block():
            yield positions, decode([text or b"{}" for text in texts])


def _codes(values: Sequence[Any], code_of: Places[Hashable]) -> list[int] | int:
    """Return the code of each value, or one for all; a value without a code gets the next."""
    # Often none of a few thousand slices has an argument.
    if values.count(None) == len(values):
        return code_of[None]
    try:
        return list(map(code_of.__getitem__, values))
    except TypeError:
        # Lists and objects are no values that several slices share.
        shared = [value if isinstance(value, Hashable) else None for value in values]
        return [code_of[value] for value in shared]


def _holds_wanted(
    values: Sequence[Any], position_of: np.ndarray, wanted: Container[Any]
) -> np.ndarray:
    """Return which entries of a column hold a wanted value: a mask.

    The column holds positions in `values`.
    """
    is_wanted = np.array([value in wanted for value in values], bool)
    return is_wanted[position_of]


def _decoder(names: Sequence[str]) -> Callable[[Sequence[bytes]], list[list[Any]]]:
    """Return a function that decodes the arguments of these names from texts: a list by name."""
    # A struct with a field for each name makes msgspec skip all other arguments. Names of arguments
    # may be no names of Python's, so the fields have others.
    fields = [f"field_{number}" for number in range(len(names))]
    struct = msgspec.defstruct(
        "WantedArguments",
        [(field, Any, None) for field in fields],
        rename=dict(zip(fields, names, strict=True)),
        gc=False,
    )
    decoder = msgspec.json.Decoder(list[struct])  # type: ignore[valid-type]

    def decode(texts: Sequence[bytes]) -> list[list[Any]]:
        """Decode all texts at once or, if one is damaged, each by itself."""
        try:
            structs = decoder.decode(b"[" + b",".join(texts) + b"]")
        except (msgspec.MsgspecError, ValueError, RecursionError):
            arguments_of = list(map(decoded_args, texts))
            return [[arguments.get(name) for arguments in arguments_of] for name in names]
        return [list(map(attrgetter(field), structs)) for field in fields]

    return decode


@dataclass(frozen=True)
class Trace:
    """The slices of a file in the order of their start, the names of its rows, and what was wrong
    with it.
    """

    slices: Sequence[Slice]
    """Those of a file are `Slices`; `columns` has them as such in any case."""
    processes: Mapping[int | str, str] = field(default_factory=dict)
    threads: Mapping[TraceThread, str] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    """What the file states beside its events; the first value if it gives several."""
    contradicted: frozenset[str] = frozenset()
    """The names of properties of which it gives several values: several files are in it."""
    problems: tuple[Doubt, ...] = ()
    """One for each reason why events were dropped."""
    named_twice: frozenset[int | str] = frozenset()
    """The processes that the file names more than once, as a process and not as a GPU."""
    begin: int = 0
    """When the earliest event started, in nanoseconds by the file's own clock."""

    @cached_property
    def columns(self) -> Slices:
        """The slices as columns: for what is asked of all of them."""
        return Slices.of(self.slices)
