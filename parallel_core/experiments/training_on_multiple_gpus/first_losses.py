"""The first losses of a training, on some of the devices and in NumPy on one: the same numbers, up to rounding."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

import backends
from backends import Array, Backend
from parallel_core.experiments.runner.trial import Trial
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import initial_parameters
from parallel_core.training.loop import continue_training, ignore

__all__ = [
    "Parameters",
    "check_first_losses",
    "enlarged_start",
    "first_losses",
    "numpy_losses",
    "placed",
    "tested_on",
]

CHECKED_BATCHES = 3
NUMPY_SECONDS = 2.0
"""No further batch is begun after so long: NumPy takes seconds for a large one, or for a wide network."""

Parameters = tuple[np.ndarray, ...]


def check_first_losses(
    trial: Trial,
    data: Dataset,
    settings: Settings,
    losses: Sequence[float],
    start: Parameters | None = None,
    on_batch: Callable[[int, int], object] = ignore,
) -> None:
    """Compare the first losses with those of NumPy on one device.

    `start` are the initial parameters; None takes the book's. `on_batch` is called as in `training.train`.
    """
    start = start or initial_parameters(settings.seed, settings.width)
    expected = numpy_losses(data, settings, start, min(CHECKED_BATCHES, len(losses)), on_batch)
    trial.check("first losses", [np.array(losses[: len(expected)])], [np.array(expected)])


def numpy_losses(
    data: Dataset,
    settings: Settings,
    start: Parameters,
    count: int = CHECKED_BATCHES,
    on_batch: Callable[[int, int], object] = ignore,
) -> tuple[float, ...]:
    """Return the first losses of NumPy on one device: so many, or as many as it begins within `NUMPY_SECONDS`."""
    reference = backends.load("numpy", devices=1, threads_per_device=1)
    return first_losses(reference, 1, data, settings, start, count, NUMPY_SECONDS, on_batch)


def first_losses(
    backend: Backend,
    devices: int,
    data: Dataset,
    settings: Settings,
    start: Parameters,
    count: int = CHECKED_BATCHES,
    seconds: float = math.inf,
    on_batch: Callable[[int, int], object] = ignore,
) -> tuple[float, ...]:
    """Train on the first devices for so many batches, or as many as begin within some seconds; return their losses."""
    until = perf_counter() + seconds
    few = replace(settings, epochs=1, limit=count)
    params = placed(backend, start, devices)
    every = 1 if seconds < math.inf else None
    for so_far in continue_training(backend, params, tested_on(data, slice(1)), few, on_batch, every=every):
        losses = so_far.losses
        if perf_counter() > until:
            break
    return losses


def placed(backend: Backend, parameters: Parameters, count: int) -> list[Array]:
    """Load a network on each of so many first devices."""
    return [backend.asarray(parameters, device) for device in backend.devices[:count]]


def enlarged_start(seed: int, scale: float) -> Parameters:
    """Draw the book's initial parameters, so many times as large.

    From the book's own, the first losses hardly depend on the gradients: a wrong sum of them would not show.
    """
    return tuple(np.float32(scale) * parameter for parameter in initial_parameters(seed))


def tested_on(data: Dataset, images: slice) -> Dataset:
    """Return the data with some of the test images only."""
    return replace(data, test_images=data.test_images[images], test_labels=data.test_labels[images])
