"""Data parallelism: every device holds the whole network and computes the gradients of its share of the batch.

Devices meet once a step, to add up their gradients. What travels is as large as the parameters, whatever the batch is.
"""

from collections.abc import Sequence

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.training_on_multiple_gpus.partitioning import network
from parallel_core.experiments.training_on_multiple_gpus.partitioning.network import Parameters
from parallel_core.experiments.training_on_multiple_gpus.partitioning.strategy import Strategy

__all__ = ["DATA_PARALLELISM"]


def _place(backend: Backend, parameters: Parameters) -> Array:
    return [backend.asarray(parameters, device) for device in backend.devices]


def _load(backend: Backend, images: np.ndarray, labels: np.ndarray) -> Array:
    shards = (backend.split_and_load(x, backend.devices) for x in (images, labels))
    return list(zip(*shards, strict=True))


def _step(backend: Backend, replicas: Sequence[Array], shards: Sequence[Array], rate: float) -> Array:
    ops = backend.ops
    differentiate = ops.value_and_grad(network.loss(ops))
    computed = [backend.launch(differentiate, own, *shard) for own, shard in zip(replicas, shards, strict=True)]
    sums = backend.allreduce([of_device[1] for of_device in computed])
    return [backend.launch(network.update(ops, rate), own, total) for own, total in zip(replicas, sums, strict=True)]


def _gather(backend: Backend, replicas: Sequence[Array]) -> Parameters:
    """Return the last device's parameters, which are like all others'."""
    return tuple(backend.to_numpy(replicas[-1]))


DATA_PARALLELISM = Strategy(_place, _load, _step, _gather)
