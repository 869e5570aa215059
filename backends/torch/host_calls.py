"""The operators and the CUDA or HIP runtime's calls of a trace, and what they waited for, from Kineto's own records.

Kineto may record synchronisations (category `cuda_sync`, off by default): which stream a call waited for, and which
event a stream was let wait for. They are tied to the runtime's calls by correlation numbers.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from backends.profiling.chrome_trace.slices import Slice
from backends.profiling.host_calls import ROLES, HostCalls, HostRole, KnownWait, QueueWait
from backends.profiling.threads_of_trace import Queue, TraceThread, thread_of

__all__ = ["SYNCHRONISATIONS", "host_calls"]

SYNCHRONISATIONS = "cuda_sync"
QueueOf: TypeAlias = Callable[[Any, Any], Queue]
"""Takes the numbers of a device and of a stream."""

WAIT = re.compile(r"(?:cuda|hip|cu|mu|musa)\w*(Device|Ctx|Context|Stream|Event)Synchronize\w*")
WAITS_FOR: dict[str, HostRole] = {"Stream": "wait for a queue", "Event": "wait for an event"}
FREE = re.compile(r"(?:cuda|hip)Free|cuMemFree(?:_v2)?")
"""Documented to wait for the whole device."""
COPY = re.compile(r"(?:cuda|hip|cu|mu|musa)Mem(?:cpy|set)\w*")
LET_WAIT = re.compile(r"(?:cuda|hip|cu|mu|musa)StreamWaitEvent\w*")
RECORD = re.compile(r"(?:cuda|hip|cu|mu|musa)EventRecord\w*")
READS_ITEM = {"aten::_local_scalar_dense", "aten::item"}
"""Operators that wait for a value: in a trace without the runtime's calls, they are the waits."""


def host_calls(
    slices: Sequence[Slice],
    runtime: set[str],
    annotations: str,
    synchronisations: Iterable[Slice],
    queues: Mapping[TraceThread, str],
    queue_of: QueueOf,
) -> HostCalls:
    """Gather the host's slices, in the order of their start: operators, annotations, and calls of `runtime` categories.

    `queues` names the queue of each thread, `queue_of` that of a device's number and a stream's. ProfilerSteps are left
    out: they say when, and not what.
    """
    waits_known = any(one.category in runtime for one in slices)

    @cache
    def role(name: str, category: str) -> HostRole:
        if category == annotations:
            return "annotation"
        if category in runtime:
            return _role(name)
        return "wait for an event" if not waits_known and name in READS_ITEM else "operator"

    names: dict[str, int] = {}
    threads: dict[str, int] = {}
    number = {one: place for place, one in enumerate(ROLES)}
    count = len(slices)
    starts = np.fromiter((one.start for one in slices), np.int64, count)
    ends = np.fromiter((one.end for one in slices), np.int64, count)
    name_of = np.fromiter((names.setdefault(one.name, len(names)) for one in slices), np.int32, count)
    thread_names = (queues[thread_of(one)] for one in slices)
    thread_places = np.fromiter((threads.setdefault(name, len(threads)) for name in thread_names), np.int32, count)
    roles = np.fromiter((number[role(one.name, one.category)] for one in slices), np.int8, count)
    known, let_wait = _synchronised(slices, runtime, tuple(synchronisations), queue_of)
    return HostCalls(tuple(names), tuple(threads), starts, ends, name_of, thread_places, roles, known, let_wait)


def _synchronised(
    slices: Sequence[Slice], runtime: set[str], synchronisations: Sequence[Slice], queue_of: QueueOf
) -> tuple[dict[int, KnownWait], tuple[QueueWait, ...]]:
    if not synchronisations:
        return {}, ()
    places = {
        one.args.get("correlation"): place
        for place, one in enumerate(slices)
        if one.category in runtime and (_role(one.name) != "call" or RECORD.fullmatch(one.name))
    }
    known: dict[int, KnownWait] = {}
    let_wait: list[QueueWait] = []
    for one in synchronisations:
        args = one.args
        call = places.get(args.get("correlation"))
        if call is None:
            continue
        own = queue_of(args.get("device"), args.get("stream"))
        awaited = queue_of(args.get("device"), args.get("wait_on_stream"))
        record = places.get(args.get("wait_on_cuda_event_record_corr_id"))
        kind = args.get("cuda_sync_kind", one.name)
        if kind in ("Context Sync", "Device Sync"):
            known[call] = KnownWait(own[0])
        elif kind == "Stream Sync":
            known[call] = KnownWait(*own)
        elif kind == "Event Sync" and record is not None:
            known[call] = KnownWait(*awaited, recorded=slices[record].start)
        elif kind == "Stream Wait Event" and record is not None:
            let_wait.append(QueueWait(slices[call].start, own, awaited, slices[record].start))
    return known, tuple(let_wait)


def _role(name: str) -> HostRole:
    if found := WAIT.fullmatch(name):
        return WAITS_FOR.get(found[1], "wait for a device")
    if FREE.fullmatch(name):
        return "wait for a device"
    if LET_WAIT.fullmatch(name):
        return "let a queue wait"
    return "copy" if COPY.fullmatch(name) else "call"
