"""The verbs on GPUs, where there are any; nowhere else is this code run."""

from collections.abc import Callable

import numpy as np
import pytest

import backends
from backends import Backend, BackendError
from parallel_core.dataset import synthetic
from parallel_core.training import Settings, get_params, train


@pytest.fixture(params=["mxnet", "torch"])
def gpus(request: pytest.FixtureRequest, engine: str) -> Callable[[int], Backend]:
    def load(count: int) -> Backend:
        try:
            return backends.load(request.param, count, "gpu", engine, 1)
        except BackendError as error:
            pytest.skip(str(error))

    return load


@pytest.mark.parametrize("count", [1, 2])
def test_a_copy_is_ordered_after_its_source_and_before_its_use(gpus: Callable[[int], Backend], count: int) -> None:
    backend = gpus(count)
    first, last = backend.devices[0], backend.devices[-1]
    x = np.full((2000, 2000), 1 / 2000, dtype=np.float32)
    y = loaded = backend.asarray(x, first)
    for _ in range(20):
        y = backend.launch(backend.ops.matmul, y, loaded)
    buffer = backend.copy_to(loaded, last)
    copy = backend.copy_to(y, last, out=buffer)
    del y
    doubled = backend.launch(lambda z: z + z, copy)
    np.testing.assert_allclose(backend.to_numpy(doubled), 2 * x, rtol=1e-3)


@pytest.mark.parametrize("count", [1, 2])
def test_every_gpu_gets_the_sum(gpus: Callable[[int], Backend], count: int) -> None:
    backend = gpus(count)
    ones = np.ones(1000, dtype=np.float32)
    for total in backend.allreduce([backend.asarray(ones, device) for device in backend.devices]):
        np.testing.assert_array_equal(backend.to_numpy(total), count * ones)


@pytest.mark.parametrize("count", [1, 2])
def test_losses_equal_numpy_s(gpus: Callable[[int], Backend], count: int) -> None:
    data, settings = synthetic("a test needs no more", train=300, test=50), Settings(1, 64)

    def losses(backend: Backend) -> tuple[float, ...]:
        return next(train(backend, [get_params(backend, device) for device in backend.devices], data, settings)).losses

    expected = losses(backends.load("numpy", devices=1, threads_per_device=1))
    np.testing.assert_allclose(losses(gpus(count)), expected, rtol=1e-4)
