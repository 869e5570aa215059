"""What a profiler recorded: spans on queues, one at a time or a million of them as columns.

A column is an array with an entry for each span. Names and queues are few, so each is kept once and a column holds its
place. Whoever needs some spans takes them from the sequence; whoever needs all of them takes the columns.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, final, overload

import numpy as np

from backends.profiling.chrome_trace.columns import coded

__all__ = ["KINDS", "UNKNOWN", "Queue", "Span", "SpanKind", "Spans"]

SpanKind: TypeAlias = Literal["compute", "copy", "exchange", "host"]
"""What a span does: compute, copy from one device to another, sum over devices, or launch and wait in Python."""
KINDS: tuple[SpanKind, ...] = ("compute", "copy", "exchange", "host")
"""In columns a kind is its place here."""
Queue: TypeAlias = tuple[str, str]
"""A device, and the name of one of its queues."""
UNKNOWN = -(2**63)
"""In columns, when a span was launched if the profiler does not record it."""


class Span(NamedTuple):
    """One operation, from start to end, on one queue; spans of one device and queue never overlap.

    Times are whole nanoseconds from the timeline's beginning. `launched` is when the call that asked for the operation
    began, if the profiler records it; `operator` is the framework's own name, `name` the one that readers know.
    """

    name: str
    kind: SpanKind
    device: str
    queue: str
    start: int
    end: int
    launched: int | None = None
    operator: str = ""


@final
@dataclass(frozen=True, eq=False)
class Spans(Sequence[Span]):
    """Spans in the order of their start: a sequence of `Span`, made when asked for, and the columns they come from."""

    names: tuple[str, ...]
    operators: tuple[str, ...]
    queues: tuple[Queue, ...]
    name_of: np.ndarray
    """Places in `names`; `operator_of` and `queue_of` likewise."""
    operator_of: np.ndarray
    queue_of: np.ndarray
    kinds: np.ndarray
    """Places in KINDS."""
    starts: np.ndarray
    """Nanoseconds, int64; `ends` and `launched` likewise."""
    ends: np.ndarray
    launched: np.ndarray
    """UNKNOWN if the profiler does not record it."""

    @classmethod
    def of(cls, spans: Iterable[Span]) -> "Spans":
        """Put spans into columns, in the order in which they come."""
        if isinstance(spans, Spans):
            return spans
        listed = list(spans)
        names, name_of = coded(span.name for span in listed)
        operators, operator_of = coded(span.operator for span in listed)
        queues, queue_of = coded((span.device, span.queue) for span in listed)
        kinds = np.array([KINDS.index(span.kind) for span in listed], np.int8)
        starts, ends = (np.array([span[place] for span in listed], np.int64) for place in (4, 5))
        launched = np.array([UNKNOWN if span.launched is None else span.launched for span in listed], np.int64)
        return cls(names, operators, queues, name_of, operator_of, queue_of, kinds, starts, ends, launched)

    @classmethod
    def joined(cls, parts: Iterable["Spans"]) -> "Spans":
        """Put all spans of some columns into one, in the order of their start."""
        some = [part for part in parts if len(part)]
        if not some:
            return cls.of(())
        names, name_of = _joined([(part.names, part.name_of) for part in some])
        operators, operator_of = _joined([(part.operators, part.operator_of) for part in some])
        queues, queue_of = _joined([(part.queues, part.queue_of) for part in some])
        kinds = np.concatenate([part.kinds for part in some])
        starts = np.concatenate([part.starts for part in some])
        ends = np.concatenate([part.ends for part in some])
        launched = np.concatenate([part.launched for part in some])
        whole = cls(names, operators, queues, name_of, operator_of, queue_of, kinds, starts, ends, launched)
        in_order = len(starts) < 2 or bool(np.all(starts[1:] >= starts[:-1]))
        return whole if in_order else whole.select(np.argsort(starts, kind="stable"))

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> "Spans": ...
    def __getitem__(self, index: int | slice) -> "Span | Spans":
        if isinstance(index, slice):
            return self.select(index)
        launched = int(self.launched[index])
        device, queue = self.queues[self.queue_of[index]]
        return Span(
            self.names[self.name_of[index]],
            KINDS[self.kinds[index]],
            device,
            queue,
            int(self.starts[index]),
            int(self.ends[index]),
            None if launched == UNKNOWN else launched,
            self.operators[self.operator_of[index]],
        )

    def __iter__(self) -> Iterator[Span]:
        columns = (self.name_of, self.kinds, self.queue_of, self.starts, self.ends, self.launched, self.operator_of)
        for name, kind, place, start, end, launched, operator in zip(*(one.tolist() for one in columns), strict=True):
            device, queue = self.queues[place]
            link = None if launched == UNKNOWN else launched
            yield Span(self.names[name], KINDS[kind], device, queue, start, end, link, self.operators[operator])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def select(self, where: "np.ndarray | slice") -> "Spans":
        """Return the spans that a mask selects, or those at some places."""
        return Spans(
            self.names,
            self.operators,
            self.queues,
            self.name_of[where],
            self.operator_of[where],
            self.queue_of[where],
            self.kinds[where],
            self.starts[where],
            self.ends[where],
            self.launched[where],
        )

    def moved(self, by: int) -> "Spans":
        """Return the same spans so many nanoseconds later."""
        launched = np.where(self.launched == UNKNOWN, UNKNOWN, self.launched + by)
        return Spans(
            self.names,
            self.operators,
            self.queues,
            self.name_of,
            self.operator_of,
            self.queue_of,
            self.kinds,
            self.starts + by,
            self.ends + by,
            launched,
        )


def _joined(columns: "Sequence[tuple[tuple, np.ndarray]]") -> "tuple[tuple, np.ndarray]":
    values, places = coded([value for known, _ in columns for value in known])
    codes, first = [], 0
    for known, column in columns:
        codes.append(places[first : first + len(known)][column])
        first += len(known)
    return values, np.concatenate(codes)
