"""What the host did in a trace of Kineto's: operators, the CUDA or HIP runtime's calls, and
exchanges over gloo.

Kineto may record synchronisations (category `cuda_sync`, off by default): which stream a call
waited for, and which event a stream was let wait for. They are tied to the runtime's calls by
correlation numbers.

Gloo runs an exchange between processes on a separate thread, and PyTorch records it there as
`gloo:all_reduce`: from when that thread takes it up until it is complete, with the wait for the
other processes, as a kernel of NCCL's does. The operator `c10d::allreduce_`, on the thread that
asked for it, only launches it; that is no computation, and no communication.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from backends.profiling.slices import Slice, Slices, TraceThread, recoded
from backends.profiling.threads_of_trace import outermost, python_queues, thread_of
from backends.profiling.timeline import (
    ROLES,
    HostCalls,
    HostRole,
    KnownWait,
    Queue,
    QueueWait,
    Span,
)
from backends.torch.kineto_devices import MARKS, OPERATORS, STEP

SYNCHRONISATIONS = "cuda_sync"
ROLE_OF: dict[str, HostRole] = {
    r"\w*(?:Stream|Queue)(?:Host)?Synchronize\w*|urQueueFinish": "wait for a queue",
    r"\w*Event(?:Host)?Synchronize\w*|urEventWait": "wait for an event",
    # To free memory is documented to wait for the whole device.
    r"\w*Synchronize\w*|(?:cuda|hip|musa)Free|cuMemFree(?:_v2)?": "wait for a device",
    r"(?:cuda|hip|cu|musa|mu)StreamWaitEvent\w*": "let a queue wait",
    r"(?:cuda|hip|cu|musa|mu)Mem(?:cpy|set)\w*": "copy",
}
"""By the call's name; the first that matches counts."""
RECORD = re.compile(r"(?:cuda|hip|cu|musa|mu)EventRecord\w*")
READS_ITEM = frozenset({"aten::_local_scalar_dense", "aten::item"})
"""Operators that wait for a value: in a trace without the runtime's calls, they are the waits."""

GLOO = "gloo:"
LAUNCH = "c10d::"
COLLECTIVES = (LAUNCH, "_c10d_functional::", "c10d_functional::")
"""Operators that launch an exchange or wait for one."""
WAITING = re.compile(r"^_?c10d_functional::wait_tensor|^c10d::\w*barrier")
"""Operators that wait for an exchange, maybe inside another one."""
KEEPING = "torch::autograd::AccumulateGrad"
VARIANT = re.compile(r"^.*:|_base|_coalesced|_into_tensor|_")
"""What the names of an exchange differ in where it is launched and where it runs."""
SCATTER, REDUCE = "reducescatter", "allreduce"
"""Gloo may run the first as the second."""
DEVICE = "cpu"


def host_calls(
    slices: Slices, names: Mapping[TraceThread, str], runtime: Collection[str]
) -> HostCalls:
    """Gather what the host did: operators, annotations, and calls of `runtime` categories.

    `names` are those of threads, which give their queues the names that spans on them have.
    ProfilerSteps are left out: they say when, and not what.
    """
    operators, calling = slices.has_category(OPERATORS), slices.has_category(*runtime)
    steps = np.array([name.startswith(STEP) for name in slices.names], bool)
    own = np.flatnonzero(
        (operators | calling | slices.has_category(MARKS)) & ~steps[slices.name_of]
    )
    # As spans on the host have it: operators' threads first, in the order of their first ones.
    queues = python_queues(slices.select(np.concatenate((np.flatnonzero(operators), own))), names)
    calls = slices.select(own)
    used, queue_of = recoded(calls.rows, calls.row_of, lambda thread: queues[thread][1])
    roles = _roles(calls, runtime)
    known, let_wait = _synchronised(
        calls, roles, slices.select(slices.has_category(SYNCHRONISATIONS))
    )
    return HostCalls(
        calls.names, used, calls.starts, calls.ends, calls.name_of, queue_of, roles, known, let_wait
    )


def _roles(calls: Slices, runtime: Collection[str]) -> np.ndarray:
    waits_known = bool(np.any(calls.has_category(*runtime)))
    kinds, kind_of = np.unique(
        calls.name_of * len(calls.categories) + calls.category_of, return_inverse=True
    )
    of_kinds = []
    for kind in kinds.tolist():
        name, category = (
            calls.names[kind // len(calls.categories)],
            calls.categories[kind % len(calls.categories)],
        )
        reads = not waits_known and name in READS_ITEM
        role: HostRole = "wait for an event" if reads else "operator"
        if category == MARKS:
            role = "annotation"
        elif category in runtime:
            role = _role(name)
        of_kinds.append(ROLES.index(role))
    return np.array(of_kinds, np.int8)[kind_of]


def _role(name: str) -> HostRole:
    return next((role for pattern, role in ROLE_OF.items() if re.fullmatch(pattern, name)), "call")


def _synchronised(
    calls: Slices, roles: np.ndarray, synchronisations: Slices
) -> tuple[dict[int, KnownWait], tuple[QueueWait, ...]]:
    if not len(synchronisations):
        return {}, ()
    records = np.array([RECORD.fullmatch(name) is not None for name in calls.names], bool)
    tied = np.flatnonzero((roles > ROLES.index("call")) | records[calls.name_of])
    correlations = calls.select(tied).arguments("correlation")
    places: dict[object, int] = {
        correlation: place
        for place, (correlation,) in zip(tied.tolist(), correlations, strict=True)
        if isinstance(correlation, int | str)
    }
    known: dict[int, KnownWait] = {}
    let_wait: list[QueueWait] = []
    for one in synchronisations:
        args = one.args
        call = places.get(args.get("correlation"))
        if call is None:
            continue
        own = _queue(args.get("device"), args.get("stream"))
        awaited = _queue(args.get("device"), args.get("wait_on_stream"))
        record = places.get(args.get("wait_on_cuda_event_record_corr_id"))
        kind = args.get("cuda_sync_kind", one.name)
        if kind == "Context Sync":
            known[call] = KnownWait(own[0])
        elif kind == "Stream Sync":
            known[call] = KnownWait(*own)
        elif kind == "Event Sync" and record is not None:
            known[call] = KnownWait(*awaited, recorded=int(calls.starts[record]))
        elif kind == "Stream Wait Event" and record is not None:
            let_wait.append(
                QueueWait(int(calls.starts[call]), own, awaited, int(calls.starts[record]))
            )
    return known, tuple(let_wait)


def _queue(device: object, stream: object) -> Queue:
    return f"gpu:{device}", f"stream {stream}"


class Exchange(NamedTuple):
    """An exchange, and the operator that launched it, if that was recorded."""

    span: Span
    launch: Slice | None


def exchanges(marks: Iterable[Slice], slices: Iterable[Slice]) -> list[Exchange]:
    """Return the exchanges over gloo. The marks are among the slices; both come in the order of
    time.
    """
    gloo = [mark for mark in marks if mark.name.startswith(GLOO)]
    if not gloo:
        return []
    run = {_plain(mark.name) for mark in gloo}
    launches: dict[str, deque[Slice]] = defaultdict(deque)
    for one in slices:
        if one.name.startswith(LAUNCH):
            launched_as = _plain(one.name)
            runs_as = REDUCE if launched_as == SCATTER and SCATTER not in run else launched_as
            launches[runs_as].append(one)
    lanes = _Lanes()
    found = []
    for one in gloo:
        # Gloo takes up in order what was launched; what was launched before the recording stands
        # first.
        waiting = launches[_plain(one.name)]
        launch = waiting.popleft() if waiting and waiting[0].start <= one.start else None
        lane = lanes.take(thread_of(one), one.start, one.end)
        queue = "gloo" if lane == 0 else f"gloo {lane + 1}"
        launched = launch.start if launch else None
        name = one.name.removeprefix(GLOO)
        if launch and _plain(launch.name) == SCATTER:
            name = "reduce_scatter"
        found.append(
            Exchange(
                Span(name, "exchange", DEVICE, queue, one.start, one.end, launched, one.name),
                launch,
            )
        )
    return found


class _Lanes:
    """Numbers for exchanges that may overlap on a thread, sent asynchronously; each is a
    thread's.
    """

    def __init__(self) -> None:
        self.count = 0
        self.free: dict[TraceThread, list[int]] = defaultdict(list)
        self.taken: dict[TraceThread, list[tuple[int, int]]] = defaultdict(list)
        """By the times of their ends."""

    def take(self, thread: TraceThread, start: int, end: int) -> int:
        """Return a thread's first lane that is free at `start`, or a new one; starts never go
        back.
        """
        free, taken = self.free[thread], self.taken[thread]
        while taken and taken[0][0] <= start:
            _, lane = heappop(taken)
            heappush(free, lane)
        if free:
            lane = heappop(free)
        else:
            lane = self.count
            self.count += 1
        heappush(taken, (end, lane))
        return lane


def without_waits(work: Slices, slices: Slices) -> Slices:
    """Return outermost operators without the time in which an operator inside them waited for an
    exchange.

    What a functional collective returns waits when it is used: inside the next operator, which
    computes only before and after.
    """
    waiting = slices.has_category(OPERATORS) & slices.has_name(
        {name for name in slices.names if WAITING.search(name)}
    )
    if not waiting.any():
        return work
    waits: dict[TraceThread, list[Slice]] = defaultdict(list)
    for wait in outermost(slices.select(waiting)):
        waits[thread_of(wait)].append(wait)
    pieces = [piece for operator in work for piece in _around(operator, waits[thread_of(operator)])]
    return Slices.of(sorted(pieces, key=attrgetter("start")))


def _around(operator: Slice, waits: Sequence[Slice]) -> Iterator[Slice]:
    """Yield what is left of an operator before, between and after the waits of its thread."""
    begin = operator.start
    for place in range(bisect_left(waits, operator.start, key=attrgetter("start")), len(waits)):
        wait = waits[place]
        if wait.start >= operator.end:
            break
        if begin < wait.start:
            yield operator._replace(start=begin, end=wait.start)
        begin = wait.end
    if begin < operator.end:
        yield operator._replace(start=begin)


def without_exchanges(work: Sequence[Slice], found: Sequence[Exchange]) -> Sequence[Slice]:
    """Return outermost operators without what only launches exchanges or waits for them.

    An operator that outlasts an exchange that it launched has waited for it, and is divided: the
    exchange is cut out. What keeps a gradient has done its work when it launches the exchange,
    however late its thread goes on.
    """
    return list(_computing(work, found)) if found else work


def _computing(work: Iterable[Slice], found: Iterable[Exchange]) -> Iterator[Slice]:
    cuts: dict[TraceThread, list[tuple[int, int, int]]] = defaultdict(list)
    for span, launch in found:
        if launch is not None:
            cuts[thread_of(launch)].append((launch.start, span.start, span.end))
    for one in work:
        if one.name.startswith(COLLECTIVES):
            continue
        own = cuts.get(thread_of(one), [])
        begin = one.start
        for place in range(bisect_left(own, (begin,)), len(own)):
            launched, start, end = own[place]
            if launched >= one.end:
                break
            if one.name.endswith(KEEPING):
                yield one._replace(end=launched)
                begin = one.end
                break
            if begin <= start and end < one.end:
                yield one._replace(start=begin, end=start)
                begin = end
        if begin < one.end or begin == one.start:
            yield one._replace(start=begin)


def without_inner_work(work: Slices, marks: Iterable[Slice]) -> Slices:
    """Return outermost operators without those that an exchange itself runs on its thread."""
    exchanging: dict[TraceThread, list[Slice]] = defaultdict(list)
    for mark in marks:
        if mark.name.startswith(GLOO):
            exchanging[thread_of(mark)].append(mark)
    on_threads = np.flatnonzero(work.on_threads(exchanging))
    inner = np.zeros(len(work), bool)
    for place, operator in zip(on_threads.tolist(), work.select(on_threads), strict=True):
        exchange = _last_before(exchanging[thread_of(operator)], operator.start)
        inner[place] = exchange is not None and operator.end <= exchange.end
    return work.select(~inner)


def _last_before(slices: Sequence[Slice], time: int) -> Slice | None:
    place = bisect_right(slices, time, key=attrgetter("start"))
    return slices[place - 1] if place else None


def _plain(name: str) -> str:
    """Return what `c10d::_allgather_base_` and `gloo:all_gather` have in common."""
    return VARIANT.sub("", name)
