"""What a profiler recorded, in the same terms for every framework: spans on queues, and when they
were launched.

A million spans are kept as columns, arrays with an entry for each. Names and queues are few, so
each is kept once and a column holds its position. Whoever needs a few spans takes them from the
sequence; whoever needs all takes the columns.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, final, get_args

import numpy as np

from backends.profiling.doubts import Doubt
from backends.profiling.slices import Columns, Places, Value, coded

HOST_DEVICE = "host"
"""The device of spans that run on none: launching, waiting."""
QUEUES = ("python", "waits", "calling", "compute", "copy")
"""The first words of queues' names, in the order in which they are listed; other queues come after
them.
"""
SpanKind = Literal["compute", "copy", "exchange", "host"]
"""What a span does: compute, copy from one device to another, sum over devices, or launch and wait
in Python.
"""
KINDS: tuple[SpanKind, ...] = get_args(SpanKind)
"""In columns a kind is its position here."""
Queue = tuple[str, str]
"""A device, and the name of one of its queues."""
UNKNOWN = -(2**63)
"""In columns, when a span was launched if the profiler does not record it."""


HostRole = Literal[
    "operator",
    "annotation",
    "call",
    "copy",
    "wait",
]
"""An operator, an annotation of the program's own, or a call of the runtime by what it does: a wait
blocks the host, a copy may, and to let a queue wait for an event does not.
"""
ROLES: tuple[HostRole, ...] = get_args(HostRole)


class Span(NamedTuple):
    """One operation, from start to end, on one queue; spans of one device and queue never overlap.

    Times are whole nanoseconds from the timeline's beginning. `launched` is when the call that
    asked for the operation began, if the profiler records it; `operator` is the framework's own
    name, `name` the one that readers know.
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
class Spans(Columns[Span]):
    """Spans in the order of their start: a sequence of `Span`, made when asked for, and the columns
    they come from.
    """

    names: tuple[str, ...]
    operators: tuple[str, ...]
    queues: tuple[Queue, ...]
    name_of: np.ndarray
    """Positions in `names`; `operator_of` and `queue_of` likewise."""
    operator_of: np.ndarray
    queue_of: np.ndarray
    kinds: np.ndarray
    """Positions in KINDS."""
    starts: np.ndarray
    """Nanoseconds, int64; `ends` and `launched` likewise."""
    ends: np.ndarray
    launched: np.ndarray
    """UNKNOWN if the profiler does not record it."""

    COLUMNS = ("name_of", "operator_of", "queue_of", "kinds", "starts", "ends", "launched")

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
        starts = np.array([span.start for span in listed], np.int64)
        ends = np.array([span.end for span in listed], np.int64)
        launched = [UNKNOWN if span.launched is None else span.launched for span in listed]
        return cls(
            names,
            operators,
            queues,
            name_of,
            operator_of,
            queue_of,
            kinds,
            starts,
            ends,
            np.array(launched, np.int64),
        )

    @classmethod
    def joined(cls, parts: Iterable["Spans"]) -> "Spans":
        """Put the spans of all parts into one, in the order of their start."""
        filled = [part for part in parts if len(part)] or [cls.of(())]
        names, name_of = _joined([(part.names, part.name_of) for part in filled])
        operators, operator_of = _joined([(part.operators, part.operator_of) for part in filled])
        queues, queue_of = _joined([(part.queues, part.queue_of) for part in filled])
        spans = cls(
            names,
            operators,
            queues,
            name_of,
            operator_of,
            queue_of,
            np.concatenate([part.kinds for part in filled]),
            np.concatenate([part.starts for part in filled]),
            np.concatenate([part.ends for part in filled]),
            np.concatenate([part.launched for part in filled]),
        )
        if np.all(spans.starts[1:] >= spans.starts[:-1]):
            return spans
        return spans.select(np.argsort(spans.starts, kind="stable"))

    def __iter__(self) -> Iterator[Span]:
        columns = (getattr(self, column).tolist() for column in self.COLUMNS)
        for name, operator, queue, kind, start, end, launched in zip(*columns, strict=True):
            device, queue_name = self.queues[queue]
            yield Span(
                self.names[name],
                KINDS[kind],
                device,
                queue_name,
                start,
                end,
                None if launched == UNKNOWN else launched,
                self.operators[operator],
            )

    @property
    def since(self) -> np.ndarray:
        """When each was launched, or began if the profiler does not record it."""
        return np.where(self.launched == UNKNOWN, self.starts, self.launched)

    def of_kind(self, *kinds: SpanKind) -> np.ndarray:
        """Return the mask of the spans of some kinds."""
        return np.isin(self.kinds, [KINDS.index(kind) for kind in kinds])

    def intervals(self, where: "np.ndarray | slice" = slice(None)) -> np.ndarray:
        """Return the starts and ends of the spans that a mask selects, or at some positions, or of
        all, (n, 2).
        """
        return np.stack((self.starts[where], self.ends[where]), axis=1)

    def moved(self, nanoseconds: int) -> "Spans":
        """Return the same spans at times later by a number of nanoseconds."""
        launched = np.where(self.launched == UNKNOWN, UNKNOWN, self.launched + nanoseconds)
        starts, ends = self.starts + nanoseconds, self.ends + nanoseconds
        return replace(self, starts=starts, ends=ends, launched=launched)


def _joined(
    columns: Sequence["tuple[tuple[Value, ...], np.ndarray]"],
) -> "tuple[tuple[Value, ...], np.ndarray]":
    """Put several coded columns one after the other: each is its distinct values, and its codes.

    A value that several columns have is one value of the result.
    """
    code_of: Places[Value] = Places()
    joined_codes = []
    for values, codes in columns:
        new_codes = np.array([code_of[value] for value in values], np.int32)
        joined_codes.append(new_codes[codes])
    return tuple(code_of), np.concatenate(joined_codes)


@dataclass(frozen=True, eq=False)
class HostCalls:
    """What the host did while devices worked: operators, annotations and the runtime's calls,
    nested, thread by thread.

    A timeline's spans hold the outermost of them; this holds all in the order of their start, as
    arrays with an entry for each. Times are as in the timeline.
    """

    names: tuple[str, ...]
    queues: tuple[str, ...]
    """The host's threads, by the names of their queues in the timeline."""
    starts: np.ndarray
    ends: np.ndarray
    name_of: np.ndarray
    """Positions in `names`; `queue_of` likewise."""
    queue_of: np.ndarray
    roles: np.ndarray
    """Positions in ROLES."""
    captures: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """When graphs were captured, (n, 2): what is launched then does not run."""

    def with_role(self, *roles: HostRole) -> np.ndarray:
        """Return the positions of the calls that have one of some roles."""
        return np.flatnonzero(np.isin(self.roles, [ROLES.index(role) for role in roles]))

    def intervals(self, where: "np.ndarray | slice" = slice(None)) -> np.ndarray:
        """Return the starts and ends of the calls at some positions, or of all, (n, 2)."""
        return np.stack((self.starts[where], self.ends[where]), axis=1)


class Window(NamedTuple):
    """The time from `start` to `end`, in nanoseconds from the timeline's beginning, in which a case
    was repeated.
    """

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Timeline:
    """Spans in the order of their start, and the cases whose repetitions they belong to, in the
    order of time.
    """

    source: str
    """The framework, its version and engine; the profiler's name if another program wrote the
    file.
    """
    spans: Sequence[Span] = field(repr=False)
    """Those of a file are `Spans`; `columns` has them as such in any case."""
    cases: tuple[Window, ...] = ()
    notes: tuple[Doubt, ...] = ()
    """What a reader must know: events that could not be used, links that the profiler does not
    give.
    """
    unlinked: int = 0
    """The number of operations on devices that were launched, but by a call that is not known."""
    timed: Mapping[str, float] = field(default_factory=dict)
    """How many seconds each case takes without a profiler, if that is known."""
    experiment: str = ""
    """The name of the experiment whose cases these are, if it is one."""
    annotations: tuple[Window, ...] = field(default=(), repr=False)
    """What a program says of itself in its profile: steps, phases; they may lie in each other."""
    host_calls: HostCalls | None = field(default=None, repr=False, compare=False)
    """All that the host did, call within call, if other programs' profiles have it, with links to
    operations.
    """
    begin: int = 0
    """When it begins, in nanoseconds; if it was cut, operations were also launched before."""
    models: tuple[str, ...] = ()
    """What the devices are: `gpu:0 is NVIDIA H200`."""

    @cached_property
    def columns(self) -> Spans:
        """The spans as columns: for what is asked of all of them."""
        return Spans.of(self.spans)


def in_seconds(nanoseconds: int) -> float:
    """Return a time in seconds: where figures leave the analysis, and nowhere before."""
    # Of two integers the quotient is rounded once; NumPy's integers would become floats first.
    return int(nanoseconds) / 1_000_000_000


def queue_order(device: str, queue: str) -> tuple[object, ...]:
    """Return the key by which queues are sorted: the host's first, cpu:2 before cpu:10, computation
    before copies.
    """
    first_word = queue.lower().split(" ")[0]
    rank = QUEUES.index(first_word) if first_word in QUEUES else len(QUEUES)
    return device != HOST_DEVICE, len(device), device, rank, len(queue), queue
