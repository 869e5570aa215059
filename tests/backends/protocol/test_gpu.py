"""The verbs on GPUs, where there are any; nowhere else is this code run.

For all lists of devices but the last one GPU is enough: a CPU device beside it, and two streams on
it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import backends
from backends import HOST, Array, Backend, BackendError
from parallel_core import run_overlap
from parallel_core.training.batches import Settings
from tests.backends.protocol.arrays import assert_equal, computed, full, products
from tests.backends.protocol.training import losses

DEVICES = pytest.mark.parametrize(
    "devices", ["gpu:0", "cpu:1,gpu:0", "gpu:0,cpu:1", "gpu:0/0,gpu:0/1", "gpu:0,gpu:1"]
)
FRAMEWORKS = pytest.mark.parametrize("framework", ["mxnet", "torch"])
OnGpus = Callable[..., Backend]


@FRAMEWORKS
def test_overlap_on_one_gpu_copies_to_the_host(on_gpus: OnGpus, framework: str) -> None:
    result = run_overlap(on_gpus(framework, "gpu:0"), size=1000, copies=1, rounds=2)
    assert result.problems == ()
    assert set(result.metrics) == {
        "overlap_efficiency",
        "book_overlap_efficiency",
        "price_of_overlap",
    }


@pytest.mark.parametrize("framework", ["mxnet", "torch", "torch copy-on-compute-queue"])
@DEVICES
@pytest.mark.parametrize("into", ["buffer", "new memory"])
def test_a_copy_to_any_device_is_read_when_it_is_done(
    on_gpus: OnGpus, framework: str, devices: str, into: str
) -> None:
    name, *variants = framework.split()
    backend = on_gpus(name, devices, *variants)
    # Each of ten multiplications doubles the numbers.
    x = np.full((1000, 1000), 2 / 1000, dtype=np.float32)
    expected = 2**10 * x

    def double(y: Array) -> Array:
        return y + y

    for source in backend.devices:
        for target in (*backend.devices, HOST):
            product = products(backend, backend.asarray(x, source))
            buffer = backend.asarray(np.zeros_like(x), target) if into == "buffer" else None
            copy = backend.copy_to(product, target, out=buffer)
            del product
            copy_back = backend.copy_to(copy, source)
            doubled = backend.launch(double, copy)
            doubled_back = backend.launch(double, copy_back)
            np.testing.assert_allclose(backend.to_numpy(doubled), 2 * expected, rtol=1e-3)
            np.testing.assert_allclose(backend.to_numpy(doubled_back), 2 * expected, rtol=1e-3)
            np.testing.assert_allclose(backend.to_numpy(copy), expected, rtol=1e-3)


@FRAMEWORKS
@DEVICES
def test_memory_is_not_used_again_before_its_copies_are_done(
    on_gpus: OnGpus, framework: str, devices: str
) -> None:
    backend = on_gpus(framework, devices)
    copies = []
    for step in range(50):
        x = full(backend, step, 10**5)
        increased = backend.launch(lambda y: y + 1, x)
        copies.append(backend.copy_to(increased, backend.devices[-1]))
        # Their memory may be used again from now on.
        del x, increased
    for step, copy in enumerate(copies):
        assert_equal(backend, copy, np.full(10**5, step + 1))


@FRAMEWORKS
@DEVICES
def test_training_on_unlike_devices_gives_numpy_s_losses(
    on_gpus: OnGpus, framework: str, devices: str
) -> None:
    on_devices = losses(on_gpus(framework, devices), 300, Settings(1, 64))
    in_numpy = losses(backends.load("numpy", 1, threads_per_device=1), 300, Settings(1, 64))
    np.testing.assert_allclose(on_devices, in_numpy, rtol=1e-4)


@pytest.mark.parametrize("devices", ["gpu:0", "gpu:0/0,gpu:0/1", "gpu:0,gpu:1"])
def test_a_training_that_is_replayed_gives_the_same_losses(devices: str, on_gpus: OnGpus) -> None:
    # Every epoch ends with a batch of another size, whose kernels are replayed from the third epoch
    # on.
    replayed = losses(on_gpus("torch", devices, "graph-replay"), 300, Settings(5, 64))
    issued = losses(on_gpus("torch", devices), 300, Settings(5, 64))
    np.testing.assert_allclose(replayed, issued, rtol=1e-4)


@FRAMEWORKS
@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_of_no_class_leaves_the_gpu_to_others(
    on_gpus: OnGpus, framework: str, label: int
) -> None:
    # A GPU that reads such a label fails at every call from then on, whoever makes it.
    def loss(backend: Backend, label: int) -> Any:
        """Return the loss of two rows with equal scores for three classes."""
        labels = backend.asarray(np.full(2, label, np.int32), backend.devices[0])
        return computed(backend, backend.ops.cross_entropy, full(backend, 0, 2, 3), labels)

    backend = on_gpus(framework, "gpu:0")
    with pytest.raises(BackendError):
        loss(backend, label)
    loaded_anew = on_gpus(framework, "gpu:0")
    np.testing.assert_allclose(loss(loaded_anew, 0), 2 * np.log(3), rtol=1e-5)


@pytest.mark.parametrize(("variant", "is_on"), [("tf32-off", False), ("tf32", True)])
def test_tensorfloat_is_off_unless_asked_for(variant: str, is_on: bool, on_gpus: OnGpus) -> None:
    backend = on_gpus("torch", 1, variant)
    import torch

    assert torch.backends.cuda.matmul.allow_tf32 == is_on
    assert torch.backends.cudnn.allow_tf32 == is_on
    assert backend.settings["torch.backends.cuda.matmul.allow_tf32"] == str(is_on)
