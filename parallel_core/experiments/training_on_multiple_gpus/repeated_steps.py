"""A few steps of a training, to be profiled in place of an epoch: its steps are all alike."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from backends import Array, Backend
from parallel_core.measurement.result import Timing
from parallel_core.measurement.timing import if_repeatable
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import Dataset
from parallel_core.training.loop import train_epoch
from parallel_core.training.progress import Epoch

__all__ = ["repeated_steps"]

STEPS = 5


def repeated_steps(
    backend: Backend, place: Callable[[], list[Array]], data: Dataset, settings: Settings, epoch: Epoch
) -> tuple[Callable[[], Timing] | None, float]:
    """Return what repeats some steps of an epoch, if cases are to keep it, and the share of the epoch that they are.

    `place` gives the parameters to go on from, one value per device; they are kept up to date.
    """
    steps = min(STEPS, len(epoch.losses))
    again = partial(_time_steps, backend, place, data, replace(settings, limit=steps))
    return if_repeatable(again), steps / len(epoch.losses)


def _time_steps(backend: Backend, place: Callable[[], list[Array]], data: Dataset, settings: Settings) -> Timing:
    epoch = train_epoch(backend, place(), data, settings, number=settings.epochs + 1)
    return epoch.dispatch_seconds, epoch.seconds
