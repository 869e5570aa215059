"""The operators and the CUDA or HIP runtime's calls of a trace, and what they waited for, from Kineto's own records.

Kineto may record synchronisations (category `cuda_sync`, off by default): which stream a call waited for, and which
event a stream was let wait for. They are tied to the runtime's calls by correlation numbers.
"""

import re
from collections.abc import Collection, Mapping

import numpy as np

from backends.profiling.chrome_trace.slices import Slices, TraceThread, recoded
from backends.profiling.threads_of_trace import numbered_queues
from backends.profiling.timeline import HOST_DEVICE, ROLES, HostCalls, HostRole, KnownWait, Queue, QueueWait
from backends.torch.kineto.device_spans import MARKS, OPERATORS, STEP

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


def host_calls(slices: Slices, names: Mapping[TraceThread, str], runtime: Collection[str]) -> HostCalls:
    """Gather what the host did: operators, annotations, and calls of `runtime` categories.

    `names` are those of threads, which give their queues the names that spans on them have. ProfilerSteps are left out:
    they say when, and not what.
    """
    operators, calling = slices.has_category(OPERATORS), slices.has_category(*runtime)
    steps = np.array([name.startswith(STEP) for name in slices.names], bool)
    own = np.flatnonzero((operators | calling | slices.has_category(MARKS)) & ~steps[slices.name_of])
    queues = _queues(slices, np.flatnonzero(operators), own, names)
    calls = slices.select(own)
    used, queue_of = recoded(calls.rows, calls.row_of, queues.__getitem__)
    roles = _roles(calls, runtime)
    known, let_wait = _synchronised(calls, roles, slices.select(slices.has_category(SYNCHRONISATIONS)))
    return HostCalls(calls.names, used, calls.starts, calls.ends, calls.name_of, queue_of, roles, known, let_wait)


def _queues(
    slices: Slices, operators: np.ndarray, own: np.ndarray, names: Mapping[TraceThread, str]
) -> dict[TraceThread, str]:
    # As spans on the host have it: operators' threads first, in the order of their first ones.
    rows = slices.row_of[np.concatenate((operators, own))]
    found, first = np.unique(rows, return_index=True)
    threads = [slices.rows[row] for row in found[np.argsort(first)].tolist()]
    queues = numbered_queues({thread: (HOST_DEVICE, names.get(thread, "Python")) for thread in threads})
    return {thread: queue for thread, (_, queue) in queues.items()}


def _roles(calls: Slices, runtime: Collection[str]) -> np.ndarray:
    waits_known = bool(np.any(calls.has_category(*runtime)))
    kinds, kind_of = np.unique(calls.name_of * len(calls.categories) + calls.category_of, return_inverse=True)
    of_kinds = []
    for kind in kinds.tolist():
        name, category = calls.names[kind // len(calls.categories)], calls.categories[kind % len(calls.categories)]
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
            let_wait.append(QueueWait(int(calls.starts[call]), own, awaited, int(calls.starts[record])))
    return known, tuple(let_wait)


def _queue(device: object, stream: object) -> Queue:
    return f"gpu:{device}", f"stream {stream}"
