"""Read a Chrome trace: pair begins with ends into slices, properly nested in each row as the format
asks.

The times of events become whole nanoseconds from the digits in the file: a float would round them
before we do. Microseconds since 1970 have 16 digits before the point, and with nanoseconds 19: more
than a float holds. So many numbers are read at once as integers, their points taken out; if one has
another form, one by one, as decimals.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal, localcontext
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple, final

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from backends.profiling.doubts import Doubt
from backends.profiling.slices import (
    FINDINGS,
    Places,
    Slices,
    Trace,
    TraceThread,
    coded,
    decoded_args,
)
from backends.profiling.texts import Texts
from backends.profiling.trace_events import (
    Document,
    Event,
    events_in_words,
    read_events,
    text_blocks,
)

PairingKey = tuple[Any, ...]
"""What an end shares with its begin: a thread, or a category, an identity and a name."""

WITHOUT_ARGUMENTS = frozenset({"cpu_op", "Operator", "python_function"})
"""Categories of the host's own work: shapes and stacks are most of a trace's text, and no reader
asks for them.
"""

BEGINS = frozenset("Bb")
PAIRED = frozenset("BbEe")
"""Phases of events; those in lower case are asynchronous."""
ENDLESS, BEGINLESS, TIMELESS = "no-end", "no-beginning", "impossible-times"
REASONS = {
    ENDLESS: "began and never ended",
    BEGINLESS: "ended without a beginning",
    TIMELESS: "without times or with impossible times",
}
"""Why events are dropped, in the order in which it is said."""

MAX_NANOSECONDS = 2**62
"""146 years; further from zero is impossible. Differences of possible times fit in 64 bits."""
MAX_MICROSECONDS = Decimal(MAX_NANOSECONDS) / 1000
MAX_DIGITS = 19
"""2**63, the first number beyond 64 bits, has as many."""
COMMA, POINT, NINE = b",.9"
PLAIN = b"0123456789.,"
"""The characters of numbers without sign and exponent, with commas between them."""
POWERS = 10 ** np.arange(4, dtype=np.int64)
EXACT = Context(prec=50)

Number = int | Decimal | None
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
    problems = (*document.doubts(), *pairing.doubts())
    if not slices:
        no_slices = "it holds no events of a Chrome trace that have a beginning and an end."
        raise ValueError(f"{path} cannot be used: {' '.join((no_slices, *map(str, problems)))}")
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
    """A begin that waits for its end."""

    name: str
    label: int
    start: int
    is_possible: bool
    position: int
    """Among the events of the file."""
    raw_args: bytes


class _Batch(NamedTuple):
    """Columns of slices that were read together."""

    labels: np.ndarray
    """The numbers of the slices' labels."""
    starts: np.ndarray
    ends: np.ndarray
    positions: np.ndarray
    """Of the slices' begins, among the events of the file."""
    raw_args: Texts


@final
class _Pairing:
    """Makes slices of events, which come in the order of the file, and records what is dropped."""

    def __init__(self) -> None:
        self.processes: dict[int | str, str] = {}
        self.threads: dict[TraceThread, str] = {}
        self.namings: Counter[int | str] = Counter()
        """How often each process was named, without Kineto's names of GPUs, whose numbers may be a
        process's, too.
        """
        self.dropped: dict[str, list[str]] = {reason: [] for reason in REASONS}
        """By reason, the names of the events that were dropped."""
        self._labels: Places[tuple[str, str, int | str, int | str]] = Places()
        """Events' names, categories, processes and threads: few in a file differ."""
        self._batches: list[_Batch] = []
        self._events_before = 0
        self._open: dict[PairingKey, list[_Begin]] = {}
        """Begins without an end so far, the innermost last."""
        self._open_names: Counter[tuple[PairingKey, str]] = Counter()
        # A file without slices has columns, too.
        self._add((), (), (), (), raw_args=())

    def take(self, events_read: Sequence[Event]) -> None:
        """Take in events, which follow in the file on those that were taken before."""
        # What we found in a trace is no part of it.
        events = [event for event in events_read if event.pid != FINDINGS]
        positions = np.arange(len(events)) + self._events_before
        is_complete = np.array([event.ph == "X" for event in events], bool)
        complete_events = list(compress(events, is_complete.tolist()))
        self._take_complete(complete_events, positions[is_complete])
        other_events = list(compress(events, (~is_complete).tolist()))
        self._take_others(other_events, positions[~is_complete])
        self._events_before += len(events)

    def finish(self) -> tuple[Slices, int]:
        """Return all slices, and when the first one started by the file's own clock.

        The slices' times are nanoseconds from the first one's start.
        """
        for begins in self._open.values():
            self.dropped[ENDLESS] += [begin.name for begin in begins]
        starts = np.concatenate([batch.starts for batch in self._batches])
        ends = np.concatenate([batch.ends for batch in self._batches])
        positions = np.concatenate([batch.positions for batch in self._batches])
        raw_args = Texts.joined(batch.raw_args for batch in self._batches)
        # By start; those that start together by their position in the file.
        order = np.lexsort((positions, starts))
        labels = np.concatenate([batch.labels for batch in self._batches])[order]
        self._batches.clear()
        first_start = int(starts[order[0]]) if len(order) else 0
        names, name_of_label = coded(name for name, _, _, _ in self._labels)
        categories, category_of_label = coded(category for _, category, _, _ in self._labels)
        rows, row_of_label = coded((process, thread) for _, _, process, thread in self._labels)
        slices = Slices(
            names,
            categories,
            rows,
            name_of_label[labels],
            category_of_label[labels],
            row_of_label[labels],
            starts[order] - first_start,
            ends[order] - first_start,
            raw_args[order],
        )
        return slices, first_start

    def doubts(self) -> Iterator[Doubt]:
        """Yield a doubt for each reason why events were dropped."""
        for reason, names in self.dropped.items():
            if names:
                dropped = f"{events_in_words(len(names))} {REASONS[reason]}, left out"
                yield Doubt(reason, f"{dropped}: the first is {names[0][:60]!r}.")

    def _take_complete(self, events: Sequence[Event], positions: np.ndarray) -> None:
        """Add complete events, at these positions in the file, as slices."""
        begin_values = [event.ts for event in events]
        begin_times = times_of(begin_values)
        end_times = ends_of(begin_times, begin_values, [event.dur for event in events])
        starts, ends = begin_times.nanoseconds, end_times.nanoseconds
        if not end_times.is_possible.all():
            for index in np.flatnonzero(~end_times.is_possible).tolist():
                self.dropped[TIMELESS].append(events[index].name)
            kept = np.flatnonzero(end_times.is_possible)
            events = [events[index] for index in kept.tolist()]
            positions, starts, ends = positions[kept], starts[kept], ends[kept]
        labels = [self._labels[event.name, event.cat, event.pid, event.tid] for event in events]
        raw_args = [b"" if event.cat in WITHOUT_ARGUMENTS else event.args for event in events]
        self._add(labels, starts, ends, positions, raw_args=raw_args)

    def _take_others(self, events: Sequence[Event], positions: np.ndarray) -> None:
        """Add each begin that its end follows as a slice, and keep the names of rows."""
        for event in events:
            if event.ph == "M":
                self._name(event)
        numbered = zip(events, positions.tolist(), strict=True)
        paired = [(event, position) for event, position in numbered if event.ph in PAIRED]
        times = times_of([event.ts for event, _ in paired])
        begins: list[_Begin] = []
        ends: list[int] = []
        for (event, position), time, is_possible in zip(
            paired, times.nanoseconds.tolist(), times.is_possible.tolist(), strict=True
        ):
            if event.ph in BEGINS:
                self._open_begin(event, time, is_possible, position)
                continue
            begin = self._close_begin(event)
            if begin is None:
                continue
            if begin.is_possible and is_possible and begin.start <= time:
                begins.append(begin)
                ends.append(time)
            else:
                self.dropped[TIMELESS].append(begin.name)
        if begins:
            _, labels, starts, _, positions_of_begins, raw_args = zip(*begins, strict=True)
            self._add(labels, starts, ends, positions_of_begins, raw_args=raw_args)

    def _add(self, labels: ArrayLike, *columns: ArrayLike, raw_args: Sequence[bytes]) -> None:
        """Add a batch of slices; the columns are their starts, ends and positions."""
        starts, ends, positions = (np.asarray(column, np.int64) for column in columns)
        texts = Texts.of(raw_args)
        self._batches.append(_Batch(np.asarray(labels, np.int32), starts, ends, positions, texts))

    def _open_begin(self, event: Event, start: int, is_possible: bool, position: int) -> None:
        """Keep a begin until its end comes."""
        key, name = _key(event), event.name
        label = self._labels[event.name, event.cat, event.pid, event.tid]
        begin = _Begin(name, label, start, is_possible, position, bytes(event.args))
        self._open.setdefault(key, []).append(begin)
        self._open_names[key, name] += 1

    def _close_begin(self, end: Event) -> _Begin | None:
        """Return the begin of an end; the begins within it, which have no end, are dropped.

        Returns None if there is no such begin, and drops the end.
        """
        key = _key(end)
        begins = self._open.get(key)
        # If the end or the innermost begin has no name, the two belong together.
        is_anonymous = not end.name or (begins and not begins[-1].name)
        if not begins or not (is_anonymous or self._open_names[key, end.name]):
            self.dropped[BEGINLESS].append(end.name)
            return None
        while True:
            begin = begins.pop()
            self._open_names[key, begin.name] -= 1
            if is_anonymous or begin.name == end.name:
                return begin
            self.dropped[ENDLESS].append(begin.name)

    def _name(self, event: Event) -> None:
        """Keep the name that an event gives a process or a thread."""
        args = decoded_args(bytes(event.args))
        if event.name == "process_labels" and str(args.get("labels")).startswith("GPU "):
            # The process is one of Kineto's GPUs, whose naming does not count.
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
    """Return what an end shares with its begin."""
    if event.ph in "BE":
        return event.pid, event.tid
    identity = event.id if event.id2 is None else tuple(sorted(event.id2.items()))
    return event.cat, identity, event.name


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
    return _read_at_once(values) or _read_one_by_one(values)


def ends_of(
    begins: Times, begin_values: Sequence[msgspec.Raw], duration_values: Sequence[msgspec.Raw]
) -> Times:
    """Return the times when events end, from their begins and durations; each is rounded once.

    `begins` are the times of `begin_values`.
    """
    durations = times_of(duration_values)
    ends = begins.nanoseconds + durations.nanoseconds
    is_possible = begins.is_possible & durations.is_possible
    is_whole = begins.is_whole & durations.is_whole
    # The sum of two rounded numbers may be off by one, so the numbers themselves are summed.
    for position in np.flatnonzero(is_possible & ~is_whole).tolist():
        begin, duration = _number(begin_values[position]), _number(duration_values[position])
        assert begin is not None
        assert duration is not None
        with localcontext(EXACT):
            ends[position] = round((begin + duration) * 1000)
    # A sum beyond 64 bits begins again from below.
    is_possible &= (ends >= begins.nanoseconds) & (ends < MAX_NANOSECONDS)
    return Times(ends, is_possible, is_whole)


def _read_at_once(values: Sequence[msgspec.Raw]) -> Times | None:
    """Read numbers without sign and exponent at once; None if other numbers are among them.

    Without its point `12.5` is the integer 125; times 10**(3 - 1), for the one decimal that it has,
    that is 12,500 nanoseconds.
    """
    text = b",".join(values)
    if text.translate(None, PLAIN) or not text:
        return None
    characters = np.frombuffer(text, np.uint8)
    ends = np.append(np.flatnonzero(characters == COMMA), len(text))
    begins = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - begins
    if len(ends) != len(values) or not lengths.all():
        return None
    points = np.flatnonzero(characters == POINT)
    with_point = np.searchsorted(ends, points)
    decimals = np.zeros(len(ends), np.int64)
    decimals[with_point] = ends[with_point] - points - 1
    # The digits that the number has in nanoseconds, without its point.
    digits = lengths + 3 - decimals
    digits[with_point] -= 1
    is_too_fine = decimals > 3
    may_be_too_large = (digits == MAX_DIGITS) & (characters[begins] >= NINE)
    if np.any(is_too_fine | may_be_too_large | (digits > MAX_DIGITS)):
        return None
    integers = np.fromstring(text.replace(b".", b""), np.int64, sep=",")
    nanoseconds = integers * POWERS[3 - decimals]
    return Times(nanoseconds, np.abs(nanoseconds) < MAX_NANOSECONDS, np.ones(len(values), bool))


def _read_one_by_one(values: Sequence[msgspec.Raw]) -> Times:
    """Read numbers in any form as decimals, which are exact."""
    nanoseconds = np.zeros(len(values), np.int64)
    is_possible, is_whole = np.zeros(len(values), bool), np.zeros(len(values), bool)
    with localcontext(EXACT):
        for position, value in enumerate(values):
            number = _number(value)
            if number is None or not -MAX_MICROSECONDS < number < MAX_MICROSECONDS:
                continue
            rounded = round(number * 1000)
            nanoseconds[position] = rounded
            is_possible[position] = True
            is_whole[position] = rounded == number * 1000
    return Times(nanoseconds, is_possible, is_whole)


def _number(value: msgspec.Raw) -> Number:
    """Return the number that a JSON value is; None if it is none, or not finite."""
    try:
        number = NUMBER.decode(value)
    except (msgspec.MsgspecError, ValueError):
        return None
    if isinstance(number, Decimal) and not number.is_finite():
        return None
    return number
