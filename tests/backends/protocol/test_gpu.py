"""The verbs on GPUs, where there are any; nowhere else is this code run.

For all lists of devices but the last one GPU is enough: a CPU device beside it, and two streams on
it.
"""

from collections.abc import Callable

import numpy as np
import pytest

import backends
from backends import HOST, Backend, BackendError
from parallel_core import run_overlap
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import synthetic
from parallel_core.training.loop import train
from parallel_core.training.step import get_params
from tests.backends.protocol.arrays import assert_equal, full, products

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
    # Each multiplication doubles the numbers.
    x = np.full((1000, 1000), 2 / 1000, dtype=np.float32)
    for source in backend.devices:
        for destination in (*backend.devices, HOST):
            product = products(backend, backend.asarray(x, source))
            buffer = backend.asarray(np.zeros_like(x), destination) if into == "buffer" else None
            copy = backend.copy_to(product, destination, out=buffer)
            del product
            copy_back = backend.copy_to(copy, source)
            doubled = backend.launch(lambda z: z + z, copy)
            doubled_back = backend.launch(lambda z: z + z, copy_back)
            expected = 2**10 * x
            for value, factor in ((doubled, 2), (doubled_back, 2), (copy, 1)):
                found = backend.to_numpy(value)
                np.testing.assert_allclose(found, factor * expected, rtol=1e-3)


@FRAMEWORKS
@DEVICES
def test_memory_is_not_used_again_before_its_copies_are_done(
    on_gpus: OnGpus, framework: str, devices: str
) -> None:
    backend = on_gpus(framework, devices)
    copies = []
    for step in range(50):
        x = full(backend, step, 10**5)
        increased = backend.launch(lambda z: z + 1, x)
        copies.append(backend.copy_to(increased, backend.devices[-1]))
        del x, increased
    for step, copy in enumerate(copies):
        assert_equal(backend, copy, np.full(10**5, step + 1))


@FRAMEWORKS
@DEVICES
@pytest.mark.parametrize("length", [3, 10**6])
def test_every_device_gets_the_sum(
    on_gpus: OnGpus, framework: str, devices: str, length: int
) -> None:
    backend = on_gpus(framework, devices)
    xs = [full(backend, k + 1, length, device=k) for k in range(len(backend.devices))]
    for _ in range(3):
        xs = list(backend.allreduce([backend.launch(lambda z: z / 2, x) for x in xs]))
    expected = 1.5 if len(xs) == 2 else 1 / 8
    for total in xs:
        assert_equal(backend, total, np.full(length, expected))


def losses(backend: Backend, epochs: int) -> list[tuple[float, ...]]:
    """Train on a backend's devices, and return the losses of every epoch."""
    data = synthetic("a test needs no more", train=300, test=50)
    params = [get_params(backend, device) for device in backend.devices]
    return [epoch.losses for epoch in train(backend, params, data, Settings(epochs, 64))]


@FRAMEWORKS
@DEVICES
def test_training_on_unlike_devices_gives_numpy_s_losses(
    on_gpus: OnGpus, framework: str, devices: str
) -> None:
    backend = on_gpus(framework, devices)
    reference = backends.load("numpy", devices=len(backend.devices), threads_per_device=1)
    np.testing.assert_allclose(losses(backend, 1), losses(reference, 1), rtol=1e-4)


@pytest.mark.parametrize("devices", ["gpu:0", "gpu:0/0,gpu:0/1", "gpu:0,gpu:1"])
def test_a_training_that_is_replayed_gives_the_same_losses(devices: str, on_gpus: OnGpus) -> None:
    # Every epoch ends with a batch of another size, whose kernels are replayed from the third epoch
    # on.
    replayed = losses(on_gpus("torch", devices, "graph-replay"), 5)
    np.testing.assert_allclose(replayed, losses(on_gpus("torch", devices), 5), rtol=1e-4)


@FRAMEWORKS
@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_of_no_class_leaves_the_gpu_to_others(
    on_gpus: OnGpus, framework: str, label: int
) -> None:
    # A GPU that reads such a label fails at every call from then on, whoever makes it.
    backend = on_gpus(framework, "gpu:0")
    (device,) = backend.devices
    scores, labels = np.zeros((2, 3), np.float32), np.full(2, label, np.int32)
    with pytest.raises(BackendError):
        loaded = [backend.asarray(x, device) for x in (scores, labels)]
        backend.wait(backend.launch(backend.ops.cross_entropy, *loaded))
    again = on_gpus(framework, "gpu:0")
    loaded = [again.asarray(x, device) for x in (scores, 0 * labels)]
    loss = again.to_numpy(again.launch(again.ops.cross_entropy, *loaded))
    np.testing.assert_allclose(loss, 2 * np.log(3), rtol=1e-5)


@pytest.mark.parametrize("variant", ["tf32-off", "tf32"])
def test_tensorfloat_is_off_unless_asked_for(variant: str, on_gpus: OnGpus) -> None:
    backend, is_on = on_gpus("torch", 1, variant), variant == "tf32"
    import torch

    assert torch.backends.cuda.matmul.allow_tf32 == torch.backends.cudnn.allow_tf32 == is_on
    assert backend.settings["torch.backends.cuda.matmul.allow_tf32"] == str(is_on)
