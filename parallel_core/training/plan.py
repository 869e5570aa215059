"""Plans of trainings: what one will do and how long that takes, judged by a few steps.

A training of which nobody said how long it is to be has one epoch, of as many batches as fit a
minute: half of it for all devices, and half for the first steps on one and on all devices in turn.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from backends import Backend
from parallel_core.training.batches import Settings, steps_of
from parallel_core.training.dataset import Dataset
from parallel_core.training.loop import train_epoch
from parallel_core.training.step import get_params

HALF_A_MINUTE = 30.0
PROBED_STEPS = 2
ESTIMATED_FROM = 20
"""Fewer steps, of which nothing is to be chosen, take about as long as those that are tried for an
estimate.
"""
MOST_COMPARED, FEWEST_COMPARED = 60, 2
"""Steps on one device, unless their number is given. Of two losses the second shows the gradients.
"""
FORWARD_SHARE = 1 / 3
"""Of the time of a step, about: evaluating computes the forward pass only."""


@dataclass(frozen=True)
class TrainingPlan:
    """The plan of a training: what it will do, and about how long that takes."""

    settings: Settings
    """With the epochs, and with the batches of each unless they are all."""
    batches: int
    """Of each epoch."""
    images: int
    """Of each epoch."""
    compared: int
    """First steps that one device takes too, in turn with all devices; 0 for none."""
    seconds: float
    """How long it takes, about; NaN if that was not tried."""
    is_chosen: bool
    """Whether the clock decided how many batches there are."""


def plan_training(
    backend: Backend,
    data: Dataset,
    settings: Settings,
    compared: int | None,
    done: int = 0,
    agree: Callable[[float], float] | None = None,
) -> TrainingPlan:
    """Choose what is not given, and estimate how long a training takes.

    Of the training some steps are `done` before. `compared` is how many steps one device is to take
    too, at most. Of several processes each calls this, and `agree` returns the first one's seconds;
    they try steps, which they exchange, only if there is something to choose.
    """
    is_chosen = settings.epochs is None and settings.limit is None
    is_bounded = settings.epochs is None and compared is None
    steps_in_all = settings.last_epoch * steps_of(data, settings)
    is_short = not is_chosen and not is_bounded and steps_in_all < ESTIMATED_FROM
    on_all = on_one = math.nan
    if is_chosen or (agree is None and not is_short):
        on_all = _seconds_of_step(backend, data, settings, len(backend.devices))
        if agree is not None:
            on_all = agree(on_all)
    if compared == 0:
        on_one = 0.0
    elif not is_short:
        on_one = _seconds_of_step(backend, data, settings, 1)
    limit = settings.limit
    if is_chosen:
        fitting = max(1, int(HALF_A_MINUTE / on_all))
        # A training with all batches can be resumed with more epochs.
        limit = fitting if fitting < steps_of(data, settings) else None
    settings = replace(settings, epochs=settings.last_epoch, limit=limit)
    steps = steps_of(data, settings)
    images = min(len(data.train_labels), steps * settings.batch_size)
    if is_bounded:
        fitting = int(HALF_A_MINUTE / (on_all + on_one))
        compared = min(MOST_COMPARED, max(FEWEST_COMPARED, fitting))
    compared = min(steps, MOST_COMPARED if compared is None else compared)
    tested = min(len(data.test_labels), images) / settings.batch_size
    trained = max(0, settings.last_epoch * steps - done)
    seconds = on_all * (trained + FORWARD_SHARE * settings.last_epoch * tested)
    seconds += compared * (on_all + on_one)
    return TrainingPlan(settings, steps, images, compared, seconds, is_chosen)


def _seconds_of_step(backend: Backend, data: Dataset, settings: Settings, devices: int) -> float:
    """Train for a few steps on the first devices; return the seconds of one."""
    params = [
        get_params(backend, device, settings.seed, settings.width)
        for device in backend.devices[:devices]
    ]
    # To warm up.
    train_epoch(backend, params, data, replace(settings, limit=1), number=1)
    epoch = train_epoch(backend, params, data, replace(settings, limit=PROBED_STEPS), number=1)
    return epoch.seconds / len(epoch.losses)
