"""Read a Chrome trace: pair begins with ends into slices, properly nested in each row as the format
asks.

The times of events become whole nanoseconds from the digits in the file: a float would round them
before we do. Microseconds since 1970 have 16 digits before the point, and with nanoseconds 19: more
than a float holds. So many numbers are read at once as integers, their points taken out; if one has
another form, one by one, as decimals.
"""

from collections import Counter
from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, final

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from backends.profiling.slices import FINDINGS, Places, Slices, Trace, TraceThread, decoded_args
from backends.profiling.texts import Texts
from backends.profiling.trace_events import Document, Event, read_events, text_blocks

PairingKey: TypeAlias = tuple[Any, ...]
"""What an end shares with its begin: a process and thread, or a category, an identity and a
name.
"""

WITHOUT_ARGUMENTS = frozenset({"cpu_op", "Operator", "python_function"})
"""Categories of the host's own work: shapes and stacks are most of a trace's text, and no reader
asks for them.
"""

ENDLESS, BEGINLESS = "began and never ended", "ended without a beginning"
TIMELESS = "without times or with impossible times"

MAX_NANOSECONDS = 2**62
"""146 years: a time further from zero is impossible, and differences of possible ones fit in 64
bits.
"""
MAX_MICROSECONDS = Decimal(MAX_NANOSECONDS) / 1000
MAX_DIGITS = 19
COMMA, POINT, NINE = b",.9"
PLAIN = b"0123456789.,"
POWERS = 10 ** np.arange(4, dtype=np.int64)
EXACT = Context(prec=50)

Number: TypeAlias = int | Decimal | None
"""Microseconds as they stand in the file."""

NUMBER: "msgspec.json.Decoder[Number]" = msgspec.json.Decoder(int | Decimal | None)


def read_trace(path: Path) -> Trace:
    """Read a Chrome trace, plain or compressed by gzip, as much of it as there is.

    Complete events, begins with their ends and asynchronous ones with theirs become slices;
    counters, instants and flows do not. Of operators on a host the arguments are not kept. Raises
    OSError if the file cannot be read, and ValueError, in one line, if nothing in it can be used.
    """
    document = Document()
    pairing = _Pairing()
    try:
        for events in read_events(text_blocks(path), document):
            pairing.take(events)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    slices, begin = pairing.finish()
    problems = _problems(document, pairing)
    if not slices:
        nothing = "it holds no events of a Chrome trace that have a beginning and an end."
        raise ValueError(f"{path} cannot be used: {' '.join((nothing, *problems))}")
    return Trace(
        slices,
        pairing.processes,
        pairing.threads,
        document.properties,
        frozenset(document.contradicted),
        problems,
        frozenset(process for process, count in pairing.namings.items() if count > 1),
        begin,
    )


class _Begin(NamedTuple):
    """A begin that waits for its end, with its place among the events of the file."""

    name: str
    codes: tuple[int, int, int]
    start: int
    is_possible: bool
    place: int
    raw_args: bytes


class _Batch(NamedTuple):
    """Columns of slices: codes of name, category and row (n, 3), times, places of their begins,
    arguments.
    """

    codes: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    places: np.ndarray
    raw_args: Texts


@final
class _Pairing:
    """Take in events in the order of the file, and record what cannot be used."""

    def __init__(self) -> None:
        self.processes: dict[int | str, str] = {}
        self.threads: dict[TraceThread, str] = {}
        self.namings: Counter[int | str] = Counter()
        """How often each process was named, without Kineto's names of GPUs, whose numbers may be a
        process's, too.
        """
        self.dropped: dict[str, list[str]] = {ENDLESS: [], BEGINLESS: [], TIMELESS: []}
        """By reason, the names of the events that were dropped."""
        self._names: Places[str] = Places()
        self._categories: Places[str] = Places()
        self._rows: Places[TraceThread] = Places()
        self._batches: list[_Batch] = []
        self._taken = 0
        self._open: dict[PairingKey, list[_Begin]] = {}
        self._open_names: Counter[tuple[PairingKey, str]] = Counter()
        # A file without slices has columns, too.
        self._add(np.zeros((0, 3)), (), (), (), raw=())

    def take(self, read: Sequence[Event]) -> None:
        # What we found in a trace is no part of it.
        events = [event for event in read if event.pid != FINDINGS]
        complete = np.array([event.ph == "X" for event in events], bool)
        places = np.flatnonzero(complete)
        self._take_complete([events[place] for place in places.tolist()], places + self._taken)
        self._take_others([(place, events[place]) for place in np.flatnonzero(~complete).tolist()])
        self._taken += len(events)

    def finish(self) -> tuple[Slices, int]:
        """Return all slices in the order of their start, and then of the file; and when the first
        started.

        The slices' times are nanoseconds from the first one's start, which is by the file's own
        clock.
        """
        self.dropped[ENDLESS] += (begin.name for begins in self._open.values() for begin in begins)
        *columns, texts = zip(*self._batches, strict=True)
        codes, starts, ends, places = (np.concatenate(column) for column in columns)
        raw_args = Texts.joined(texts)
        self._batches.clear()
        order = np.lexsort((places, starts))
        first = int(starts[order[0]]) if len(order) else 0
        slices = Slices(
            tuple(self._names),
            tuple(self._categories),
            tuple(self._rows),
            codes[order, 0],
            codes[order, 1],
            codes[order, 2],
            starts[order] - first,
            ends[order] - first,
            raw_args[order],
        )
        return slices, first

    def _take_complete(self, events: Sequence[Event], places: np.ndarray) -> None:
        begin_values = [event.ts for event in events]
        begins = times_of(begin_values)
        ends = ends_of(begins, begin_values, [event.dur for event in events])
        if not ends.is_possible.all():
            self.dropped[TIMELESS] += (
                events[place].name for place in np.flatnonzero(~ends.is_possible).tolist()
            )
            kept = np.flatnonzero(ends.is_possible)
            events, places = [events[place] for place in kept.tolist()], places[kept]
            begins, ends = (Times(*(column[kept] for column in times)) for times in (begins, ends))
        names, categories, rows = self._names, self._categories, self._rows
        columns = (
            [names[event.name] for event in events],
            [categories[event.cat] for event in events],
            [rows[event.pid, event.tid] for event in events],
        )
        raw = [b"" if event.cat in WITHOUT_ARGUMENTS else bytes(event.args) for event in events]
        self._add(
            np.array(columns, np.int32).T, begins.nanoseconds, ends.nanoseconds, places, raw=raw
        )

    def _take_others(self, events: Sequence[tuple[int, Event]]) -> None:
        pairs = [(place, event) for place, event in events if event.ph in ("B", "E", "b", "e")]
        times = times_of([event.ts for _, event in pairs])
        found: list[tuple[_Begin, int]] = []
        for (place, event), time, possible in zip(
            pairs, times.nanoseconds.tolist(), times.is_possible.tolist(), strict=True
        ):
            if event.ph in ("B", "b"):
                self._begin(_key(event), event, time, possible, self._taken + place)
            elif begin := self._begin_of(_key(event), event):
                if begin.is_possible and possible and begin.start <= time:
                    found.append((begin, time))
                else:
                    self.dropped[TIMELESS].append(begin.name)
        for _, event in events:
            if event.ph == "M":
                self._name(event)
        if found:
            begins, ends = zip(*found, strict=True)
            _, codes, starts, _, places, raw = zip(*begins, strict=True)
            self._add(codes, starts, ends, places, raw=raw)

    def _add(self, codes: ArrayLike, *columns: ArrayLike, raw: Sequence[bytes]) -> None:
        starts, ends, places = (np.asarray(column, np.int64) for column in columns)
        self._batches.append(
            _Batch(np.asarray(codes, np.int32), starts, ends, places, Texts.of(raw))
        )

    def _begin(
        self, key: PairingKey, event: Event, start: int, is_possible: bool, place: int
    ) -> None:
        name = event.name
        codes = self._names[name], self._categories[event.cat], self._rows[event.pid, event.tid]
        self._open.setdefault(key, []).append(
            _Begin(name, codes, start, is_possible, place, bytes(event.args))
        )
        self._open_names[key, name] += 1

    def _begin_of(self, key: PairingKey, event: Event) -> _Begin | None:
        begins = self._open.get(key)
        anonymous = begins and not (event.name and begins[-1].name)
        if not begins or not (anonymous or self._open_names[key, event.name]):
            self.dropped[BEGINLESS].append(event.name)
            return None
        while True:
            begin = begins.pop()
            self._open_names[key, begin.name] -= 1
            if anonymous or begin.name == event.name:
                return begin
            self.dropped[ENDLESS].append(begin.name)

    def _name(self, event: Event) -> None:
        args = decoded_args(bytes(event.args))
        if event.name == "process_labels" and str(args.get("labels")).startswith("GPU "):
            self.namings[event.pid] -= 1
        name = args.get("name")
        if not isinstance(name, str):
            return
        if event.name == "process_name":
            self.namings[event.pid] += 1
            self.processes[event.pid] = name
        elif event.name == "thread_name":
            self.threads[event.pid, event.tid] = name


def _key(event: Event) -> PairingKey:
    if event.ph in "BE":
        return event.pid, event.tid
    identity = event.id if event.id2 is None else tuple(sorted(event.id2.items()))
    return event.cat, identity, event.name


def _problems(document: Document, pairing: _Pairing) -> tuple[str, ...]:
    cut = ("The file ends before its events do: it was cut off.",) if document.cut else ()
    damaged = (
        (f"{_events(document.damaged)} could not be read, left out.",) if document.damaged else ()
    )
    dropped = (
        f"{_events(len(names))} {reason}, left out: the first is {names[0][:60]!r}."
        for reason, names in pairing.dropped.items()
        if names
    )
    return (*cut, *damaged, *dropped)


def _events(count: int) -> str:
    return f"{count:,} event{'' if count == 1 else 's'}"


class Times(NamedTuple):
    """Times in nanoseconds, rounded to the nearest."""

    nanoseconds: np.ndarray
    is_possible: np.ndarray
    is_whole: np.ndarray
    """Whether nothing was rounded."""


def times_of(values: Sequence[msgspec.Raw]) -> Times:
    """Return the times that JSON values in microseconds stand for; what is no number is
    impossible.
    """
    return _many(values) or _one_by_one(values)


def ends_of(
    begins: Times, begin_values: Sequence[msgspec.Raw], duration_values: Sequence[msgspec.Raw]
) -> Times:
    """Return when events end that begin at some times and last so long; each end is rounded
    once.
    """
    durations = times_of(duration_values)
    ends = begins.nanoseconds + durations.nanoseconds
    possible = begins.is_possible & durations.is_possible
    whole = begins.is_whole & durations.is_whole
    for place in np.flatnonzero(possible & ~whole).tolist():
        begin, duration = _number(begin_values[place]), _number(duration_values[place])
        assert begin is not None
        assert duration is not None
        with localcontext(EXACT):
            ends[place] = round((begin + duration) * 1000)
    # A sum beyond 64 bits begins again from below.
    possible &= (ends >= begins.nanoseconds) & (ends < MAX_NANOSECONDS)
    return Times(ends, possible, whole)


def _many(values: Sequence[msgspec.Raw]) -> Times | None:
    """Read numbers without sign and exponent at once; None if other numbers are among them."""
    text = b",".join(values)
    if text.translate(None, PLAIN) or not text:
        return None
    characters = np.frombuffer(text, np.uint8)
    ends = np.append(np.flatnonzero(characters == COMMA), len(text))
    begins = np.concatenate(([0], ends[:-1] + 1))
    points = np.flatnonzero(characters == POINT)
    with_point = np.searchsorted(ends, points)
    decimals = np.zeros(len(ends), np.int64)
    decimals[with_point] = ends[with_point] - points - 1
    digits = ends - begins
    if len(ends) != len(values) or not digits.all():
        return None
    digits[with_point] -= 1
    digits += 3 - decimals
    if np.any(
        (decimals > 3)
        | (digits > MAX_DIGITS)
        | ((digits == MAX_DIGITS) & (characters[begins] >= NINE))
    ):
        return None
    numbers = np.fromstring(text.replace(b".", b""), np.int64, sep=",")
    nanoseconds = numbers * POWERS[3 - decimals]
    return Times(nanoseconds, np.abs(nanoseconds) < MAX_NANOSECONDS, np.ones(len(values), bool))


def _one_by_one(values: Sequence[msgspec.Raw]) -> Times:
    nanoseconds = np.zeros(len(values), np.int64)
    possible, whole = np.zeros(len(values), bool), np.zeros(len(values), bool)
    with localcontext(EXACT):
        for place, value in enumerate(values):
            number = _number(value)
            if number is None or not -MAX_MICROSECONDS < number < MAX_MICROSECONDS:
                continue
            nanoseconds[place] = rounded = round(number * 1000)
            possible[place], whole[place] = True, rounded == number * 1000
    return Times(nanoseconds, possible, whole)


def _number(value: msgspec.Raw) -> Number:
    try:
        number = NUMBER.decode(value)
    except (msgspec.MsgspecError, ValueError):
        return None
    return (
        number if isinstance(number, int) or (number is not None and number.is_finite()) else None
    )
