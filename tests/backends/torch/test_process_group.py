"""PyTorch's group of processes on GPUs: a sum is queued behind what computes its terms, as a copy is."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from backends import Backend


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A group of one process, over gloo."""
    torch = pytest.importorskip("torch")
    monkeypatch.setitem(os.environ, "GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_a_value_of_a_gpu_is_summed_when_it_is_computed(on_made_up_gpus: Callable[..., tuple[Backend, Any]]) -> None:
    from backends.torch.process_group import TorchGroup

    backend, cuda = on_made_up_gpus("gpu:0")
    (device,) = backend.devices
    group = TorchGroup(backend._torch, backend, 0, ("here",))  # type: ignore[attr-defined]
    for step in range(3):
        term = backend.launch(backend.ops.add, backend.asarray(np.full(2, step, np.float32), device), 1.0)
        pair = group.sum((term, backend.asarray(np.float32([step]), device)))
        doubled = backend.launch(lambda first, second: (first + first, second), pair[0], pair[1])
        summed, other = backend.to_numpy(doubled)
        assert (summed.tolist(), other.tolist()) == ([2 * step + 2] * 2, [step])
    assert group.sum_on_host(np.float32([5])).tolist() == [5]
    group.waitall()
    assert cuda.races == []
