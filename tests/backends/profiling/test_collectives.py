"""Collectives of a trace: group, kind and number from the arguments of NCCL's kernels, else from names."""

import json
from typing import Any

import pytest

from backends.profiling.chrome_trace.slices import Slice, Trace
from backends.profiling.collectives import collectives_of, job_of

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
