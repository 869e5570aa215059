"""Collectives of a trace, which kernels communicate, and files into which several ranks were merged: refused."""

import json
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from backends.profiling import HOST_DEVICE, Span, Timeline, read_trace
from backends.profiling.chrome_trace.slices import Slice, Trace
from backends.profiling.collectives import (
    check_one_rank,
    collectives_of,
    is_communication,
    job_of,
    with_communication,
)

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


def test_arguments_say_kind_group_ranks_and_number() -> None:
    (one,) = collectives_of(Trace((slice_of(KERNEL, **ARGUMENTS, Seq=12),)), {KERNEL})
    assert (one.kind, one.group, one.ranks, one.number) == ("allreduce", "0 [0, 1]", (0, 1), 12)
    assert (one.queue, one.start, one.end) == ("40", 5, 15)


def test_a_list_of_ranks_that_was_cut_is_not_taken_for_the_whole() -> None:
    (one,) = collectives_of(Trace((slice_of(KERNEL, **{**ARGUMENTS, "Process Group Ranks": "[0, 1, ...]"}),)), {KERNEL})
    assert one.ranks is None
    assert one.group == "0 [0, 1, ...]"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (KERNEL, "allreduce"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclDevComm*)", "reducescatter"),
        ("ncclDevKernel_SendRecv(ncclDevComm*, unsigned long, ncclWork*)", "sendrecv"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "allreduce"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "generic"),
        ("deep_ep::internode::dispatch", "deep_ep::internode::dispatch"),
    ],
)
def test_older_traces_have_the_kernel_s_name_alone(name: str, kind: str) -> None:
    others = slice_of("volta_sgemm"), slice_of(name, category="cuda_runtime")
    (one,) = collectives_of(Trace((slice_of(name), *others)), {name})
    assert (one.kind, one.group, one.ranks, one.number) == (kind, "", None, None)


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


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", True),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", True),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", True),
        ("void ncclKernel<1>(int)", True),
        ("_Z24ncclDevKernel_AllReducei", True),
        ("mscclKernel_Sum_half_LL_false(ncclDevComm*, mscclAlgo*, mscclWork*)", True),
        ("void mscclpp::allreduce<float>(float*)", True),
        ("rcclGenericKernel", True),
        ("void fill<ncclSum>(ncclWork*)", False),
        ("c10d::checkForNan<float>(ncclComm*)", False),
        ("void vllm::cross_device_reduce_1stage<float>(RankData*)", False),
    ],
)
def test_a_kernel_of_a_communication_library_communicates(kernel: str, expected: bool) -> None:
    assert is_communication(kernel) is expected


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
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "python"}} for pid in (host, 0, 1)
    ]
    for number in range(3):
        link = {"correlation": links + number}
        at = 1000.0 * number + rank
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": host, "tid": host}
        kernel = {"ph": "X", "cat": "kernel", "name": f"kernel of {rank}", "pid": gpu, "tid": 7}
        events += [
            {**launch, "ts": at, "dur": 5.0, "args": link},
            {**kernel, "ts": at + 20, "dur": 100.0, "args": {**link, "device": gpu, "stream": 7}},
        ]
    return {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}


def with_offsets(documents: list[Document]) -> Document:
    """Add multiples of a large number to the ids, as TraceLens does, and name the processes after their ranks."""
    events = []
    for rank, document in enumerate(documents):
        for event in document["traceEvents"]:
            event["pid"] += 10_000 * rank
            if event["ph"] == "M":
                event["args"]["name"] = f"RANK {rank} - {'CPU' if event['pid'] % 10_000 > 1 else 'GPU'}"
            else:
                event["args"]["correlation"] += 1000 * rank
            events.append(event)
    return {"traceEvents": events}


def with_labels(documents: list[Document]) -> Document:
    """Put the rank before the process ids, as SGLang does; the first file's properties stay."""
    for rank, document in enumerate(documents):
        for event in document["traceEvents"]:
            event["pid"] = f"[TP{rank:02d}-DP00] {event['pid']}"
    return joined(documents)


def with_ranks_as_ids(documents: list[Document]) -> Document:
    for rank, document in enumerate(documents):
        for event in document["traceEvents"]:
            event["pid"] = rank
    return {"traceEvents": joined(documents)["traceEvents"]}


def without_names(documents: list[Document]) -> Document:
    events = joined(documents)["traceEvents"]
    return {**documents[0], "traceEvents": [event for event in events if event["ph"] == "X"]}


def joined(documents: list[Document]) -> Document:
    return {**documents[0], "traceEvents": [event for one in documents for event in one["traceEvents"]]}


def read(tmp_path: Path, *documents: Document) -> Any:
    path = tmp_path / "merged.json"
    path.write_text("".join(map(json.dumps, documents)))
    return read_trace(path)


@pytest.mark.parametrize("merge", [with_offsets, with_labels, with_ranks_as_ids, joined, without_names])
@pytest.mark.parametrize("process", [None, 7], ids=["two processes", "one id"])
def test_merged_ranks_are_refused_whatever_a_tool_did_to_their_ids(
    tmp_path: Path, merge: Callable[[list[Document]], Document], process: int | None
) -> None:
    documents = [of_rank(0, process=process), of_rank(1, process=process)]
    with pytest.raises(ValueError, match=r"^several ranks were merged into it: give each rank's own file$"):
        check_one_rank(read(tmp_path, merge(deepcopy(documents))))


def test_files_behind_each_other_are_refused_too(tmp_path: Path) -> None:
    for second in (of_rank(1, links=500), of_rank(0), of_rank(0, device=1)):
        with pytest.raises(ValueError, match="several ranks were merged"):
            check_one_rank(read(tmp_path, of_rank(0), second))


def test_one_process_with_several_devices_is_one_rank(tmp_path: Path) -> None:
    both = [of_rank(0, process=7), of_rank(1, process=7, links=500)]
    both[1]["traceEvents"] = [event for event in both[1]["traceEvents"] if event["ph"] == "X"]
    check_one_rank(read(tmp_path, joined(both)))
    check_one_rank(read(tmp_path, of_rank(1)))
