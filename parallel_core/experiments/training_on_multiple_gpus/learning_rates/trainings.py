"""Train once and keep what the lab asks for: the accuracy, the first losses, the times."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

import numpy as np

from backends import Array, Backend
from parallel_core.errors import MeasurementError
from parallel_core.experiments.training_on_multiple_gpus.first_losses import enlarged_start, error_against_numpy
from parallel_core.experiments.training_on_multiple_gpus.repeated_steps import bare_epoch_seconds, repeated_steps
from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import FIXED
from parallel_core.measurement.checks import largest_of, relative_error
from parallel_core.measurement.result import Case
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import Dataset
from parallel_core.training.divergence import NotFiniteError
from parallel_core.training.loop import evaluate, train
from parallel_core.training.progress import Epoch

__all__ = [
    "Plan",
    "Trained",
    "case_of",
    "device_difference",
    "error_of_first",
    "train_once",
    "with_batch",
]

FIRST_STEPS = 5

Plan = tuple[str, int]
"""A kind of batch and a number of devices."""


@dataclass(frozen=True)
class Trained:
    """What one training gave; without epochs if the loss did not stay finite."""

    settings: Settings
    accuracy: float
    epochs: tuple[Epoch, ...]

    @property
    def first_losses(self) -> tuple[float, ...]:
        """The losses of the first few steps."""
        return self.epochs[0].losses[:FIRST_STEPS] if self.epochs else ()


def with_batch(settings: Settings, times: int, rate: float) -> Settings:
    """Return settings for a batch so many times as large, and as many images in all."""
    limit = settings.limit and ceil(settings.limit / times)
    return replace(settings, batch_size=settings.batch_size * times, limit=limit, learning_rate=rate)


def train_once(
    backend: Backend,
    devices: int,
    data: Dataset,
    settings: Settings,
    scale: float,
    on_batch: Callable[[int, int], object],
) -> Trained:
    """Train on the first devices and return what came of it; a loss that is not finite ends it early."""
    params = _placed(backend, devices, settings, scale)
    try:
        epochs = tuple(train(backend, params, data, settings, on_batch))
    except NotFiniteError:
        # The network is evaluated as it was before the step that would have spoilt it.
        return Trained(settings, evaluate(backend, params, data), ())
    return Trained(settings, epochs[-1].accuracy, epochs)


def _placed(backend: Backend, devices: int, settings: Settings, scale: float) -> list[Array]:
    """Load the start of a training on the first devices."""
    start = enlarged_start(settings.seed, scale)
    return [backend.asarray(start, device) for device in backend.devices[:devices]]


def case_of(
    name: str, trainings: Sequence[Trained], backend: Backend, devices: int, data: Dataset, scale: float
) -> Case:
    """Make the case of all whole epochs; raises MeasurementError if there is none."""
    epochs = [epoch for trained in trainings for epoch in trained.epochs]
    if not epochs:
        raise MeasurementError(f"on {name} no loss stayed finite: choose lower --rates")
    settings = next(trained.settings for trained in trainings if trained.epochs)
    again, share = repeated_steps(
        backend, partial(_placed, backend, devices, settings, scale), data, settings, epochs[0]
    )
    return Case(
        name,
        tuple(epoch.seconds for epoch in epochs),
        tuple(epoch.dispatch_seconds for epoch in epochs),
        bare_seconds=bare_epoch_seconds(backend, devices, data, settings, epochs[0]),
        again=again,
        share=share,
    )


def device_difference(trained: Mapping[Plan, Sequence[Trained]]) -> float:
    """Return the largest relative difference of the first losses with the fixed batch from those of one device.

    The trainings of each plan stand in the same order. One that ended early on one side only counts as infinite.
    """
    return largest_of(
        relative_error(np.array(mine.first_losses), np.array(one.first_losses))
        for (kind, _), trainings in trained.items()
        if kind == FIXED
        for mine, one in zip(trainings, trained[FIXED, 1], strict=True)
    )


def error_of_first(data: Dataset, trained: Mapping[Plan, Sequence[Trained]], scale: float) -> float:
    """Return the largest relative difference of the first losses from NumPy's, for each plan's first whole training.

    What has the fixed batch is held against one device, so NumPy repeats that once.
    """
    whole = [
        next(one for one in trainings if one.epochs)
        for (kind, count), trainings in trained.items()
        if kind != FIXED or count == 1
    ]
    return largest_of(
        error_against_numpy(data, one.settings, one.first_losses, enlarged_start(one.settings.seed, scale))
        for one in whole
    )
