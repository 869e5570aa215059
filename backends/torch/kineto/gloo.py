"""Exchanges over gloo, between processes on their CPUs, in a trace of PyTorch's profiler.

Gloo runs an exchange on a separate thread, and PyTorch records it there as `gloo:all_reduce`: from when that thread
takes it up until it is complete, with the wait for the other processes, as a kernel of NCCL's does. The operator
`c10d::allreduce_`, on the thread that asked for it, only launches it; that is no computation, and no communication.
"""

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from backends.profiling.chrome_trace.slices import Slice, TraceThread
from backends.profiling.threads_of_trace import thread_of
from backends.profiling.timeline import Span

MARK = "gloo:"
LAUNCH = "c10d::"
COLLECTIVES = (LAUNCH, "_c10d_functional::", "c10d_functional::")
"""Operators that launch an exchange or wait for one."""
KEEPING = "torch::autograd::AccumulateGrad"
DEVICE = "cpu"


class Exchange(NamedTuple):
    """An exchange, and the operator that launched it, if that was recorded."""

    span: Span
    launch: Slice | None


def exchanges(marks: Iterable[Slice], slices: Iterable[Slice]) -> list[Exchange]:
    """Return the exchanges over gloo. The marks are among the slices; both come in the order of time."""
    gloo = [mark for mark in marks if mark.name.startswith(MARK)]
    if not gloo:
        return []
    launches: dict[str, deque[Slice]] = defaultdict(deque)
    for one in slices:
        if one.name.startswith(LAUNCH):
            launches[_plain(one.name)].append(one)
    lanes: list[tuple[TraceThread, int]] = []
    found = []
    for one in gloo:
        # Gloo takes up in order what was launched; what was launched before the recording stands first.
        waiting = launches[_plain(one.name)]
        launch = waiting.popleft() if waiting and waiting[0].start <= one.start else None
        # What is sent asynchronously may overlap on one thread.
        free = (place for place, (thread, end) in enumerate(lanes) if thread == thread_of(one) and end <= one.start)
        lane = next(free, len(lanes))
        lanes[lane : lane + 1] = [(thread_of(one), one.end)]
        queue = "gloo" if lane == 0 else f"gloo {lane + 1}"
        launched = launch.start if launch else None
        name = one.name.removeprefix(MARK)
        found.append(Exchange(Span(name, "exchange", DEVICE, queue, one.start, one.end, launched, one.name), launch))
    return found


def without_exchanges(work: Sequence[Slice], found: Sequence[Exchange]) -> Sequence[Slice]:
    """Return outermost operators without what only launches exchanges or waits for them.

    An operator that outlasts an exchange that it launched has waited for it, and is divided: the exchange is cut out.
    What keeps a gradient has done its work when it launches the exchange, however late its thread goes on.
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
        for launched, start, end in own[bisect_left(own, (begin,)) :]:
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


def _plain(name: str) -> str:
    """Return what `c10d::allreduce_` and `gloo:all_reduce` have in common."""
    return re.sub(r"^.*:|_", "", name)
