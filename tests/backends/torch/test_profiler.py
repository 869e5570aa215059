"""PyTorch's profiler: the threads, workers and GPUs that its traces show."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import backends
from backends import Array, Backend
from backends.profiling.chrome_trace.slices import Slice, Trace
from backends.torch.profiler import timeline_of
from tests.backends.profiling.tracks import overlapping
from tests.backends.profiling.work import matrix, named, see


def test_several_workers_of_a_device_have_queues_of_their_own(
    backend_name: str, engine: str, tmp_path: Path, load: Callable[[int], Backend]
) -> None:
    if backend_name != "torch" or engine == "sync":
        pytest.skip("MXNet takes its workers when it is imported; a synchronous engine has none")
    load(1)
    backend = backends.load("torch", 1, "cpu", engine, 1, workers_per_device=2)
    x = matrix(backend, backend.devices[0])
    both_at_work = threading.Barrier(2)

    def product(matrix: Array) -> Array:
        both_at_work.wait(timeout=60)
        return backend.ops.matmul(matrix, matrix)

    found = see(backend, tmp_path / "trace.json", products=lambda: [backend.launch(product, x) for _ in range(2)])
    assert {span.queue for span in named(found, "matmul")} == {"compute", "compute 2"}
    assert overlapping(found) == []


def test_threads_of_a_program_without_marks_are_called_threads() -> None:
    def ran(name: str, thread: int) -> Slice:
        return Slice(name, "cpu_op", 1, thread, thread, thread + 1)

    found = timeline_of(Trace((ran("aten::mm", 1), ran("aten::copy_", 2), ran("aten::to", 3))))
    assert [(span.device, span.queue, span.kind) for span in found.spans] == [
        ("cpu", "thread", "compute"),
        ("cpu", "thread 2", "copy"),
        ("cpu", "thread 3", "compute"),
    ]


def test_kernels_of_a_gpu_stand_on_its_streams_with_the_call_that_launched_them() -> None:
    def on_gpu(name: str, category: str, stream: int, start: int, number: int) -> Slice:
        args = json.dumps({"device": 0, "stream": stream, "correlation": number}).encode()
        return Slice(name, category, 0, stream, start, start + 10, args)

    def call(name: str, start: int, number: int) -> Slice:
        return Slice(name, "cuda_runtime", 99, 99, start, start + 1, json.dumps({"correlation": number}).encode())

    found = timeline_of(
        Trace(
            (
                Slice("aten::mm", "cpu_op", 99, 99, 0, 10),
                call("cudaLaunchKernel", 1, 1),
                call("cudaMemcpyAsync", 11, 2),
                on_gpu("ampere_sgemm", "kernel", 7, 20, 1),
                on_gpu("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", 13, 30, 2),
                on_gpu("ncclDevKernel_AllReduce", "kernel", 20, 40, 3),
            )
        )
    )
    on_streams = [span for span in found.spans if span.device == "gpu:0"]
    assert [(span.queue, span.kind, span.launched) for span in on_streams] == [
        ("stream 7", "compute", 1),
        ("stream 13", "copy", 11),
        ("stream 20", "exchange", None),
    ]
    assert [span.kind for span in found.spans if span.device == "host"] == ["host"]
