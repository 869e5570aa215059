"""What the host did in a trace of Kineto's: operators, the CUDA or HIP runtime's calls, and
exchanges over gloo.

Gloo runs an exchange between processes on a separate thread, and PyTorch records it there as
`gloo:all_reduce`: from when that thread takes it up until it is complete, with the wait for the
other processes, as a kernel of NCCL's does. The operator `c10d::allreduce_`, on the thread that
asked for it, only launches it; that is no computation, and no communication. A send or a receive
is recorded on the thread that launched it, until the wait for it is over: what that thread
computes meanwhile is its own work.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from backends.profiling.collectives import ON_CPU
from backends.profiling.slices import Slice, Slices, TraceThread, recoded
from backends.profiling.threads_of_trace import Lanes, outermost, python_queues, thread_of
from backends.profiling.timeline import (
    ROLES,
    HostCalls,
    HostRole,
    Span,
)
from backends.torch.kineto_devices import MARKS, OPERATORS, STEP, capture_times

ROLE_OF: dict[str, HostRole] = {
    # To free memory is documented to wait for the whole device.
    r"\w*Synchronize\w*|(?:cuda|hip|musa)Free|cuMemFree(?:_v2)?|urQueueFinish|urEventWait": "wait",
    r"(?:cuda|hip|cu|musa|mu)Mem(?:cpy|set)\w*": "copy",
}
"""By the call's name; the first that matches counts."""
READS_ITEM = frozenset({"aten::_local_scalar_dense", "aten::item"})
"""Operators that wait for a value: in a trace without the runtime's calls, they are the waits."""

LAUNCH = "c10d::"
COLLECTIVES = (LAUNCH, "_c10d_functional::", "c10d_functional::")
"""Operators that launch an exchange or wait for one."""
WAITING = re.compile(r"^_?c10d_functional::wait_tensor|^c10d::\w*barrier")
"""Operators that wait for an exchange, maybe inside another one."""
KEEPING = "torch::autograd::AccumulateGrad"
VARIANT = re.compile(r"^.*:|_base|_coalesced|_into_tensor|_")
"""The parts of an exchange's name that differ between its launch and its run."""
SCATTER, REDUCE = "reducescatter", "allreduce"
"""Gloo may run a scattered sum as a full one."""
DEVICE = "cpu"


def host_calls(
    slices: Slices, names: Mapping[TraceThread, str], runtime: Collection[str]
) -> HostCalls:
    """Return what the host did: operators, annotations, and calls of `runtime` categories.

    `names` are those of threads, which give their queues the names that spans on them have.
    ProfilerSteps are left out: they say when, and not what.
    """
    is_operator = slices.has_category(OPERATORS)
    is_runtime_call = slices.has_category(*runtime)
    is_annotation = slices.has_category(MARKS)
    is_step = slices.named(lambda name: name.startswith(STEP))
    positions = np.flatnonzero((is_operator | is_runtime_call | is_annotation) & ~is_step)
    # Spans on the host number the threads of operators first, so these come first here too.
    positions_by_thread = np.concatenate((np.flatnonzero(is_operator), positions))
    queues = python_queues(slices.select(positions_by_thread), names)
    calls = slices.select(positions)
    queue_names, queue_of = recoded(calls.rows, calls.row_of, lambda thread: queues[thread][1])
    return HostCalls(
        calls.names,
        queue_names,
        calls.starts,
        calls.ends,
        calls.name_of,
        queue_of,
        _roles(calls, runtime),
        capture_times(slices),
    )


def _roles(calls: Slices, runtime: Collection[str]) -> np.ndarray:
    """Return the role of each call, as a position in ROLES."""
    is_runtime_call, is_mark = calls.has_category(*runtime), calls.has_category(MARKS)
    role_of_name = np.array([ROLES.index(_role(name)) for name in calls.names], np.int8)
    roles = np.full(len(calls), ROLES.index("operator"), np.int8)
    roles[is_runtime_call] = role_of_name[calls.name_of[is_runtime_call]]
    roles[is_mark] = ROLES.index("annotation")
    if not is_runtime_call.any():
        roles[calls.has_name(READS_ITEM) & ~is_mark] = ROLES.index("wait")
    return roles


def _role(name: str) -> HostRole:
    """Return the role of a call of the runtime, by its name."""
    for pattern, role in ROLE_OF.items():
        if re.fullmatch(pattern, name):
            return role
    return "call"


class Exchange(NamedTuple):
    """An exchange, and the operator that launched it, if that was recorded."""

    span: Span
    launch: Slice | None


def exchanges(marks: Iterable[Slice], slices: Iterable[Slice]) -> list[Exchange]:
    """Return the exchanges over gloo, each with the operator that launched it.

    The marks are among the slices; both come in the order of time.
    """
    gloo_marks = [mark for mark in marks if ON_CPU.fullmatch(mark.name)]
    if not gloo_marks:
        return []
    names_run = {_plain(mark.name) for mark in gloo_marks}
    # The operators that launch exchanges, by the name under which gloo runs them.
    launches: dict[str, deque[Slice]] = defaultdict(deque)
    for operator in slices:
        if operator.name.startswith(LAUNCH):
            name = _plain(operator.name)
            if name == SCATTER and SCATTER not in names_run:
                name = REDUCE
            launches[name].append(operator)
    lanes = Lanes()
    gloo_exchanges = []
    for mark in gloo_marks:
        # Gloo takes up the launched exchanges in order. Those launched before the recording began
        # have no launch here, and come first.
        pending_launches = launches[_plain(mark.name)]
        launch = None
        if pending_launches and pending_launches[0].start <= mark.start:
            launch = pending_launches.popleft()
        lane = lanes.take(thread_of(mark), mark.start, mark.end)
        library, _, name = mark.name.partition(":")
        queue = library if lane == 0 else f"{library} {lane + 1}"
        if launch is not None and _plain(launch.name) == SCATTER:
            name = "reduce_scatter"
        launched_at = None if launch is None else launch.start
        span = Span(name, "exchange", DEVICE, queue, mark.start, mark.end, launched_at, mark.name)
        gloo_exchanges.append(Exchange(span, launch))
    return gloo_exchanges


def without_waits(work: Slices, slices: Slices) -> Slices:
    """Return outermost operators without the times in which they waited for an exchange.

    The result of a functional collective waits when it is used: inside the next operator, which
    computes only before and after that wait.
    """
    is_wait = slices.has_category(OPERATORS) & slices.named(WAITING.search)
    if not is_wait.any():
        return work
    waits_of_thread: dict[TraceThread, list[Slice]] = defaultdict(list)
    for wait in outermost(slices.select(is_wait)):
        waits_of_thread[thread_of(wait)].append(wait)
    pieces: list[Slice] = []
    for operator in work:
        pieces += _around(operator, waits_of_thread[thread_of(operator)])
    return Slices.of(sorted(pieces, key=attrgetter("start")))


def _around(operator: Slice, waits: Sequence[Slice]) -> Iterator[Slice]:
    """Yield the pieces of an operator before, between and after the waits of its thread."""
    begin = operator.start
    first = bisect_left(waits, operator.start, key=attrgetter("start"))
    for position in range(first, len(waits)):
        wait = waits[position]
        if wait.start >= operator.end:
            break
        if begin < wait.start:
            yield operator._replace(start=begin, end=wait.start)
        begin = wait.end
    if begin < operator.end:
        yield operator._replace(start=begin)


def without_exchanges(
    work: Sequence[Slice], gloo: Sequence[Exchange], slices: Slices
) -> Sequence[Slice]:
    """Return outermost operators without the times in which they launch or await exchanges.

    An operator that outlasts an exchange that it launched has waited for that exchange, but where
    operators inside it computed meanwhile, and is divided: the wait is cut out. An operator that
    keeps a gradient has done its work when it launches the exchange, however late its thread goes
    on.
    """
    if not gloo:
        return work
    cuts_of_thread: dict[TraceThread, list[_Cut]] = defaultdict(list)
    for exchange in gloo:
        launch, span = exchange.launch, exchange.span
        if launch is not None:
            cut = _Cut(launch.start, span.start, span.end)
            cuts_of_thread[thread_of(launch)].append(cut)
    innermost_of_thread = _innermost(slices.select(slices.on_threads(cuts_of_thread)))
    pieces: list[Slice] = []
    for operator in work:
        if not operator.name.startswith(COLLECTIVES):
            thread = thread_of(operator)
            innermost = innermost_of_thread.get(thread, [])
            pieces += _computing(operator, cuts_of_thread.get(thread, []), innermost)
    return pieces


def _innermost(slices: Slices) -> dict[TraceThread, list[Slice]]:
    """Return by threads the operators that hold no other ones, but for those of exchanges."""
    operators = slices.select(slices.has_category(OPERATORS))
    innermost: dict[TraceThread, list[Slice]] = defaultdict(list)
    for operator in operators:
        of_thread = innermost[thread_of(operator)]
        if of_thread and operator.start < of_thread[-1].end:
            of_thread.pop()
        of_thread.append(operator)
    return {
        thread: [operator for operator in found if not operator.name.startswith(COLLECTIVES)]
        for thread, found in innermost.items()
    }


class _Cut(NamedTuple):
    """The times of an exchange: its launch, its start and its end."""

    launched: int
    start: int
    end: int


def _computing(
    operator: Slice, cuts: Sequence[_Cut], innermost: Sequence[Slice]
) -> Iterator[Slice]:
    """Yield the pieces of an operator in which it computes, between its thread's exchanges.

    `innermost` are the thread's operators that hold no others, and so compute.
    """
    keeps_gradient = operator.name.endswith(KEEPING)
    begin = operator.start
    first = bisect_left(cuts, operator.start, key=attrgetter("launched"))
    for position in range(first, len(cuts)):
        cut = cuts[position]
        if cut.launched >= operator.end:
            break
        if keeps_gradient:
            yield operator._replace(end=cut.launched)
            return
        if cut.end >= operator.end:
            continue
        # The operator waits between what computes meanwhile.
        wait_start = max(cut.start, begin)
        number = bisect_left(innermost, wait_start, key=attrgetter("start"))
        while wait_start < cut.end:
            inner = innermost[number] if number < len(innermost) else operator
            wait_end = inner.start if wait_start <= inner.start < cut.end else cut.end
            if begin < wait_start < wait_end:
                yield operator._replace(start=begin, end=wait_start)
            if wait_start < wait_end:
                begin = wait_end
            wait_start = inner.end if wait_end < cut.end else cut.end
            number += 1
    if begin < operator.end or begin == operator.start:
        yield operator._replace(start=begin)


def without_inner_work(work: Slices, marks: Iterable[Slice], slices: Slices) -> Slices:
    """Return outermost operators without those that an exchange itself runs on its own thread.

    A thread that launches exchanges is the program's.
    """
    is_launch = slices.named(lambda name: name.startswith(LAUNCH))
    of_program = set(slices.select(is_launch).threads())
    exchanges_of_thread: dict[TraceThread, list[Slice]] = defaultdict(list)
    for mark in marks:
        if ON_CPU.fullmatch(mark.name) and thread_of(mark) not in of_program:
            exchanges_of_thread[thread_of(mark)].append(mark)
    positions = np.flatnonzero(work.on_threads(exchanges_of_thread))
    is_inner = np.zeros(len(work), bool)
    for position, operator in zip(positions.tolist(), work.select(positions), strict=True):
        exchanges = exchanges_of_thread[thread_of(operator)]
        before = bisect_right(exchanges, operator.start, key=attrgetter("start"))
        is_inner[position] = before > 0 and operator.end <= exchanges[before - 1].end
    return work.select(~is_inner)


def _plain(name: str) -> str:
    """Return what `c10d::_allgather_base_` and `gloo:all_gather` have in common: `allgather`."""
    return VARIANT.sub("", name)
