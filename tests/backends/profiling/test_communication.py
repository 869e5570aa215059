"""Kernels communicate if a communication library holds them, or if the user's expression names them."""

import re

import pytest

from backends.profiling.communication import is_communication, with_communication
from backends.profiling.timeline import HOST_DEVICE, Span, Timeline


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
