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
    return Slice(name, category, 0, 40, start, start + 10, json.dumps(args).encode())


@pytest.mark.parametrize(
    ("listed", "ranks"), [("[0, 1]", (0, 1)), ("[0, 1, ...]", None)], ids=["whole", "cut"]
)
def test_arguments_say_what_is_known(listed: str, ranks: tuple[int, ...] | None) -> None:
    kernel = slice_of(KERNEL, **{**ARGUMENTS, "Process Group Ranks": listed}, Seq=12)
    (one,) = collectives_of(Trace((kernel,)), {KERNEL})
    assert one == Collective("allreduce", f"0 {listed}", ranks, "40", 5, 15, 12, "Float", 6637568)


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
        ("deep_ep::internode::dispatch", None, False),
        ("void fill<ncclSum>(ncclWork*)", None, False),
        ("c10d::checkForNan<float>(ncclComm*)", None, False),
        ("void vllm::cross_device_reduce_1stage<float>(RankData*)", "reduce", False),
    ],
)
def test_a_kernel_s_name_says_its_kind_and_its_library(
    name: str, kind: str | None, is_of_library: bool
) -> None:
    # Older traces have no more than it; a call of the same name is no collective.
    others = slice_of("volta_sgemm"), slice_of(name, category="cuda_runtime")
    found = collectives_of(Trace((slice_of(name), *others)), {name})
    assert found == (Collective(kind or name, "", None, "40", 5, 15),)
    assert collectives.is_communication(name) is is_of_library


def test_gloo_s_annotations_count_where_there_are_no_kernels() -> None:
    annotation = slice_of("gloo:all_reduce", "user_annotation")
    (one,) = collectives_of(Trace((annotation, slice_of("step", "user_annotation"))), set())
    assert one.kind == "all_reduce"
    (kernel,) = collectives_of(Trace((annotation, slice_of(KERNEL, start=9))), {KERNEL})
    assert kernel.kind == "allreduce"


def test_a_trace_says_its_rank_or_not() -> None:
    def job_of(said: Any) -> tuple[int | None, int | None]:
        return collectives.job_of(Trace((), properties={"distributedInfo": said}))

    assert job_of({"rank": 3, "world_size": 8}) == (3, 8)
    assert {
        job_of(said)
        for said in ({"backend": "nccl"}, {"rank": True, "world_size": -1}, "rank 3", None)
    } == {(None, None)}


def test_a_users_expression_adds_what_runs_on_devices() -> None:
    def ran(operator: str, device: str) -> Span:
        return Span(
            "short",
            "host" if device == HOST_DEVICE else "compute",
            device,
            "q",
            0,
            1,
            operator=operator,
        )

    reduce = "void vllm::cross_device_reduce_1stage<float>(RankData*)"
    spans = (ran(reduce, "gpu:0"), ran("gemm", "gpu:0"), ran(reduce, HOST_DEVICE))
    found = collectives.with_communication(
        Timeline("torch", spans), re.compile("cross_device|multimem")
    )
    assert [span.kind for span in found.spans] == ["exchange", "compute", "host"]


def of_rank(
    rank: int, *, links: int = 100, process: int | None = None, device: int | None = None
) -> list[Event]:
    """Return what PyTorch's profiler writes of one rank: three launches and their kernels."""
    host = 4000 + rank if process is None else process
    gpu = rank if device is None else device
    events: list[Event] = [
        {"ph": "M", "name": "process_name", "pid": p, "args": {"name": "x"}} for p in (host, 0, 1)
    ]
    for number in range(3):
        for category, pid, after in (("cuda_runtime", host, 0), ("kernel", gpu, 20)):
            event = complete(
                f"{category} of {rank}", 1000 * number + rank + after, 10, cat=category, pid=pid
            )
            events.append({**event, "args": {"correlation": links + number}})
    return events


def document(events: list[Event], rank: int = 0, names_rank: bool = True) -> str:
    said = {"distributedInfo": {"rank": rank, "world_size": 2}} if names_rank else {}
    return json.dumps({**said, "traceEvents": events})


def with_offsets(rank: int, event: Event) -> Event:
    """Add multiples of a large number to the ids, as TraceLens does, and name the processes after
    their ranks.
    """
    if event["ph"] == "M":
        args: Event = {"name": f"RANK {rank} - {'CPU' if event['pid'] > 1 else 'GPU'}"}
    else:
        args = {"correlation": event["args"]["correlation"] + 1000 * rank}
    return {**event, "pid": event["pid"] + 10_000 * rank, "args": args}


MERGED: dict[str, tuple[bool, Callable[[int, Event], Event | None]]] = {
    "with offsets": (False, with_offsets),
    # As SGLang does.
    "with labels": (
        True,
        lambda rank, event: {**event, "pid": f"[TP{rank:02d}-DP00] {event['pid']}"},
    ),
    "kernels with labels": (
        False,
        lambda rank, event: (
            {**event, "pid": f"[TP{rank:02d}] {event['pid']}"}
            if "kernel" in event["name"]
            else None
        ),
    ),
    "with ranks as ids": (False, lambda rank, event: {**event, "pid": rank}),
    "as they are": (True, lambda _, event: event),
    "without names": (True, lambda _, event: event if event["ph"] == "X" else None),
}
"""Whether a tool keeps the first file's properties, and what it makes of a rank's event."""


@pytest.mark.parametrize("merge", MERGED)
@pytest.mark.parametrize("process", [None, 7], ids=["two processes", "one id"])
def test_merged_ranks_are_refused_whatever_a_tool_did_to_their_ids(
    read: Read, merge: str, process: int | None
) -> None:
    keeps, change = MERGED[merge]
    changed = [change(rank, event) for rank in range(2) for event in of_rank(rank, process=process)]
    with pytest.raises(
        ValueError, match=r"^several ranks were merged into it: give each rank's own file$"
    ):
        check_one_rank(read(document([event for event in changed if event], names_rank=keeps)))


@pytest.mark.parametrize(
    ("second", "rank"), [(of_rank(1, links=500), 1), (of_rank(0), 0), (of_rank(0, device=1), 0)]
)
def test_files_behind_each_other_are_refused_too(
    read: Read, second: list[Event], rank: int
) -> None:
    with pytest.raises(ValueError, match="several ranks were merged"):
        check_one_rank(read(document(of_rank(0)) + document(second, rank)))


def test_one_process_with_several_devices_is_one_rank(read: Read) -> None:
    second = [event for event in of_rank(1, process=7, links=500) if event["ph"] == "X"]
    check_one_rank(read(document([*of_rank(0, process=7), *second])))
    check_one_rank(read(document(of_rank(1), 1)))
    for args in ({}, {"correlation": [7, 8]}):
        check_one_rank(
            read([{**event, "args": args} for event in of_rank(1) if event["ph"] == "X"])
        )


def test_a_process_with_the_number_of_a_gpu_is_one_rank(read: Read) -> None:
    # PyTorch names the rows of 16 GPUs after the process, too, and puts their numbers into labels.
    rows = [
        {"ph": "M", "name": name, "pid": pid, "args": args}
        for pid in range(16)
        for name, args in (
            ("process_name", {"name": "python"}),
            ("process_labels", {"labels": f"GPU {pid}"}),
        )
    ]
    host = [event for event in of_rank(0, process=7) if event["ph"] == "X" or event["pid"] == 7]
    check_one_rank(read(document([*rows, *host])))
    with pytest.raises(ValueError, match="several ranks were merged"):
        check_one_rank(read(document([*rows, *host, *rows, *host])))
