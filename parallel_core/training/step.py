"""One step as the book does it: split the batch, differentiate on every device, sum, update on every device.

Book: Dive into Deep Learning, "Training on Multiple GPUs". No framework is named here; every value passes from verb
to verb, so that the code shows the schedule.
"""

from collections.abc import Sequence

import numpy as np

from backends import Array, Backend, Device
from parallel_core.training.gradient_exchange import Bucket, buckets_of, exchange
from parallel_core.training.lenet import initial_parameters, loss_and_gradients, shapes

__all__ = ["PARAMETERS", "devices_of", "get_params", "guards", "launch_gradients", "split_batch", "train_batch"]

PARAMETERS = len(shapes())
EXCHANGED_TOGETHER = buckets_of("after", PARAMETERS)


def get_params(backend: Backend, device: Device, seed: int = 0, width: int = 1) -> Array:
    """Load the initial parameters on a device."""
    return backend.asarray(initial_parameters(seed, width), device)


def split_batch(
    backend: Backend, images: np.ndarray, labels: np.ndarray, devices: Sequence[Device]
) -> list[tuple[Array, Array]]:
    """Divide a batch's rows over the devices: (images, labels) for each."""
    return list(zip(backend.split_and_load(images, devices), backend.split_and_load(labels, devices), strict=True))


def train_batch(
    backend: Backend,
    params: Sequence[Array],
    images: np.ndarray,
    labels: np.ndarray,
    learning_rate: float,
    guarded: Sequence[Array],
    buckets: Sequence[Bucket] = EXCHANGED_TOGETHER,
) -> tuple[list[Array], list[Array], list[Array]]:
    """Launch one step on the global batch; return new parameters, guards and the summed losses, one per device each.

    The gradients are of the sum over the global batch, so dividing the rate by its size makes the step the same for
    any number of devices. A gradient that is not finite on any device makes every device's sum so, and all devices keep
    their parameters, in this step and in all later ones with its guards. The parameters are consumed.
    """
    steps = launch_gradients(backend, params, images, labels)
    gradients = exchange(backend, [step[1] for step in steps], buckets)
    rate = learning_rate / len(images)
    update = backend.ops.sgd_while_finite
    updated = [
        backend.launch(update, p, g, rate, guard) for p, g, guard in zip(params, gradients, guarded, strict=True)
    ]
    return [new[0] for new in updated], [new[1] for new in updated], [step[0] for step in steps]


def guards(backend: Backend, params: Sequence[Array]) -> list[Array]:
    """Load a guard for each device that holds parameters, for `ops.sgd_while_finite`: no step was refused yet."""
    return [backend.asarray(np.ones(1, np.float32), device) for device in devices_of(backend, params)]


def devices_of(backend: Backend, params: Sequence[Array]) -> tuple[Device, ...]:
    """Return the devices that hold the parameters: as many of the first ones as there are values."""
    return backend.devices[: len(params)]


def launch_gradients(backend: Backend, params: Sequence[Array], images: np.ndarray, labels: np.ndarray) -> list[Array]:
    """Launch (sum of the rows' losses, its gradients) for each device's share of a batch."""
    compute = loss_and_gradients(backend.ops)
    shards = split_batch(backend, images, labels, devices_of(backend, params))
    return [backend.launch(compute, p, x, y) for p, (x, y) in zip(params, shards, strict=True)]
