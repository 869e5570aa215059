"""What a way to divide a network over devices consists of, and the two simplest: not at all, and data parallelism."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.training_on_multiple_gpus.partitioning import network
from parallel_core.experiments.training_on_multiple_gpus.partitioning.network import Parameters

__all__ = ["DATA_PARALLELISM", "ONE_DEVICE", "Strategy"]


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


def _take_one_step(backend: Backend, placed: Array, batch: Array, rate: float) -> Array:
    ops = backend.ops
    computed = backend.launch(ops.value_and_grad(network.loss(ops)), placed, *batch)
    return backend.launch(network.update(ops, rate), placed, computed[1])


ONE_DEVICE = Strategy(
    place=lambda backend, parameters: backend.asarray(parameters, backend.devices[0]),
    load=lambda backend, images, labels: backend.asarray((images, labels), backend.devices[0]),
    step=_take_one_step,
    gather=lambda backend, placed: tuple(backend.to_numpy(placed)),
)


def _divide_rows(backend: Backend, images: np.ndarray, labels: np.ndarray) -> Array:
    shards = (backend.split_and_load(x, backend.devices) for x in (images, labels))
    return list(zip(*shards, strict=True))


def _step_together(backend: Backend, replicas: Sequence[Array], shards: Sequence[Array], rate: float) -> Array:
    ops = backend.ops
    differentiate = ops.value_and_grad(network.loss(ops))
    computed = [backend.launch(differentiate, own, *shard) for own, shard in zip(replicas, shards, strict=True)]
    sums = backend.allreduce([of_device[1] for of_device in computed])
    return [backend.launch(network.update(ops, rate), own, total) for own, total in zip(replicas, sums, strict=True)]


DATA_PARALLELISM = Strategy(
    place=lambda backend, parameters: [backend.asarray(parameters, device) for device in backend.devices],
    load=_divide_rows,
    step=_step_together,
    # The last device's parameters are like all others'.
    gather=lambda backend, replicas: tuple(backend.to_numpy(replicas[-1])),
)
"""Every device holds the whole network and computes the gradients of its share of the batch.

Devices meet once a step, to add up their gradients. What travels is as large as the parameters, whatever the batch is.
"""
