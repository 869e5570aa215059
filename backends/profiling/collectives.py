"""The collectives of one rank's trace: which kind, in which process group, from when to when.

PyTorch's profiler writes the group, the kind and, lately, a running number into the arguments of NCCL's kernels
(`Collective name`, `Process Group Name`, `Process Group Ranks`, `Seq`); before 2024 the kernel's name is all there is.
On a CPU, Gloo's work stands under an annotation on a thread of its own.
"""

import json
import re
from collections.abc import Container, Iterator
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from backends.profiling.chrome_trace.slices import Slice, Slices, Trace
from backends.profiling.merged_ranks import JOB

__all__ = ["Collective", "Job", "collectives_of", "job_of"]

KINDS = re.compile(
    r"AllReduce|AllGather|ReduceScatter|Broadcast|AllToAll|SendRecv|Reduce|Send|Recv|Generic", re.IGNORECASE
)
"""In NCCL's kernels' names; longer ones first."""
KERNELS = {"kernel", "Kernel", "mtia_ccp_events", "hpu_op"}
ON_CPU = re.compile(r"(?:gloo|mpi|ucc):(\w+)")


class Job(NamedTuple):
    """Which rank of how many a trace is from; None where the trace does not say."""

    rank: int | None
    world_size: int | None


class Collective(NamedTuple):
    """One rank's part in a collective. Times are in nanoseconds from the trace's earliest event."""

    kind: str
    group: str
    """What all of the process group's ranks call it; "" if the trace does not say."""
    ranks: tuple[int, ...] | None
    """The group's ranks; None if the trace does not list them all."""
    queue: str
    start: int
    end: int
    number: int | None = None
    """The collective's number in its group."""


def job_of(trace: Trace) -> Job:
    """Return which rank of how many a trace says it is from."""
    said = trace.properties.get(JOB)
    rank, size = (said.get(name) if isinstance(said, dict) else None for name in ("rank", "world_size"))
    return Job(rank if _is_count(rank) else None, size if _is_count(size) else None)


def collectives_of(trace: Trace, kernels: Container[str]) -> tuple[Collective, ...]:
    """Return a trace's collectives in the order of their start: the `kernels` of these names.

    Only if there are none, those on the CPU: beside kernels, annotations show the launches alone.
    """
    slices = trace.columns
    wanted = np.array([name in kernels for name in slices.names], bool)
    on_devices = slices.select(slices.has_category(*KERNELS) & wanted[slices.name_of])
    return tuple(map(_on_device, on_devices)) or tuple(_on_cpu(slices))


def _on_device(one: Slice) -> Collective:
    args = one.args
    known = KINDS.search(one.name)
    kind = str(args.get("Collective name") or (known[0].lower() if known else one.name))
    name, ranks = args.get("Process Group Name"), str(args.get("Process Group Ranks", ""))
    group = "" if name is None else f"{name} {ranks}"
    number = args.get("Seq")
    queue = str(args.get("stream", one.thread))
    listed = _listed(ranks)
    return Collective(kind, group, listed, queue, one.start, one.end, number if _is_count(number) else None)


def _on_cpu(slices: Slices) -> Iterator[Collective]:
    for one in slices.select(slices.has_category("user_annotation")):
        if match := ON_CPU.fullmatch(one.name):
            yield Collective(match[1], "", None, "", one.start, one.end)


def _listed(ranks: str) -> tuple[int, ...] | None:
    """Read `[0, 1]`; None for a list that was cut: `[0, 1, ...]`."""
    try:
        listed = json.loads(ranks)
    except ValueError:
        return None
    return tuple(listed) if isinstance(listed, list) and listed and all(map(_is_count, listed)) else None


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
