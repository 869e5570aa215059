"""A data-parallel step with batch normalisation, by the statistics of each device's rows or of the global batch."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import mean
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

import backends
from backends import Array, Backend
from parallel_core.experiments.measuring import largest_error, time_in_turn
from parallel_core.experiments.training_on_multiple_gpus.batch_norm import network
from parallel_core.experiments.training_on_multiple_gpus.batch_norm.network import (
    Parameters,
    initial_parameters,
    synthetic_batch,
)
from parallel_core.experiments.training_on_multiple_gpus.steps_as_units import units_of
from parallel_core.measurement.recording import Recording
from parallel_core.measurement.result import Case
from parallel_core.measurement.task_graph import Task

__all__ = [
    "PER_DEVICE",
    "SYNCHRONISED",
    "WAYS",
    "Gradients",
    "change",
    "difference",
    "load",
    "per_device",
    "record_step",
    "step",
    "synchronised",
    "time_steps",
]

PER_DEVICE, SYNCHRONISED = "statistics per device", "synchronised statistics"
DRAWS = 3
"""Batches over which a difference is averaged."""
STEPS = 5
"""Steps in one timing."""
RATE = 0.1

Gradients: TypeAlias = Callable[[Backend, Sequence[Array], Sequence[Array], int], Sequence[Array]]
"""(backend, every device's parameters, its (x, labels), rows over all devices) -> every device's gradients."""


def step(
    backend: Backend, gradients: Gradients, replicas: Sequence[Array], shards: Sequence[Array], rows: int, rate: float
) -> list[Array]:
    """Launch a step on a batch of so many rows, divided over the devices. The parameters are consumed."""
    sums = backend.allreduce(gradients(backend, replicas, shards, rows))
    return [backend.launch(backend.ops.sgd, own, s, rate / rows) for own, s in zip(replicas, sums, strict=True)]


def per_device(backend: Backend, replicas: Sequence[Array], shards: Sequence[Array], rows: int) -> list[Array]:
    """Launch every device's gradients, its rows normalised by their own mean and variance."""
    del rows
    differentiate = backend.ops.value_and_grad(network.loss(backend.ops))
    computed = [backend.launch(differentiate, own, *shard) for own, shard in zip(replicas, shards, strict=True)]
    return [of_device[1] for of_device in computed]


def synchronised(backend: Backend, replicas: Sequence[Array], shards: Sequence[Array], rows: int) -> list[Array]:
    """Launch every device's gradients, all rows normalised by the mean and variance of the global batch.

    The sums behind them are exchanged, and so are the gradients by these sums, for every device's loss depends on every
    device's rows through them. Sums weigh each row alike, however the rows are divided.
    """
    ops, each = backend.ops, list(zip(replicas, shards, strict=True))
    made = [backend.launch(network.with_sums(ops), own, x) for own, (x, _) in each]
    sums = backend.allreduce([of_device[1] for of_device in made])
    rest = [
        backend.launch(network.by_the_rest(ops, rows), own, of_device[0], total, labels)
        for (own, (_, labels)), of_device, total in zip(each, made, sums, strict=True)
    ]
    by_sums = backend.allreduce([of_device[2] for of_device in rest])
    first = [
        backend.launch(network.by_first_weight(ops), own, x, of_device[1], total)
        for (own, (x, _)), of_device, total in zip(each, rest, by_sums, strict=True)
    ]
    return [(weight, *(of_device[0][k] for k in range(4))) for weight, of_device in zip(first, rest, strict=True)]


def load(backend: Backend, parameters: Parameters, x: np.ndarray, labels: np.ndarray) -> tuple[list[Array], Array]:
    """Load the parameters on every device, and divide the rows over the devices: (replicas, shards)."""
    replicas = [backend.asarray(parameters, device) for device in backend.devices]
    shards = (backend.split_and_load(part, backend.devices) for part in (x, labels))
    return replicas, list(zip(*shards, strict=True))


def change(
    backend: Backend, gradients: Gradients, parameters: Parameters, x: np.ndarray, labels: np.ndarray
) -> list[np.ndarray]:
    """Take one step at rate 1 and return by how much each parameter changes, on the last device."""
    replicas, shards = load(backend, parameters, x, labels)
    *_, updated = step(backend, gradients, replicas, shards, len(x), 1.0)
    return [new - old for new, old in zip(backend.to_numpy(updated), parameters, strict=True)]


WAYS: Mapping[str, Gradients] = MappingProxyType({PER_DEVICE: per_device, SYNCHRONISED: synchronised})
"""How gradients are computed, by name."""


def difference(backend: Backend, gradients: Gradients, rows: int, devices: int = 1) -> float:
    """Return by how much a step differs from NumPy's with statistics per device, averaged over a few batches.

    NumPy has so many devices; `rows` are over all. The largest difference is a share of the parameter's largest change.
    """
    reference = backends.load("numpy", devices=devices, threads_per_device=backend.threads_per_device)
    initial = initial_parameters()
    batches = [synthetic_batch(rows, seed) for seed in range(1, DRAWS + 1)]
    return mean(
        largest_error(change(backend, gradients, initial, *batch), change(reference, per_device, initial, *batch))
        for batch in batches
    )


def time_steps(backend: Backend, rows: int, rounds: int, budget: float) -> dict[str, Case]:
    """Time a step with so many rows per device either way, several in a row; return the cases, of one step each.

    There are fewer rounds, but one at least, if they would take more than the budget of seconds.
    """
    batch = len(backend.devices) * rows
    placed = {name: _load_in_single_precision(backend, batch) for name in WAYS}

    def take_steps(name: str) -> Array:
        replicas, shards = placed[name]
        for _ in range(STEPS):
            replicas = step(backend, WAYS[name], replicas, shards, batch, RATE)
        placed[name] = replicas, shards
        return replicas

    work = {name: partial(take_steps, name) for name in WAYS}
    units = units_of(backend, {name: partial(_take_step, way, batch) for name, way in WAYS.items()}, STEPS)
    return time_in_turn(backend, work, rounds, dict.fromkeys(WAYS, STEPS), units, budget)


def record_step(backend: Backend, gradients: Gradients, batch: int) -> tuple[Task, ...]:
    """Take a step in float32 and return its tasks."""
    recording = Recording(backend)
    _take_step(gradients, batch, recording)
    return recording.tasks


def _take_step(gradients: Gradients, batch: int, backend: Backend) -> list[Array]:
    return step(backend, gradients, *_load_in_single_precision(backend, batch), batch, RATE)


def _load_in_single_precision(backend: Backend, batch: int) -> tuple[list[Array], Array]:
    """Load parameters and a batch of so many rows: (replicas, shards)."""
    x, labels = synthetic_batch(batch)
    single = tuple(parameter.astype(np.float32) for parameter in initial_parameters())
    return load(backend, single, x.astype(np.float32), labels)
