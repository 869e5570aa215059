"""What a way to divide a network over devices consists of, and the simplest one: the whole network on one device."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.training_on_multiple_gpus.partitioning import network
from parallel_core.experiments.training_on_multiple_gpus.partitioning.network import Parameters

__all__ = ["ONE_DEVICE", "Strategy"]


@dataclass(frozen=True)
class Strategy:
    """Four functions; what is placed and loaded is the strategy's own affair."""

    place: Callable[[Backend, Parameters], Array]
    """Load the parameters, or each device's part of them."""
    load: Callable[[Backend, np.ndarray, np.ndarray], Array]
    """Load images (n, 1, 28, 28) and labels (n,) to where they are needed."""
    step: Callable[[Backend, Array, Array, float], Array]
    """Launch a step of gradient descent: (backend, placed, loaded, rate) -> placed. What was placed is consumed."""
    gather: Callable[[Backend, Array], Parameters]
    """Wait for the parameters and put them together."""


def _place(backend: Backend, parameters: Parameters) -> Array:
    return backend.asarray(parameters, backend.devices[0])


def _load(backend: Backend, images: np.ndarray, labels: np.ndarray) -> Array:
    return backend.asarray((images, labels), backend.devices[0])


def _step(backend: Backend, placed: Array, batch: Array, rate: float) -> Array:
    ops = backend.ops
    computed = backend.launch(ops.value_and_grad(network.loss(ops)), placed, *batch)
    return backend.launch(network.update(ops, rate), placed, computed[1])


def _gather(backend: Backend, placed: Array) -> Parameters:
    return tuple(backend.to_numpy(placed))


ONE_DEVICE = Strategy(_place, _load, _step, _gather)
