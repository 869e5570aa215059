"""A few steps of a training in place of an epoch, for its steps are all alike: to be profiled, or for their kernels."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from backends import Array, Backend
from parallel_core.experiments.training_on_multiple_gpus.steps_as_units import Step, bare_seconds
from parallel_core.measurement.result import Timing
from parallel_core.measurement.timing import if_repeatable
from parallel_core.training.batches import Settings, batches
from parallel_core.training.dataset import Dataset
from parallel_core.training.gradient_exchange import Bucket, count_reduced_early
from parallel_core.training.loop import train_epoch
from parallel_core.training.progress import Epoch
from parallel_core.training.step import get_params, guards, launch_gradients, train_batch

__all__ = ["bare_epoch_seconds", "buckets_reduced_early", "one_step", "repeated_steps", "time_steps"]

STEPS = 5
BARE_ROUNDS = 5
BARE_BUDGET = 0.5
"""Seconds."""


def repeated_steps(
    backend: Backend, place: Callable[[], list[Array]], data: Dataset, settings: Settings, epoch: Epoch
) -> tuple[Callable[[], Timing] | None, float]:
    """Return what repeats some steps of an epoch, if cases are to keep it, and the share of the epoch that they are.

    `place` gives the parameters to go on from, one value per device; they are kept up to date.
    """
    steps = min(STEPS, len(epoch.losses))
    few = replace(settings, limit=steps)
    return if_repeatable(lambda: time_steps(backend, place(), data, few)), steps / len(epoch.losses)


def bare_epoch_seconds(
    backend: Backend, devices: int, data: Dataset, settings: Settings, epoch: Epoch
) -> tuple[float, ...]:
    """Time the gradients and updates of a step on each of the first devices; return what those of the epoch take.

    Neither loading and exchange nor the test set, which the epoch's seconds do not include, are part of it.
    """
    # The last batch may be smaller, so it is images that are counted.
    share = epoch.images / min(settings.batch_size, len(data.train_labels))
    step = one_step(devices, data, settings)
    return tuple(share * seconds for seconds in bare_seconds(backend, step, BARE_ROUNDS, BARE_BUDGET))


def one_step(devices: int, data: Dataset, settings: Settings) -> Step:
    """Make the function that takes the first step of a training on the first devices, with parameters of its own."""

    def take(backend: Backend) -> object:
        params = [get_params(backend, d, settings.seed, settings.width) for d in backend.devices[:devices]]
        (batch,) = batches(data, settings, epoch=1, steps=slice(1))
        # At rate 0 the numbers stay as they are however often it is repeated.
        return train_batch(backend, params, *batch, 0.0, guards(backend, params))

    return take


def buckets_reduced_early(
    backend: Backend, params: Sequence[Array], data: Dataset, settings: Settings, buckets: Sequence[Bucket]
) -> float:
    """Count the buckets that are reduced before the backward pass has ended: the median over a few untimed steps."""
    if len(buckets) == 1:
        # It holds the last gradient too.
        return 0
    few = replace(settings, limit=min(STEPS, settings.limit or STEPS))
    return median(
        count_reduced_early(backend, [step[1] for step in launch_gradients(backend, params, *batch)], buckets)
        for batch in batches(data, few, epoch=0)
    )


def time_steps(backend: Backend, params: list[Array], data: Dataset, settings: Settings) -> Timing:
    """Train for an epoch, as short as the settings limit it; return its timing."""
    epoch = train_epoch(backend, params, data, settings, number=settings.epochs + 1)
    return epoch.dispatch_seconds, epoch.seconds
