"""A Chrome trace as its slices, the names of its rows and what was wrong with it, whatever program
wrote it.

A million slices are too many for objects, so they are columns: an array has an entry for each
slice. Names, categories and rows are few, so each is kept once and a column holds its place.
Arguments stay as they stand in the file; `Slices.arguments` decodes some of many at once.
"""

import json
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter, eq
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, TypeVar, final, overload

import msgspec
import numpy as np

from backends.profiling.texts import Texts

TraceThread: TypeAlias = "tuple[int | str, int | str]"
"""A thread in a trace: its process and its number there."""
FINDINGS = 1_886_547_826
"""The process of the tracks that we add to a trace: no number that an operating system gives."""
Value = TypeVar("Value", bound=Hashable)
Other = TypeVar("Other", bound=Hashable)
Row = TypeVar("Row", covariant=True)


@final
class Places(dict[Value, int]):
    """Gives each value that is asked for a place: the next one if it is new."""

    def __missing__(self, value: Value) -> int:
        place = self[value] = len(self)
        return place


def coded(values: Iterable[Value]) -> tuple[tuple[Value, ...], np.ndarray]:
    """Return the different values, in the order in which they come, and the place of each one among
    them.
    """
    places: Places[Value] = Places()
    codes = np.fromiter((places[value] for value in values), np.int32)
    return tuple(places), codes


def recoded(
    values: Sequence[Value], codes: np.ndarray, change: Callable[[Value], Other]
) -> tuple[tuple[Other, ...], np.ndarray]:
    """Return a coded column with each value changed: those that become equal become one."""
    used = np.unique(codes)
    changed, places = coded([change(values[code]) for code in used.tolist()])
    translation = np.zeros(len(values), np.int32)
    translation[used] = places
    return changed, translation[codes]


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
        return (
            self.select(index)
            if isinstance(index, slice)
            else next(iter(self.select(np.array([index]))))
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    def select(self, where: "np.ndarray | slice") -> Self:
        """Return the rows that a mask selects, or those at some places."""
        return replace(self, **{column: getattr(self, column)[where] for column in self.COLUMNS})  # type: ignore[type-var]


@final
@dataclass(frozen=True, eq=False)
class Slices(Columns[Slice]):
    """Slices in the order of their start: a sequence of `Slice`, made when asked for, and the
    columns they come from.

    For all of a trace use the columns (`starts[has_category("kernel")]`), or `select` some first:
    to go through a million objects takes a second.
    """

    names: tuple[str, ...]
    categories: tuple[str, ...]
    rows: tuple[TraceThread, ...]
    """Processes and threads."""
    name_of: np.ndarray
    """Places in `names`; `category_of` and `row_of` likewise."""
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
        names, name_of = coded(one.name for one in listed)
        categories, category_of = coded(one.category for one in listed)
        rows, row_of = coded((one.process, one.thread) for one in listed)
        starts, ends = (np.array([one[place] for one in listed], np.int64) for place in (4, 5))
        raw_args = Texts.of([one.raw_args for one in listed])
        return cls(names, categories, rows, name_of, category_of, row_of, starts, ends, raw_args)

    def __iter__(self) -> Iterator[Slice]:
        names, categories, rows = self.names, self.categories, self.rows
        columns = (getattr(self, column).tolist() for column in self.COLUMNS)
        for name, category, row, start, end, raw in zip(*columns, strict=True):
            process, thread = rows[row]
            yield Slice(names[name], categories[category], process, thread, start, end, raw)

    def has_category(self, *categories: str) -> np.ndarray:
        """Return the mask of the slices of some categories."""
        return _holds(self.categories, self.category_of, categories)

    def has_name(self, names: Container[str]) -> np.ndarray:
        """Return the mask of the slices of some names."""
        return _holds(self.names, self.name_of, names)

    def counts(self) -> dict[str, int]:
        """Return how many slices there are of each category."""
        counted = np.bincount(self.category_of, minlength=len(self.categories)).tolist()
        return {
            category: count
            for category, count in zip(self.categories, counted, strict=True)
            if count
        }

    def threads(self) -> list[TraceThread]:
        """Return the threads that there are, in the order of their first slices."""
        used, first = np.unique(self.row_of, return_index=True)
        return [self.rows[row] for row in used[np.argsort(first)].tolist()]

    def on_threads(self, threads: Container[TraceThread]) -> np.ndarray:
        """Return the mask of the slices of some threads."""
        return _holds(self.rows, self.row_of, threads)

    def arguments(self, *names: str) -> list[tuple[Any, ...]]:
        """Return the arguments of these names for each slice; None for one that it lacks."""
        found: list[tuple[Any, ...]] = [()] * len(self)
        for rows, columns in self._decoded(names):
            for row, values in zip(rows.tolist(), zip(*columns, strict=True), strict=True):
                found[row] = values
        return found

    def coded_arguments(self, *names: str) -> tuple[tuple[tuple[Any, ...], np.ndarray], ...]:
        """Return for each argument its different values, and where each slice's value is in them.

        Only texts and numbers count. A slice without the argument has the value None. Few slices
        are decoded at the same time: there may be a million.
        """
        # A value that is looked up for the first time gets the next place.
        places_by_argument: list[Places[Hashable]] = [Places() for _ in names]
        place_of_slice = [np.empty(len(self), np.int32) for _ in names]
        for rows, values_by_argument in self._decoded(names):
            for argument, values in enumerate(values_by_argument):
                places = _places_of(values, places_by_argument[argument])
                place_of_slice[argument][rows] = places
        different_values = map(tuple, places_by_argument)
        return tuple(zip(different_values, place_of_slice, strict=True))

    def _decoded(self, names: Sequence[str]) -> Iterator[tuple[np.ndarray, list[list[Any]]]]:
        """Yield some slices' arguments at a time: their rows, and a list by name."""
        decode = _decoder(names)
        for rows, texts in self.raw_args.by_block():
            yield rows, decode([text or b"{}" for text in texts])


def _places_of(values: Sequence[Any], places: Places[Hashable]) -> list[int]:
    """Return the place of each value; a value without one gets the next."""
    try:
        return list(map(places.__getitem__, values))
    except TypeError:
        # Lists and objects are no values that several slices share.
        return [places[value if isinstance(value, Hashable) else None] for value in values]


def _holds(values: Sequence[Any], place_of: np.ndarray, wanted: Container[Any]) -> np.ndarray:
    known = np.array([one in wanted for one in values], bool)
    return known[place_of] if len(known) else np.zeros(0, bool)


def _decoder(names: Sequence[str]) -> Callable[[Sequence[bytes]], list[list[Any]]]:
    """Return a function that decodes the arguments of these names from texts: a list by name."""
    keys = [f"key_{place}" for place in range(len(names))]
    wanted = msgspec.defstruct(
        "wanted",
        [(key, Any, None) for key in keys],
        rename=dict(zip(keys, names, strict=True)),
        gc=False,
    )
    decoder = msgspec.json.Decoder(list[wanted])  # type: ignore[valid-type]

    def decode(texts: Sequence[bytes]) -> list[list[Any]]:
        try:
            rows = decoder.decode(b"[" + b",".join(texts) + b"]")
        except (msgspec.MsgspecError, ValueError, RecursionError):
            decoded = list(map(decoded_args, texts))
            return [[arguments.get(name) for arguments in decoded] for name in names]
        return [list(map(attrgetter(key), rows)) for key in keys]

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
    problems: tuple[str, ...] = ()
    """A sentence for each reason why events were dropped."""
    named_twice: frozenset[int | str] = frozenset()
    """The processes that the file names more than once, as a process and not as a GPU."""
    begin: int = 0
    """When the earliest event started, in nanoseconds by the file's own clock."""

    @cached_property
    def columns(self) -> Slices:
        """The slices as columns: for what is asked of all of them."""
        return Slices.of(self.slices)
