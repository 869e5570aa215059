"""Collectives of a trace, which kernels communicate, and files into which several ranks were
merged: refused.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from backends.profiling import HOST_DEVICE, Span, Timeline, collectives
from backends.profiling.collectives import Collective, check_one_rank, collectives_of
from backends.profiling.slices import Slice, Trace
from tests.backends.profiling.events import Event, Read, complete

# As PyTorch 2.4 writes it.
ARGUMENTS = {
    "stream": 40,
    "Collective name": "allreduce",
    "In msg nelems": 6637568,
    "dtype": "Float",
    "Process Group Name": "0",
    "Process Group Ranks": "[0, 1]",
}
KERNEL = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"


def slice_of(name: str, category: str = "kernel", start: int = 5, **args: Any) -> Slice:
    """Make a slice of ten nanoseconds, with arguments, in process 0 on thread 40."""
    return Slice(name, category, 0, 40, start, start + 10, json.dumps(args).encode())


@pytest.mark.parametrize(
    ("listed", "ranks"), [("[0, 1]", (0, 1)), ("[0, 1, ...]", None)], ids=["whole", "cut"]
)
def test_arguments_say_what_is_known(listed: str, ranks: tuple[int, ...] | None) -> None:
    arguments = {**ARGUMENTS, "Process Group Ranks": listed, "Seq": 12}
    (collective,) = collectives_of(Trace((slice_of(KERNEL, **arguments),)), {KERNEL})
    assert collective == Collective(
        kind="allreduce",
        group=f"0 {listed}",
        ranks=ranks,
        queue="40",
        start=5,
        end=15,
        number=12,
        element_type="Float",
        elements=6637568,
    )


@pytest.mark.parametrize(
    ("name", "kind", "is_of_library"),
    [
        (KERNEL, "allreduce", True),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclDevComm*)", "reducescatter", True),
        ("ncclDevKernel_SendRecv(ncclDevComm*, unsigned long, ncclWork*)", "sendrecv", True),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "allreduce", True),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "generic", True),
        ("void ncclKernel<1>(int)", None, True),
        ("_Z24ncclDevKernel_AllReducei", "allreduce", True),
        ("mscclKernel_Sum_half_LL_false(ncclDevComm*, mscclAlgo*, mscclWork*)", None, True),
        ("void mscclpp::allreduce<float>(float*)", "allreduce", True),
        ("rcclGenericKernel", "generic", True),
        ("deep_ep::internode::dispatch", None, True),
        ("void fill<ncclSum>(ncclWork*)", None, False),
        ("c10d::checkForNan<float>(ncclComm*)", None, False),
        ("void vllm::cross_device_reduce_1stage<float>(RankData*)", "reduce", False),
    ],
)
def test_a_kernel_s_name_says_its_kind_and_its_library(
    name: str, kind: str | None, is_of_library: bool
) -> None:
    """A name that says no kind, which is None, is its own kind."""
    # Older traces have no more than the name; a call of the same name is no collective.
    kernel, call = slice_of(name), slice_of(name, category="cuda_runtime")
    trace = Trace((kernel, slice_of("volta_sgemm"), call))
    (collective,) = collectives_of(trace, {name})
    expected_kind = name if kind is None else kind
    assert collective == Collective(
        kind=expected_kind, group="", ranks=None, queue="40", start=5, end=15
    )
    assert collectives.is_communication(name) is is_of_library


def test_gloo_s_annotations_count_where_there_are_no_kernels() -> None:
    annotation = slice_of("gloo:all_reduce", "user_annotation")
    other_annotation = slice_of("step", "user_annotation")
    (by_annotation,) = collectives_of(Trace((annotation, other_annotation)), set())
    assert by_annotation.kind == "all_reduce"

    kernel = slice_of(KERNEL, start=9)
    (by_kernel,) = collectives_of(Trace((annotation, kernel)), {KERNEL})
    assert by_kernel.kind == "allreduce"


@pytest.mark.parametrize(
    ("said", "rank_and_size"),
    [
        ({"rank": 3, "world_size": 8}, (3, 8)),
        ({"backend": "nccl"}, (None, None)),
        ({"rank": True, "world_size": -1}, (None, None)),
        ("rank 3", (None, None)),
        (None, (None, None)),
    ],
)
def test_a_trace_says_its_rank_or_not(
    said: object, rank_and_size: tuple[int | None, int | None]
) -> None:
    trace = Trace((), properties={"distributedInfo": said})
    assert collectives.job_of(trace) == rank_and_size


def test_a_users_expression_adds_what_runs_on_devices() -> None:
    reduction = "void vllm::cross_device_reduce_1stage<float>(RankData*)"
    spans = (
        Span("short", "compute", "gpu:0", "q", 0, 1, operator=reduction),
        Span("short", "compute", "gpu:0", "q", 0, 1, operator="gemm"),
        Span("short", "host", HOST_DEVICE, "q", 0, 1, operator=reduction),
    )
    changed = collectives.with_communication(
        Timeline("torch", spans), re.compile("cross_device|multimem")
    )
    assert [span.kind for span in changed.spans] == ["exchange", "compute", "host"]


def of_rank(
    rank: int, *, links: int = 100, process: int | None = None, device: int | None = None
) -> list[Event]:
    """Return what PyTorch's profiler writes of one rank: three launches and their kernels.

    Their correlation ids begin with `links`. The host's process is `process`, or has an id of the
    rank's own; the GPU is `device`, or the one with the rank's number.
    """
    host = 4000 + rank if process is None else process
    gpu = rank if device is None else device
    events: list[Event] = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": "x"}}
        for pid in (host, 0, 1)
    ]
    for number in range(3):
        args = {"correlation": links + number}
        time = 1000 * number + rank
        launch = complete(f"cuda_runtime of {rank}", time, 10, cat="cuda_runtime", pid=host)
        kernel = complete(f"kernel of {rank}", time + 20, 10, cat="kernel", pid=gpu)
        events.append({**launch, "args": args})
        events.append({**kernel, "args": args})
    return events


def document(events: list[Event], rank: int = 0, names_rank: bool = True) -> str:
    """Return the JSON text of a trace, which may say that it is of a rank of two."""
    properties = {"distributedInfo": {"rank": rank, "world_size": 2}} if names_rank else {}
    return json.dumps({**properties, "traceEvents": events})


def with_offsets(rank: int, event: Event) -> Event:
    """Add multiples of a large number to the ids, as TraceLens does, and name the processes after
    their ranks.
    """
    changed = {**event, "pid": event["pid"] + 10_000 * rank}
    if event["ph"] == "M":
        processor = "CPU" if event["pid"] > 1 else "GPU"
        changed["args"] = {"name": f"RANK {rank} - {processor}"}
    else:
        changed["args"] = {"correlation": event["args"]["correlation"] + 1000 * rank}
    return changed


def with_label(rank: int, event: Event) -> Event:
    """Put the rank into the ids of processes, as SGLang does."""
    return {**event, "pid": f"[TP{rank:02d}-DP00] {event['pid']}"}


def kernel_with_label(rank: int, event: Event) -> Event | None:
    """Put the rank into the ids of GPUs, and leave all but kernels out."""
    if "kernel" not in event["name"]:
        return None
    return {**event, "pid": f"[TP{rank:02d}] {event['pid']}"}


def without_name(_: int, event: Event) -> Event | None:
    """Leave the names of processes out."""
    return event if event["ph"] == "X" else None


MERGED: dict[str, tuple[bool, Callable[[int, Event], Event | None]]] = {
    "with offsets": (False, with_offsets),
    "with labels": (True, with_label),
    "kernels with labels": (False, kernel_with_label),
    "with ranks as ids": (False, lambda rank, event: {**event, "pid": rank}),
    "as they are": (True, lambda _, event: event),
    "without names": (True, without_name),
}
"""Whether a tool keeps the first file's properties, and what it makes of a rank's event."""


@pytest.mark.parametrize("merge", MERGED)
@pytest.mark.parametrize("process", [None, 7], ids=["two processes", "one id"])
def test_merged_ranks_are_refused_whatever_a_tool_did_to_their_ids(
    read: Read, merge: str, process: int | None
) -> None:
    keeps_properties, change = MERGED[merge]
    events = []
    for rank in range(2):
        for event in of_rank(rank, process=process):
            changed = change(rank, event)
            if changed is not None:
                events.append(changed)
    trace = read(document(events, names_rank=keeps_properties))
    with pytest.raises(
        ValueError, match=r"^several ranks were merged into it: give each rank's own file$"
    ):
        check_one_rank(trace)


@pytest.mark.parametrize(
    ("events_of_second", "rank_of_second"),
    [(of_rank(1, links=500), 1), (of_rank(0), 0), (of_rank(0, device=1), 0)],
)
def test_files_behind_each_other_are_refused_too(
    read: Read, events_of_second: list[Event], rank_of_second: int
) -> None:
    trace = read(document(of_rank(0)) + document(events_of_second, rank_of_second))
    with pytest.raises(ValueError, match="several ranks were merged"):
        check_one_rank(trace)


def slices_in(events: list[Event]) -> list[Event]:
    """List the slices among events, without the names of processes."""
    return [event for event in events if event["ph"] == "X"]


def test_one_process_with_several_devices_is_one_rank(read: Read) -> None:
    first_device = of_rank(0, process=7)
    second_device = slices_in(of_rank(1, process=7, links=500))
    check_one_rank(read(document([*first_device, *second_device])))
    check_one_rank(read(document(of_rank(1), 1)))


@pytest.mark.parametrize("args", [{}, {"correlation": [7, 8]}], ids=["none", "a list"])
def test_a_process_whose_slices_have_no_ids_is_one_rank(read: Read, args: Event) -> None:
    check_one_rank(read([{**event, "args": args} for event in slices_in(of_rank(1))]))


def test_a_process_with_the_number_of_a_gpu_is_one_rank(read: Read) -> None:
    # PyTorch names the rows of 16 GPUs after the process, too, and puts their numbers into labels.
    names = []
    for gpu in range(16):
        name, labels = {"name": "python"}, {"labels": f"GPU {gpu}"}
        names.append({"ph": "M", "name": "process_name", "pid": gpu, "args": name})
        names.append({"ph": "M", "name": "process_labels", "pid": gpu, "args": labels})
    events = of_rank(0, process=7)
    name_of_host = [event for event in events if event["ph"] == "M" and event["pid"] == 7]
    file = [*names, *name_of_host, *slices_in(events)]
    check_one_rank(read(document(file)))
    with pytest.raises(ValueError, match="several ranks were merged"):
        check_one_rank(read(document([*file, *file])))
