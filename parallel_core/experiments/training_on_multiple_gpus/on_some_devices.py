"""Training on 1, 2, 4, … of the loaded devices: with which batches, and the first losses, which equal NumPy's.

There are two ways: divide the same batch further, or give every device the whole of it.
"""

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

FIXED, SCALED = "fixed batch", "scaled batch"
CHECKED_BATCHES = 3
NUMPY_SECONDS = 2.0
"""NumPy takes seconds for a large batch, or for a wide network."""

Parameters = tuple[np.ndarray, ...]


def plans(batch_size: int, loaded: int) -> dict[tuple[str, int], int]:
    """Return the global batch for each kind of batch and number of devices; on one device there is one kind."""
    return {
        (kind, count): batch_size * (count if kind == SCALED else 1)
        for count in device_counts(loaded)
        for kind in ((FIXED, SCALED) if count > 1 else (FIXED,))
    }


def device_counts(loaded: int) -> tuple[int, ...]:
    """Return 1, 2, 4, … up to the number of loaded devices, and that number itself."""
    return tuple(sorted({*(2**power for power in range(loaded.bit_length())), loaded}))


def counted_devices(count: int) -> str:
    """Write a number of devices."""
    return "1 device" if count == 1 else f"{count} devices"


def case_name(kind: str, count: int, loaded: int = 0) -> str:
    """Name a kind of batch on some devices; all that are loaded have the same name however many they are."""
    if count == 1:
        return counted_devices(1)
    return f"{'all devices' if count == loaded else counted_devices(count)}, {kind}"


def check_first_losses(
    trial: Trial,
    data: Dataset,
    settings: Settings,
    start: Parameters,
    *losses: Sequence[float],
    on_batch: Callable[[int, int], object] = ignore,
) -> None:
    """Compare the first losses of one or more trainings from a start with those of NumPy on one device.

    `on_batch` is called as in `training.train`. What NumPy does not begin within `NUMPY_SECONDS` is not compared.
    """
    reference = backends.load("numpy", devices=1, threads_per_device=1)
    count = min(CHECKED_BATCHES, *map(len, losses))
    expected = first_losses(reference, 1, data, settings, start, count, NUMPY_SECONDS, on_batch)
    trial.check("first losses", [np.array(own[: len(expected)]) for own in losses], [np.array(expected)] * len(losses))


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
