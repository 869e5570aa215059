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
from backends.profiling.timeline import KINDS, Spans, Timeline

JOB = "distributedInfo"
"""The key under which PyTorch's profiler says which rank of how many wrote a trace."""
COLLECTIVES = re.compile(
    r"AllReduce|AllGather|ReduceScatter|Broadcast|AllToAll|SendRecv|Reduce|Send|Recv|Generic",
    re.IGNORECASE,
)
"""In NCCL's kernels' names; longer ones first."""
KERNELS = {"kernel", "Kernel", "mtia_ccp_events", "hpu_op"}
ON_CPU = re.compile(r"(?:gloo|mpi|ucc):(\w+)")
KNOWN = {
    "NCCL, RCCL (whose kernels are called `nccl…`, too) and MSCCL": r"nccl|rccl|msccl",
    "those for Gaudi, and for Intel's CPUs and GPUs": r"hccl|oneccl|torch_ccl|ccl(?:::|_)",
    "DeepEP, without what only computes the layout": r"deep_ep(?!\w*(?:::)?\w*layout)",
    "user buffers of Transformer Engine": r"k?userbuffers_",
    "puts and gets between GPUs": r"(?:nv|roc|i)shmem",
    "MoRI": r"Ep(?:Dispatch|Combine)\w*Kernel",
}
"""By library, how the last names of its kernels begin."""
LIBRARIES = re.compile(
    r"(?:void |\w+::|\(anonymous namespace\)::)*(?:_Z\w*?\d)?(?:" + "|".join(KNOWN.values()) + ")",
    re.IGNORECASE,
)
BETWEEN_DEVICES = re.compile(r"Memcpy (?:PtoP|P2P)|CopyPeer|MemcpyPeer")
"""In the names of copies from one device to another: an exchange."""
LIKE_COLLECTIVES = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|a2a|cross_device_reduce|multimem_"
    r"|send_?recv|p2p|peer_",
    re.IGNORECASE,
)
"""In the names of kernels that frameworks write themselves: of vLLM, TensorRT-LLM, PyTorch's
symmetric memory.
"""
COMPUTING = re.compile(
    r"gemm|gemv|bmm|mma|nvjet|conv|grad|prop_|matmul|cutlass|cublas|cudnn|miopen|rocblas|Cijk_|winograd"
    r"|at::|at_cuda_detail|cub::|thrust::|ck::|ck_tile|rocprim|triton|splitK|im2col|nchw|nhwc"
    r"|elementwise|element_wise|reduc|softmax|norm|attention|fmha|embedding|scan|transpose"
    r"|permut|pool|lu_|elu|sigmoid|swiglu|activation|dropout|rotary|quant|softcap|sampl|expert"
    r"|entropy|random|distribution|philox|fft|interpol|optim|tensor|vector|fused|fusion|compar"
    r"|unique|histogram|forward|linear|kv_?cache|cholesky|sparse|mamba|selective|topk|argmax"
    r"|memcpy|memset|encod|decod|multiply|increment|routing|position|compute"
    r"|(?<![a-z])(?:dot|attn|flash|mha|mla|index|gather|scatter|sort|sage|cat|copy|fill|cast|convert"
    r"|moe|loss|adam|sgd|lamb|bias|add|sub|mul|div|sum|mean|square|exp|log|pow|sin|cos|tanh|mask"
    r"|select|where|layer|mlp|tri[lu]|act|rope|scale|batch|lstm|gru|rnn|nms|roi|rms|ln)(?![a-z])",
    re.IGNORECASE,
)
"""In the names of kernels that compute, as frameworks and their libraries call them."""
MUCH = 0.05
"""Of a device's computation: kernels of an unknown name that take as much may be an exchange."""
SHOWN_NAMES = 3
ON_HOST = {"cpu_op", "cuda_runtime", "cuda_driver", "xpu_runtime", "Operator", "Runtime"}
"""The categories of what a rank's own process does, now and in 2021; a trace that one process wrote
has one such.
"""
LAUNCHES = ON_HOST - {"cpu_op", "Operator"}
LABEL = re.compile(r"\[((?:[A-Za-z]+\d+)(?:-[A-Za-z]+\d+)*)\]|\brank[ _:-]*(\d+)\b", re.IGNORECASE)
"""What tools that merge put into the names or ids of processes: `RANK 3 - GPU`, `[TP03] 4711`."""
SEVERAL_RANKS = "several ranks were merged into it: give each rank's own file"
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
    job = trace.properties.get(JOB)
    if not isinstance(job, dict):
        return None, None
    return _count_or_none(job.get("rank")), _count_or_none(job.get("world_size"))


def check_one_rank(trace: Trace) -> None:
    """Raise ValueError, in one line, if the traces of several ranks were merged into one file.

    Process ids and correlation ids are unique within a rank only, so operations could be taken for
    another rank's.
    """
    slices = trace.columns
    on_host = slices.select(slices.has_category(*ON_HOST))
    hosts = {process for process, _ in on_host.threads()}
    has_several_hosts = len(hosts) > 1
    has_several_jobs = JOB in trace.contradicted
    has_host_named_twice = not hosts.isdisjoint(trace.named_twice)
    if has_several_hosts or has_several_jobs or has_host_named_twice or len(_ranks_in(trace)) > 1:
        raise ValueError(SEVERAL_RANKS)
    # Ranks whose processes have equal ids look like one host, but their calls share ids then.
    has_nameless_host = not hosts.issubset(trace.processes)
    if has_nameless_host and _uses_ids_again(slices):
        raise ValueError(SEVERAL_RANKS)


def collectives_of(trace: Trace, kernels: Container[str]) -> tuple[Collective, ...]:
    """Return a trace's collectives in the order of their start.

    They are the kernels on devices that have one of the names `kernels`. If there are none, they
    are those on the CPU: beside kernels, annotations show only the launches.
    """
    slices = trace.columns
    on_devices = slices.select(slices.has_category(*KERNELS) & slices.has_name(kernels))
    if len(on_devices) > 0:
        return tuple(map(_on_device, on_devices))
    return tuple(_on_cpu(slices))


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
    span_fits = _operators_with(spans, kernels)
    kinds = np.where(span_fits & ~spans.of_kind("host"), KINDS.index("exchange"), spans.kinds)
    return replace(timeline, spans=replace(spans, kinds=kinds))


def named_like_collectives(timeline: Timeline) -> Iterator[str]:
    """Yield a note if kernels that count as computing have names like those of collectives."""
    computing = _computing_on_devices(timeline)
    alike = computing.select(_operators_with(computing, LIKE_COLLECTIVES))
    if alike:
        milliseconds = int((alike.ends - alike.starts).sum()) / 1e6
        yield (
            f"{milliseconds:.3g} ms lie in kernels that are named like collectives and count as "
            f"computing ({_shown_names(alike)}): --communication NAME counts them as exchange"
        )


def of_unknown_names(timeline: Timeline) -> Iterator[str]:
    """Yield a note if kernels take much time whose names do not say that they compute."""
    computing = _computing_on_devices(timeline)
    # XLA names its exchanges, and MTIA has words of its own.
    if timeline.host_calls is None or any("mtia" in device for device, _ in computing.queues):
        return
    is_named = _operators_with(computing, COMPUTING) | _operators_with(computing, LIKE_COLLECTIVES)
    lengths = np.where(is_named, 0, computing.ends - computing.starts)
    all_time = int((computing.ends - computing.starts).sum())
    time_of_name = np.bincount(computing.name_of, lengths, len(computing.names))
    takes_much = (time_of_name > 0) & (time_of_name >= MUCH * all_time)
    unknown = computing.select(takes_much[computing.name_of] & ~is_named)
    if unknown:
        milliseconds = int((unknown.ends - unknown.starts).sum()) / 1e6
        yield (
            f"{milliseconds:.3g} ms lie in kernels whose names say neither that they compute nor "
            f"that they communicate ({_shown_names(unknown)}), and count as computing: if they "
            "communicate, --communication NAME counts them as exchange"
        )


def _computing_on_devices(timeline: Timeline) -> Spans:
    """Return the kernels of a timeline that count as computing, without a host's and a CPU's."""
    spans = timeline.columns
    queue_is_on_device = [device not in ("host", "cpu") for device, _ in spans.queues]
    is_on_device = np.array(queue_is_on_device, bool)[spans.queue_of]
    return spans.select(is_on_device & spans.of_kind("compute"))


def _operators_with(spans: Spans, pattern: re.Pattern[str]) -> np.ndarray:
    """Return the mask of the spans whose full names hold a pattern."""
    # By operator first, and from there by span.
    holds = [pattern.search(operator) is not None for operator in spans.operators]
    return np.array(holds, bool)[spans.operator_of]


def _shown_names(spans: Spans) -> str:
    """Write the first names of some spans, in alphabetical order."""
    names = sorted(spans.names[position] for position in np.unique(spans.name_of).tolist())
    return ", ".join(names[:SHOWN_NAMES])


def _on_device(kernel: Slice) -> Collective:
    """Return the collective that a kernel is, from its arguments and its name."""
    args = kernel.args
    kind = args.get("Collective name") or _kind_in(kernel.name)
    ranks = str(args.get("Process Group Ranks", ""))
    group_name = args.get("Process Group Name")
    return Collective(
        kind=str(kind),
        group="" if group_name is None else f"{group_name} {ranks}",
        ranks=_listed(ranks),
        queue=str(args.get("stream", kernel.thread)),
        start=kernel.start,
        end=kernel.end,
        number=_count_or_none(args.get("Seq")),
        element_type=str(args.get("dtype", "")),
        elements=_count_or_none(args.get("In msg nelems")),
    )


def _kind_in(kernel: str) -> str:
    """Return the kind of collective that a kernel's name says; the name itself if it says none."""
    match = COLLECTIVES.search(kernel)
    return kernel if match is None else match[0].lower()


def _on_cpu(slices: Slices) -> Iterator[Collective]:
    """Yield the collectives on the CPU, each an annotation such as `gloo:all_reduce`."""
    for annotation in slices.select(slices.has_category("user_annotation")):
        match = ON_CPU.fullmatch(annotation.name)
        if match is not None:
            yield Collective(match[1], "", None, "", annotation.start, annotation.end)


def _listed(ranks: str) -> tuple[int, ...] | None:
    """Read `[0, 1]`; None for a list that was cut: `[0, 1, ...]`."""
    try:
        listed = json.loads(ranks)
    except ValueError:
        return None
    if not isinstance(listed, list) or not listed or not all(map(_is_count, listed)):
        return None
    return tuple(listed)


def _is_count(value: Any) -> TypeGuard[int]:
    """Return whether a value is an integer from 0 up, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _count_or_none(value: Any) -> int | None:
    """Return a value if it is an integer from 0 up, and None otherwise."""
    return value if _is_count(value) else None


def _ranks_in(trace: Trace) -> set[str]:
    """Return the ranks that the ids and names of processes tell of, as texts."""
    ranks = set()
    for process, _ in trace.columns.threads():
        label = LABEL.search(str(process)) or LABEL.search(trace.processes.get(process, ""))
        if label is not None:
            bracketed, number = label.groups()
            ranks.add(bracketed or number.lstrip("0"))
    return ranks


def _uses_ids_again(slices: Slices) -> bool:
    """Return whether launches share correlation ids, which are unique in a process."""
    launches = slices.select(slices.has_category(*LAUNCHES))
    ids = [link for (link,) in launches.arguments("correlation") if isinstance(link, int | str)]
    return len(set(ids)) < (1 - MAX_REPEATED) * len(ids)
