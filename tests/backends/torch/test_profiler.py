"""PyTorch's profiler: the threads, workers and GPUs that its traces show."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import backends
from backends import Array
from backends.profiling.slices import Slice, Trace, TraceThread
from backends.torch.profiler import timeline_of
from backends.torch.program_hooks import TorchProfiler
from tests.backends.profiling.work import matrix, named, overlapping, see
from tests.conftest import RunPython


def test_several_workers_of_a_device_have_queues_of_their_own(require: Callable[[str], None], tmp_path: Path) -> None:
    require("torch")
    backend = backends.load("torch", 1, "cpu", "async", 1, workers_per_device=2)
    x = matrix(backend, backend.devices[0])
    both_at_work = threading.Barrier(2)

    def product(matrix: Array) -> Array:
        both_at_work.wait(timeout=60)
        return backend.ops.matmul(matrix, matrix)

    found = see(backend, tmp_path / "trace.json", products=lambda: [backend.launch(product, x) for _ in range(2)])
    assert {span.queue for span in named(found, "matmul")} == {"compute", "compute 2"}
    assert overlapping(found) == []


def on_gpu(name: str, start: int, number: int, gpu: int = 0) -> Slice:
    args = json.dumps({"device": gpu, "stream": 7, "correlation": number}).encode()
    return Slice(name, "kernel", gpu, 7, start, start + 1, args)


def ran(name: str, thread: int) -> Slice:
    return Slice(name, "cpu_op", 99, thread, thread, thread + 1)


@pytest.mark.parametrize(("initialized", "capturing", "waits"), [(False, False, 0), (True, False, 1), (True, True, 0)])
def test_steps_are_timed_when_the_gpu_is_done(initialized: bool, capturing: bool, waits: int) -> None:
    waited: list[bool] = []
    cuda = SimpleNamespace(
        is_initialized=lambda: initialized,
        is_current_stream_capturing=lambda: capturing,
        synchronize=lambda: waited.append(True),
    )
    TorchProfiler(SimpleNamespace(cuda=cuda)).settle()
    assert len(waited) == waits


WORK = ran("aten::mm", 1), ran("aten::copy_", 2), ran("aten::to", 3)
NAMES = {(99, 1): "thread 1 (python3) ", (99, 2): "thread 2 (pt_autograd_0)"}
NAMED = ["thread 1 (python3)", "thread 2 (pt_autograd_0)"]


@pytest.mark.parametrize(
    ("names", "more", "device", "queues"),
    [
        ({}, (), "cpu", ["thread", "thread 2", "thread 3"]),
        (NAMES, (), "cpu", [*NAMED, "thread"]),
        (NAMES, (on_gpu("gemm", 4, 0),), "host", [*NAMED, "Python"]),
    ],
)
def test_threads_of_a_program_without_marks_have_the_names_that_the_trace_gives_them(
    names: dict[TraceThread, str], more: tuple[Slice, ...], device: str, queues: list[str]
) -> None:
    found = [span for span in timeline_of(Trace((*WORK, *more), threads=names)).spans if span.device == device]
    assert [span.queue for span in found] == queues
    assert [span.kind for span in found] == (["compute", "copy", "compute"] if device == "cpu" else ["host"] * 3)


def test_kernels_that_no_call_launched_are_counted_and_gpus_are_named() -> None:
    launch = Slice("cudaLaunchKernel", "cuda_runtime", 99, 99, 0, 1, b'{"correlation": 2}')
    described = [{"id": number, "name": f"NVIDIA H{number}00"} for number in range(3)]
    kernels = (("a<int>()", 1, 1), ("a<float>()", 2, 1), ("a<int>()", 3, 2))
    slices = (launch, *(on_gpu(name, number, number, gpu) for name, number, gpu in kernels))
    found = timeline_of(Trace(slices, properties={"deviceProperties": described}))
    assert found.unlinked == 2
    assert found.notes[:2] == ("gpu:1 is NVIDIA H100", "gpu:2 is NVIDIA H200")
    assert found.notes[2].startswith("2 of 3 operations on devices are linked to no launch")
    assert [(span.name, span.operator) for span in found.spans] == [
        (name.removesuffix("()"), name) for name, *_ in kernels
    ]
    assert timeline_of(Trace(slices[::2])).unlinked == timeline_of(Trace(slices[:1])).unlinked == 0


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
        ("torch::autograd::CppNode<a::Pooled<&a::permute_gpu> >", "CppNode<Pooled<permute_gpu>>"),
        ("Torch-Compiled Region: 0/0", "Torch-Compiled Region: 0/0"),
    ],
)
def test_operators_have_the_names_that_readers_know(operator: str, name: str) -> None:
    (span,) = timeline_of(Trace((Slice(operator, "cpu_op", 1, 1, 0, 1),))).spans
    assert (span.name, span.operator) == (name, operator)


@pytest.mark.long
def test_to_profile_imports_no_compiler_and_leaves_it_to_the_program(
    require: Callable[[str], None], run_python: RunPython
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
