"""PyTorch's group of processes on GPUs: a sum is queued behind what computes its terms, as a copy is."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest

from backends import HOST, Backend
from backends.errors import BackendError

Alone = tuple[Any, Backend]


@pytest.fixture
def alone(on_made_up_gpus: Callable[..., tuple[Backend, Any]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Alone]:
    """A group of one process, over gloo, and its backend of one GPU, which sees no race."""
    torch = pytest.importorskip("torch")
    from backends.torch.process_group import TorchGroup

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    backend, cuda = on_made_up_gpus("gpu:0")
    yield TorchGroup(backend._torch, backend, 0, ("here",)), backend  # type: ignore[attr-defined]
    torch.distributed.destroy_process_group()
    assert cuda.races == []


def test_a_value_of_a_gpu_is_summed_when_it_is_computed(alone: Alone) -> None:
    group, backend = alone
    (device,) = backend.devices
    for step in range(3):
        term = backend.launch(backend.ops.add, backend.asarray(np.full(2, step, np.float32), device), 1.0)
        pair = group.sum((term, backend.asarray(np.float32([step]), device)))
        doubled = backend.launch(lambda first, second: (first + first, second), pair[0], pair[1])
        summed, other = backend.to_numpy(doubled)
        assert (summed.tolist(), other.tolist()) == ([2 * step + 2] * 2, [step])
    assert group.sum_on_host(np.float32([5])).tolist() == [5]
    group.waitall()


def test_a_sum_waits_for_what_read_its_memory_by_a_name_that_is_gone(alone: Alone) -> None:
    group, backend = alone
    (device,) = backend.devices
    if backend.engine == "sync":
        pytest.skip("nothing is queued behind a reader")
    # Two arrays: they are summed in other memory, and the sum is then copied to theirs.
    x, y = (backend.asarray(np.arange(4, dtype=np.float32), device) for _ in range(2))
    parts = backend.launch(backend.ops.split, x, (2, 2))
    copy = backend.copy_to(parts[-1], HOST)
    name, deadline = weakref.ref(parts), monotonic() + 20
    del parts
    while name() is not None:
        assert monotonic() < deadline
        sleep(0.001)
    summed = group.sum((x, y))
    group.waitall()
    assert backend.to_numpy(copy).tolist() == [2, 3]
    assert backend.to_numpy(summed[0]).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("of_other", "hosts", "refused"),
    [("GPU-1", ("here", "here"), True), ("GPU-2", ("here", "here"), False), ("GPU-1", ("here", "there"), False)],
)
def test_ranks_on_one_gpu_are_refused(of_other: str, hosts: tuple[str, str], refused: bool) -> None:
    torch = pytest.importorskip("torch")
    from backends.torch.process_group import check_gpus

    store = torch.distributed.HashStore()
    store.set("GPU of 1", f"{hosts[1]}: {of_other}")
    with pytest.raises(BackendError, match="ranks 0, 1 share a GPU") if refused else nullcontext():
        check_gpus(store, 0, hosts, "GPU-1")
