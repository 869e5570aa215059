"""What one rank of several communicated, and with whom.

PyTorch's profiler writes the group, the kind and, lately, a running number into the arguments of
NCCL's kernels (`Collective name`, `Process Group Name`, `Process Group Ranks`, `Seq`); before 2024
the kernel's name is all there is. On a CPU, Gloo's work stands under an annotation on a separate
thread.
"""

import json
import re
from collections.abc import Container, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from backends.profiling.slices import Slice, Slices, Trace
from backends.profiling.timeline import KINDS, Timeline

JOB = "distributedInfo"
"""The key under which PyTorch's profiler says which rank of how many wrote a trace."""
COLLECTIVES = re.compile(
    r"AllReduce|AllGather|ReduceScatter|Broadcast|AllToAll|SendRecv|Reduce|Send|Recv|Generic",
    re.IGNORECASE,
)
"""In NCCL's kernels' names; longer ones first."""
KERNELS = {"kernel", "Kernel", "mtia_ccp_events", "hpu_op"}
ON_CPU = re.compile(r"(?:gloo|mpi|ucc):(\w+)")
LIBRARIES = re.compile(
    r"(?:void |\w+::|\(anonymous namespace\)::)*(?:_Z\w*?\d)?(?:nccl|rccl|msccl|hccl|oneccl)",
    re.IGNORECASE,
)
"""NCCL, RCCL (whose kernels are called `nccl…`, too), MSCCL, and those for Gaudi and for Intel's
GPUs.
"""
LIKE_COLLECTIVES = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce|multimem_",
    re.IGNORECASE,
)
"""In the names of kernels that frameworks write themselves: of vLLM, TensorRT-LLM, PyTorch's
symmetric memory.
"""
SHOWN_NAMES = 3
ON_HOST = {"cpu_op", "cuda_runtime", "cuda_driver", "xpu_runtime", "Operator", "Runtime"}
"""The categories of what a rank's own process does, now and in 2021; a trace that one process wrote
has one such.
"""
LAUNCHES = ON_HOST - {"cpu_op", "Operator"}
LABEL = re.compile(r"\[((?:[A-Za-z]+\d+)(?:-[A-Za-z]+\d+)*)\]|\brank[ _:-]*(\d+)\b", re.IGNORECASE)
"""What tools that merge put into the names or ids of processes: `RANK 3 - GPU`, `[TP03] 4711`."""
MAX_REPEATED = 0.05
"""A process uses no correlation id twice; a larger share of repeated ones is more than damage to a
file.
"""


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
    element_type: str = ""
    """What the trace calls the type of what the rank gives; "" if it does not say."""
    elements: int | None = None
    """How many elements the rank gives; None if the trace does not say."""


def job_of(trace: Trace) -> tuple[int | None, int | None]:
    """Return which rank of how many a trace says it is from; None for what it does not say."""
    said = trace.properties.get(JOB)
    rank, size = (
        said.get(name) if isinstance(said, dict) else None for name in ("rank", "world_size")
    )
    return rank if _is_count(rank) else None, size if _is_count(size) else None


def check_one_rank(trace: Trace) -> None:
    """Raise ValueError, in one line, if the traces of several ranks were merged into one file.

    Process ids and correlation ids are unique within a rank only, so operations could be taken for
    another rank's.
    """
    slices = trace.columns
    processes = {process for process, _ in slices.threads()}
    hosts = {process for process, _ in slices.select(slices.has_category(*ON_HOST)).threads()}
    written = (
        LABEL.search(str(one)) or LABEL.search(trace.processes.get(one, "")) for one in processes
    )
    labels = {(found[1] or found[2].lstrip("0")) for found in written if found}
    if (
        max(len(labels), len(hosts)) > 1
        or JOB in trace.contradicted
        or hosts & trace.named_twice
        or (hosts - trace.processes.keys() and _uses_ids_again(slices))
    ):
        raise ValueError("several ranks were merged into it: give each rank's own file")


def collectives_of(trace: Trace, kernels: Container[str]) -> tuple[Collective, ...]:
    """Return a trace's collectives in the order of their start: the `kernels` of these names.

    Only if there are none, those on the CPU: beside kernels, annotations show only the launches.
    """
    slices = trace.columns
    on_devices = slices.select(slices.has_category(*KERNELS) & slices.has_name(kernels))
    return tuple(map(_on_device, on_devices)) or tuple(_on_cpu(slices))


def is_communication(kernel: str) -> bool:
    """Return whether a kernel, by its full name, is one of a communication library; arguments do
    not make it one.
    """
    return LIBRARIES.match(kernel) is not None


def with_communication(timeline: Timeline, kernels: re.Pattern[str]) -> Timeline:
    """Return a timeline in which also those operations on a device communicate whose full name
    holds `kernels`.

    For libraries that `is_communication` does not know, such as DeepEP, NVSHMEM or a framework's
    own `multimem_`.
    """
    spans = timeline.columns
    named = np.array([kernels.search(operator) is not None for operator in spans.operators], bool)[
        spans.operator_of
    ]
    communicates = named & (spans.kinds != KINDS.index("host"))
    return replace(
        timeline,
        spans=replace(spans, kinds=np.where(communicates, KINDS.index("exchange"), spans.kinds)),
    )


def named_like_collectives(timeline: Timeline) -> Iterator[str]:
    """Yield a note if kernels that count as computing have names like those of collectives."""
    spans = timeline.columns
    # By operator and by queue first, and from there by span.
    alike = [LIKE_COLLECTIVES.search(operator) is not None for operator in spans.operators]
    on_devices = [device not in ("host", "cpu") for device, _ in spans.queues]
    is_alike = np.array(alike, bool)[spans.operator_of]
    is_on_device = np.array(on_devices, bool)[spans.queue_of]
    is_computing = spans.kinds == KINDS.index("compute")
    found = np.flatnonzero(is_alike & is_computing & is_on_device)
    if not len(found):
        return
    milliseconds = int((spans.ends - spans.starts)[found].sum()) / 1e6
    numbers_of_names = np.unique(spans.name_of[found])
    names = sorted(spans.names[number] for number in numbers_of_names.tolist())
    yield (
        f"{milliseconds:.3g} ms lie in kernels that are named like collectives and count as "
        f"computing ({', '.join(names[:SHOWN_NAMES])}): --communication NAME counts them as "
        "exchange"
    )


def _on_device(one: Slice) -> Collective:
    args = one.args
    known = COLLECTIVES.search(one.name)
    kind = str(args.get("Collective name") or (known[0].lower() if known else one.name))
    name, ranks = args.get("Process Group Name"), str(args.get("Process Group Ranks", ""))
    group = "" if name is None else f"{name} {ranks}"
    number, elements = args.get("Seq"), args.get("In msg nelems")
    return Collective(
        kind,
        group,
        _listed(ranks),
        queue=str(args.get("stream", one.thread)),
        start=one.start,
        end=one.end,
        number=number if _is_count(number) else None,
        element_type=str(args.get("dtype", "")),
        elements=elements if _is_count(elements) else None,
    )


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
    return (
        tuple(listed)
        if isinstance(listed, list) and listed and all(map(_is_count, listed))
        else None
    )


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _uses_ids_again(slices: Slices) -> bool:
    """Return whether launches share correlation ids, which are unique in a process."""
    given = slices.select(slices.has_category(*LAUNCHES)).arguments("correlation")
    links = [link for (link,) in given if isinstance(link, int | str)]
    return len(set(links)) < (1 - MAX_REPEATED) * len(links)
