"""Who waits for whom on one GPU, by the profiler's trace or by what has come when a verb
returns.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from backends import HOST, Backend
from backends.profiling import Span, read_trace, run_profiler, timeline_from
from tests.backends.protocol.arrays import full, products

SIDE = 4096
LONG = 60
"""Products: 0.15 s on a fast GPU, which is long beside any copy or launch here."""


@pytest.fixture
def on_gpu(on_gpus: Callable[..., Backend]) -> Backend:
    return on_gpus("torch", 1)


def spans_of(backend: Backend, path: Path, work: Callable[[], object]) -> list[Span]:
    """Run work twice, the second time under the profiler, and return what the GPU did."""
    work()
    backend.waitall()
    with run_profiler(backend, path):
        work()
        backend.waitall()
    spans = []
    for span in timeline_from(read_trace(path)).spans:
        is_on_gpu = span.device.startswith("gpu") and span.queue.startswith("stream")
        if is_on_gpu:
            spans.append(span)
    return spans


@pytest.mark.parametrize(
    ("to_gpu", "to_host"),
    [(True, False), (False, True), (True, True)],
    ids=["to the GPU", "to the host", "both"],
)
def test_copies_run_beside_products_that_they_do_not_need(
    on_gpu: Backend, to_gpu: bool, to_host: bool, tmp_path: Path
) -> None:
    if on_gpu.engine == "sync":
        pytest.skip("its host waits after every kernel")
    (device,) = on_gpu.devices
    x = full(on_gpu, 1 / SIDE, SIDE, SIDE)
    array_on_gpu = full(on_gpu, 1 / SIDE, SIDE, SIDE)
    array_on_host = on_gpu.asarray(np.ones((SIDE, SIDE), np.float32), HOST)

    def work() -> None:
        products(on_gpu, x, LONG)
        if to_gpu:
            # What came there is used while the products before it are still to be computed, or else
            # has waited for all.
            on_gpu.copy_to(array_on_host, device)
        if to_host:
            on_gpu.copy_to(array_on_gpu, HOST)
        products(on_gpu, x, 1)

    spans = spans_of(on_gpu, tmp_path / "trace.json", work)
    multiplications = [span for span in spans if span.kind == "compute"]
    copies = [span for span in spans if span.kind == "copy"]
    assert len(multiplications) == LONG + 1
    assert len(copies) == int(to_gpu) + int(to_host)
    # They need not even wait for the first product to be issued.
    last_of_long_work = multiplications[-2]
    for copy in copies:
        assert copy.end < last_of_long_work.start


def test_waiting_is_for_the_value_alone(on_gpu: Backend) -> None:
    if on_gpu.engine == "sync":
        pytest.skip("its host waits after every kernel")
    x = full(on_gpu, 1 / SIDE, SIDE, SIDE)
    products(on_gpu, x, 2)
    on_gpu.waitall()
    first = products(on_gpu, x, 1)
    later = products(on_gpu, x, LONG)
    on_gpu.wait(first)
    assert not later.end._event.query()
    on_gpu.waitall()
    assert later.end._event.query()


def test_a_synchronous_verb_returns_when_the_gpu_is_done(on_gpu: Backend) -> None:
    if on_gpu.engine == "async":
        pytest.skip("its verbs return before")
    import torch

    (device,) = on_gpu.devices
    x = full(on_gpu, 1 / SIDE, SIDE, SIDE)
    for _ in range(10):
        products(on_gpu, x, 1)
        assert torch.cuda.current_stream(device.index).query()


def test_many_launches_leave_no_memory_behind(on_gpu: Backend) -> None:
    import torch

    (device,) = on_gpu.devices
    x = full(on_gpu, 1, 2**20)
    held = []
    for _ in range(4):
        for _ in range(2000):
            x = on_gpu.launch(on_gpu.ops.add, x, 1)
        on_gpu.waitall()
        held.append(torch.cuda.memory_allocated(device.index))
    assert held[-1] <= held[0]
