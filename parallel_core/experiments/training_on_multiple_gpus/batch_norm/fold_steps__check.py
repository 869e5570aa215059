"""How far a step is from that of one device, and from NumPy's. Everything is in float64."""

from collections.abc import Sequence
from statistics import mean

import numpy as np

import backends
from backends import Backend
from parallel_core.experiments.training_on_multiple_gpus.batch_norm import steps
from parallel_core.experiments.training_on_multiple_gpus.batch_norm.network import initial_parameters, made_up_batch
from parallel_core.experiments.training_on_multiple_gpus.batch_norm.steps import Gradients
from parallel_core.measurement.timing import largest_of, relative_error

__all__ = ["difference", "error_per_device"]

DRAWS = 3
"""Batches over which a difference is averaged."""


def difference(backend: Backend, gradients: Gradients, rows: int) -> float:
    """Return by how much a step on so many rows differs from NumPy's on one device, averaged over a few batches.

    The largest difference is a share of the parameter's largest change.
    """
    one = backends.load("numpy", devices=1, threads_per_device=backend.threads_per_device)
    initial = initial_parameters()
    batches = [made_up_batch(rows, seed) for seed in range(1, DRAWS + 1)]
    return mean(
        apart(steps.change(backend, gradients, initial, *batch), steps.change(one, steps.per_device, initial, *batch))
        for batch in batches
    )


def error_per_device(backend: Backend, rows: int) -> float:
    """Return by how much a step with statistics per device differs from NumPy's on as many devices."""
    reference = backends.load("numpy", devices=len(backend.devices), threads_per_device=backend.threads_per_device)
    found, expected = (
        steps.change(on, steps.per_device, initial_parameters(), *made_up_batch(rows)) for on in (backend, reference)
    )
    return apart(found, expected)


def apart(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """Return the largest relative error of several arrays; NaN where one holds it."""
    return largest_of([relative_error(*pair) for pair in zip(found, expected, strict=True)])
