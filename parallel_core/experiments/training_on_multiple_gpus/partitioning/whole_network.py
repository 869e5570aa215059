"""The original problem: the whole network on the first device."""

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.training_on_multiple_gpus.partitioning import network
from parallel_core.experiments.training_on_multiple_gpus.partitioning.network import Parameters
from parallel_core.experiments.training_on_multiple_gpus.partitioning.strategy import Strategy

__all__ = ["ONE_DEVICE"]


def place(backend: Backend, parameters: Parameters) -> Array:
    """Load all parameters on the first device."""
    return backend.asarray(parameters, backend.devices[0])


def load(backend: Backend, images: np.ndarray, labels: np.ndarray) -> Array:
    """Load the batch on the first device."""
    return backend.asarray((images, labels), backend.devices[0])


def step(backend: Backend, placed: Array, batch: Array, rate: float) -> Array:
    """Launch a step on the first device."""
    ops = backend.ops
    computed = backend.launch(ops.value_and_grad(network.loss(ops)), placed, *batch)
    return backend.launch(network.update(ops, rate), placed, computed[1])


def gather(backend: Backend, placed: Array) -> Parameters:
    """Return the parameters."""
    return tuple(backend.to_numpy(placed))


ONE_DEVICE = Strategy(place, load, step, gather)
