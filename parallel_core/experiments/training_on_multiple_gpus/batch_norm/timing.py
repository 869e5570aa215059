"""Take steps in float32: timed, or recorded."""

from functools import partial

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.measuring import time_in_turn
from parallel_core.experiments.training_on_multiple_gpus.batch_norm import steps
from parallel_core.experiments.training_on_multiple_gpus.batch_norm.network import initial_parameters, made_up_batch
from parallel_core.experiments.training_on_multiple_gpus.batch_norm.steps import WAYS, Gradients
from parallel_core.measurement.recording import Recording
from parallel_core.measurement.result import Case
from parallel_core.measurement.task_graph import Task

__all__ = ["record_step", "time_steps"]

STEPS = 10
"""So many steps are taken in one timing."""
RATE = 0.1


def time_steps(backend: Backend, rows: int, rounds: int) -> dict[str, Case]:
    """Time a step with so many rows per device either way, several in a row; return the cases, of one step each."""
    batch = len(backend.devices) * rows
    placed = {name: load_in_single_precision(backend, batch) for name in WAYS}

    def take_steps(name: str) -> Array:
        replicas, shards = placed[name]
        for _ in range(STEPS):
            replicas = steps.step(backend, WAYS[name], replicas, shards, batch, RATE)
        placed[name] = replicas, shards
        return replicas

    return time_in_turn(
        backend, {name: partial(take_steps, name) for name in WAYS}, rounds, repeats=dict.fromkeys(WAYS, STEPS)
    )


def record_step(backend: Backend, gradients: Gradients, batch: int) -> tuple[Task, ...]:
    """Take a step in float32 and return its tasks."""
    recording = Recording(backend)
    steps.step(recording, gradients, *load_in_single_precision(recording, batch), batch, RATE)
    return recording.tasks


def load_in_single_precision(backend: Backend, batch: int) -> tuple[list[Array], Array]:
    """Load parameters and a batch of so many rows: (replicas, shards)."""
    x, labels = made_up_batch(batch)
    single = tuple(parameter.astype(np.float32) for parameter in initial_parameters())
    return steps.load(backend, single, x.astype(np.float32), labels)
