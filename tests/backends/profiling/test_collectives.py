"""Collectives of a trace, which kernels communicate, and files into which several ranks were merged: refused."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from backends.profiling import HOST_DEVICE, Span, Timeline
from backends.profiling.collectives import (
    Collective,
    check_one_rank,
    collectives_of,
    is_communication,
    job_of,
    with_communication,
)
from backends.profiling.slices import Slice, Trace
from tests.backends.profiling.events import Read, complete

# As PyTorch 2.4 writes it.
ARGUMENTS = {
    "stream": 40,
    "Collective name": "allreduce",
    "In msg nelems": 6637568,
    "Process Group Name": "0",
    "Process Group Ranks": "[0, 1]",
}
KERNEL = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"


def slice_of(name: str, category: str = "kernel", start: int = 5, **args: Any) -> Slice:
    return Slice(name, category, 0, 40, start, start + 10, json.dumps(args).encode())


@pytest.mark.parametrize(("listed", "ranks"), [("[0, 1]", (0, 1)), ("[0, 1, ...]", None)], ids=["whole", "cut"])
def test_arguments_say_kind_group_ranks_and_number(listed: str, ranks: tuple[int, ...] | None) -> None:
    kernel = slice_of(KERNEL, **{**ARGUMENTS, "Process Group Ranks": listed}, Seq=12)
    (one,) = collectives_of(Trace((kernel,)), {KERNEL})
    assert one == Collective("allreduce", f"0 {listed}", ranks, "40", 5, 15, 12)


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
def test_a_kernel_s_name_says_its_kind_and_its_library(name: str, kind: str | None, is_of_library: bool) -> None:
    # Older traces have no more than it; a call of the same name is no collective.
    others = slice_of("volta_sgemm"), slice_of(name, category="cuda_runtime")
    found = collectives_of(Trace((slice_of(name), *others)), {name})
    assert found == (Collective(kind or name, "", None, "40", 5, 15),)
    assert is_communication(name) is is_of_library


def test_gloo_s_annotations_count_where_there_are_no_kernels() -> None:
    annotation = slice_of("gloo:all_reduce", "user_annotation")
    (one,) = collectives_of(Trace((annotation, slice_of("step", "user_annotation"))), set())
    assert one.kind == "all_reduce"
    (kernel,) = collectives_of(Trace((annotation, slice_of(KERNEL, start=9))), {KERNEL})
    assert kernel.kind == "allreduce"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"rank": 3, "world_size": 8}, (3, 8)),
        ({"backend": "nccl"}, (None, None)),
        ({"rank": True, "world_size": -1}, (None, None)),
        ("rank 3", (None, None)),
        (None, (None, None)),
    ],
)
def test_a_trace_says_its_rank_or_not(said: Any, expected: tuple[int | None, int | None]) -> None:
    assert job_of(Trace((), properties={} if said is None else {"distributedInfo": said})) == expected


def test_a_users_expression_adds_what_runs_on_devices() -> None:
    def ran(operator: str, device: str) -> Span:
        return Span("short", "host" if device == HOST_DEVICE else "compute", device, "q", 0, 1, operator=operator)

    reduce = "void vllm::cross_device_reduce_1stage<float>(RankData*)"
    spans = (ran(reduce, "gpu:0"), ran("gemm", "gpu:0"), ran(reduce, HOST_DEVICE))
    found = with_communication(Timeline("torch", spans), re.compile("cross_device|multimem"))
    assert [span.kind for span in found.spans] == ["exchange", "compute", "host"]


Document = dict[str, Any]


def of_rank(rank: int, *, links: int = 100, process: int | None = None, device: int | None = None) -> Document:
    """Return what PyTorch's profiler writes of one rank: three launches and their kernels."""
    host, gpu = process or 4000 + rank, rank if device is None else device
    events: list[Document] = [
        {"ph": "M", "name": "process_name", "pid": p, "args": {"name": "x"}} for p in (host, 0, 1)
    ]
    for number in range(3):
        for category, pid, after in (("cuda_runtime", host, 0), ("kernel", gpu, 20)):
            event = complete(f"{category} of {rank}", 1000 * number + rank + after, 10, cat=category, pid=pid)
            events.append({**event, "args": {"correlation": links + number}})
    return {"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}


def joined(documents: list[Document]) -> Document:
    return {**documents[0], "traceEvents": [event for one in documents for event in one["traceEvents"]]}


def with_processes(documents: list[Document], process: Callable[[int, int], object]) -> Document:
    """Change the ids of processes by their ranks."""
    for rank, document in enumerate(documents):
        for event in document["traceEvents"]:
            event["pid"] = process(rank, event["pid"])
    return joined(documents)


def with_offsets(documents: list[Document]) -> Document:
    """Add multiples of a large number to the ids, as TraceLens does, and name the processes after their ranks."""
    for rank, document in enumerate(documents):
        for event in document["traceEvents"]:
            if event["ph"] == "M":
                event["args"]["name"] = f"RANK {rank} - {'CPU' if event['pid'] > 1 else 'GPU'}"
            else:
                event["args"]["correlation"] += 1000 * rank
    return {"traceEvents": with_processes(documents, lambda rank, pid: pid + 10_000 * rank)["traceEvents"]}


MERGED: dict[str, Callable[[list[Document]], Document]] = {
    "with offsets": with_offsets,
    # As SGLang does; the first file's properties stay.
    "with labels": lambda documents: with_processes(documents, lambda rank, pid: f"[TP{rank:02d}-DP00] {pid}"),
    "kernels with labels": lambda documents: {
        "traceEvents": [
            {**event, "pid": f"[TP{rank:02d}] {event['pid']}"}
            for rank, document in enumerate(documents)
            for event in document["traceEvents"]
            if event.get("cat") == "kernel"
        ]
    },
    "with ranks as ids": lambda documents: {
        "traceEvents": with_processes(documents, lambda rank, _: rank)["traceEvents"]
    },
    "as they are": joined,
    "without names": lambda documents: {
        **documents[0],
        "traceEvents": [event for event in joined(documents)["traceEvents"] if event["ph"] == "X"],
    },
}


@pytest.mark.parametrize("merge", MERGED.values(), ids=MERGED)
@pytest.mark.parametrize("process", [None, 7], ids=["two processes", "one id"])
def test_merged_ranks_are_refused_whatever_a_tool_did_to_their_ids(
    read: Read, merge: Callable[[list[Document]], Document], process: int | None
) -> None:
    with pytest.raises(ValueError, match=r"^several ranks were merged into it: give each rank's own file$"):
        check_one_rank(read(json.dumps(merge([of_rank(0, process=process), of_rank(1, process=process)]))))


@pytest.mark.parametrize("second", [of_rank(1, links=500), of_rank(0), of_rank(0, device=1)])
def test_files_behind_each_other_are_refused_too(read: Read, second: Document) -> None:
    with pytest.raises(ValueError, match="several ranks were merged"):
        check_one_rank(read(json.dumps(of_rank(0)) + json.dumps(second)))


def test_one_process_with_several_devices_is_one_rank(read: Read) -> None:
    both = [of_rank(0, process=7), of_rank(1, process=7, links=500)]
    both[1]["traceEvents"] = [event for event in both[1]["traceEvents"] if event["ph"] == "X"]
    check_one_rank(read(json.dumps(joined(both))))
    check_one_rank(read(json.dumps(of_rank(1))))
    without_links = [{k: v for k, v in event.items() if k != "args"} for event in of_rank(1)["traceEvents"]]
    check_one_rank(read([event for event in without_links if event["ph"] == "X"]))
    several = {"correlation": [7, 8]}
    check_one_rank(read([{**event, "args": several} for event in without_links if event["ph"] == "X"]))


def test_a_process_with_the_number_of_a_gpu_is_one_rank(read: Read) -> None:
    # PyTorch names the rows of 16 GPUs after the process, too, and puts their numbers into labels.
    rows = [
        {"ph": "M", "name": name, "pid": pid, "args": args}
        for pid in range(16)
        for name, args in (("process_name", {"name": "python"}), ("process_labels", {"labels": f"GPU {pid}"}))
    ]
    document = of_rank(0, process=7)
    host = [event for event in document["traceEvents"] if event["ph"] == "X" or event["pid"] == 7]
    check_one_rank(read(json.dumps({**document, "traceEvents": [*rows, *host]})))
    with pytest.raises(ValueError, match="several ranks were merged"):
        check_one_rank(read(json.dumps({**document, "traceEvents": [*rows, *host, *rows, *host]})))
