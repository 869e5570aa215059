"""PyTorch's traces: threads, workers and GPUs, calls and waits of the host, and exchanges over
gloo.
"""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import backends
from backends import Array
from backends.profiling.slices import Slice, Slices, Trace, TraceThread
from backends.profiling.timeline import ROLES
from backends.torch.kineto_host import exchanges, host_calls, without_exchanges
from backends.torch.profiler import timeline_of
from backends.torch.program_hooks import TorchProfiler
from tests.backends.conftest import Require
from tests.backends.profiling.work import matrix, named, overlapping, see
from tests.conftest import RunPython

THREAD = (1, 2)
GLOO = 3


def operator(name: str, start: int, end: int, thread: int = THREAD[1]) -> Slice:
    """Make an operator on a thread."""
    return Slice(name, "cpu_op", THREAD[0], thread, start, end)


def mark(name: str, start: int, end: int, thread: int = GLOO) -> Slice:
    """Make a mark on a thread, by default gloo's."""
    return Slice(name, "user_annotation", THREAD[0], thread, start, end)


def test_several_workers_of_a_device_have_queues_of_their_own(
    require: Require, tmp_path: Path
) -> None:
    require("torch")
    backend = backends.load("torch", 1, "cpu", "async", 1, workers_per_device=2)
    x = matrix(backend, backend.devices[0])
    both_at_work = threading.Barrier(2)

    def product(matrix: Array) -> Array:
        both_at_work.wait(timeout=60)
        return backend.ops.matmul(matrix, matrix)

    def launch_two_products() -> list[Array]:
        return [backend.launch(product, x) for _ in range(2)]

    timeline = see(backend, tmp_path / "trace.json", products=launch_two_products)
    queues = {span.queue for span in named(timeline, "matmul")}
    assert queues == {"compute", "compute 2"}
    assert overlapping(timeline) == []


@pytest.mark.parametrize(
    ("is_initialized", "is_capturing", "waits"),
    [(False, False, 0), (True, False, 1), (True, True, 0)],
)
def test_steps_are_timed_when_the_gpu_is_done(
    is_initialized: bool, is_capturing: bool, waits: int
) -> None:
    calls: list[str] = []
    cuda = SimpleNamespace(
        is_initialized=lambda: is_initialized,
        is_current_stream_capturing=lambda: is_capturing,
        synchronize=lambda: calls.append("synchronize"),
    )
    TorchProfiler(SimpleNamespace(cuda=cuda)).settle()
    assert calls == ["synchronize"] * waits


WORK = (
    operator("aten::mm", 1, 2, 1),
    operator("aten::copy_", 2, 3, 2),
    operator("aten::to", 3, 4, 3),
)
NAMES = {(1, 1): "thread 1 (python3) ", (1, 2): "thread 2 (pt_autograd_0)"}
NAMED = ["thread 1 (python3)", "thread 2 (pt_autograd_0)"]


@pytest.mark.parametrize(
    ("names", "more", "device", "queues"),
    [
        ({}, (), "cpu", ["thread", "thread 2", "thread 3"]),
        (NAMES, (), "cpu", [*NAMED, "thread"]),
        (
            NAMES,
            (Slice("gemm", "kernel", 0, 7, 4, 5, b'{"device": 0, "stream": 7}'),),
            "host",
            [*NAMED, "Python"],
        ),
    ],
)
def test_threads_of_a_program_without_marks_have_the_names_that_the_trace_gives_them(
    names: dict[TraceThread, str], more: tuple[Slice, ...], device: str, queues: list[str]
) -> None:
    timeline = timeline_of(Trace((*WORK, *more), threads=names))
    spans = [span for span in timeline.spans if span.device == device]
    expected_kinds = ["compute", "copy", "compute"] if device == "cpu" else ["host"] * 3
    assert [span.queue for span in spans] == queues
    assert [span.kind for span in spans] == expected_kinds


@pytest.mark.parametrize(
    ("operator", "name"),
    [
        ("aten::mm", "matmul"),
        ("aten::add_", "add"),
        ("autograd::engine::evaluate_function: MmBackward0", "matmul backward"),
        (
            "torch::autograd::CppNode<at::(anonymous namespace)::ScaleGradientFunction>",
            "CppNode<ScaleGradientFunction>",
        ),
        ("torch::autograd::CppNode<a::Pooled<&a::permute_gpu> >", "CppNode<Pooled>"),
        ("Torch-Compiled Region: 0/0", "Torch-Compiled Region: 0/0"),
    ],
)
def test_operators_have_the_names_that_readers_know(operator: str, name: str) -> None:
    timeline = timeline_of(Trace((Slice(operator, "cpu_op", 1, 1, 0, 1),)))
    (span,) = timeline.spans
    assert span.name == name
    assert span.operator == operator


@pytest.mark.long
def test_to_profile_imports_no_compiler_and_leaves_it_to_the_program(
    require: Require, run_python: RunPython
) -> None:
    require("torch")
    run_python("""
import sys, tempfile
from pathlib import Path
import backends
from backends.torch.profiler import profile
backend = backends.load("torch", 1)
with profile(backend, Path(tempfile.mkdtemp(), "trace.json")):
    backend.waitall()
assert "torch._inductor" not in sys.modules
import torch
assert torch._inductor
""")


RUNTIME_CATEGORIES = ["cuda_runtime", "cuda_driver"]


def roles_of(*slices: Slice) -> list[str]:
    """Return the roles of the host's calls."""
    calls = host_calls(Slices.of(slices), {}, RUNTIME_CATEGORIES)
    return [ROLES[role] for role in calls.roles]


@pytest.mark.parametrize(
    ("role", "names"),
    [
        (
            "wait",
            (
                "cudaDeviceSynchronize hipDeviceSynchronize cuCtxSynchronize cudaFree hipFree "
                "cudaStreamSynchronize hipStreamSynchronize cuStreamSynchronize "
                "zeCommandQueueSynchronize urQueueFinish "
                "cudaEventSynchronize hipEventSynchronize zeEventHostSynchronize urEventWait"
            ),
        ),
        (
            "copy",
            (
                "cudaMemcpy cudaMemcpyAsync hipMemcpyWithStream hipMemcpyDtoH cuMemcpyHtoDAsync_v2 "
                "cudaMemsetAsync"
            ),
        ),
        (
            "call",
            (
                "cudaLaunchKernel cudaEventQuery cudaEventRecord cudaMalloc hipModuleLaunchKernel "
                "cudaFreeHost cudaStreamWaitEvent hipStreamWaitEvent"
            ),
        ),
    ],
)
def test_calls_are_told_apart_by_name(role: str, names: str) -> None:
    for name in names.split():
        call = Slice(name, "cuda_runtime", *THREAD, 0, 1)
        assert roles_of(call) == [role], name


def test_an_operator_that_reads_a_value_is_the_wait_where_the_runtime_s_calls_are_missing() -> None:
    operator_that_reads = operator("aten::_local_scalar_dense", 0, 9)
    assert roles_of(operator_that_reads) == ["wait"]
    call = Slice("cudaStreamSynchronize", "cuda_runtime", *THREAD, 1, 8)
    assert roles_of(operator_that_reads, call) == ["operator", "wait"]


def test_an_exchange_that_was_launched_before_the_recording_has_no_launch() -> None:
    marks = [mark("gloo:all_reduce", 0, 20), mark("gloo:all_reduce", 30, 40, GLOO + 1)]
    launch = operator("c10d::allreduce_", 10, 11)
    found = exchanges(marks, [launch, *marks])
    assert [exchange.launch for exchange in found] == [None, launch]


def test_exchanges_that_overlap_on_a_thread_have_queues_of_their_own() -> None:
    marks = [mark("gloo:send", 0, 20), mark("gloo:send", 10, 30), mark("gloo:send", 25, 40)]
    found = exchanges(marks, marks)
    assert [exchange.span.queue for exchange in found] == ["gloo", "gloo 2", "gloo"]


@pytest.mark.parametrize(
    ("name", "start", "end", "computes"),
    [
        ("_c10d_functional::wait_tensor", 20, 30, []),
        ("aten::mm", 0, 10, [(0, 10)]),
        ("aten::add", 14, 20, [(14, 20)]),
        # A custom autograd function that sums over the processes while it runs has waited for the
        # sum.
        ("SumOverProcesses", 0, 50, [(0, 12), (30, 50)]),
        ("LaunchAndMultiply", 0, 20, [(0, 20)]),
        # The thread that keeps a gradient may be put off the core when it launches the exchange, by
        # the very exchange.
        ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 0, 25, [(0, 10)]),
    ],
)
def test_what_launches_an_exchange_or_waits_for_it_computes_nothing_then(
    name: str, start: int, end: int, computes: list[tuple[int, int]]
) -> None:
    tested = operator(name, start, end)
    launch = operator("c10d::allreduce_", 10, 11)
    marks = [mark("gloo:all_reduce", 12, 30)]
    found = exchanges(marks, [tested, launch, *marks])
    expected = [tested._replace(start=begin, end=end) for begin, end in computes]
    slices = Slices.of([launch, tested])
    assert without_exchanges([launch, tested], found, slices) == expected
    assert without_exchanges([launch, tested], [], slices) == [launch, tested]
