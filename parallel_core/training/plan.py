"""Plans of trainings: the number of steps, and about how long they take, judged by a few steps.

If the user says nothing, a training has one epoch, of as many batches as fit a minute: half of it
for the training on all devices, and half for first steps on one and on all devices in turn.
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
"""The most and the fewest first steps on one device: only the second loss depends on gradients."""
FORWARD_SHARE = 1 / 3
"""About the share of a step's time that its forward pass takes: evaluation needs no other pass."""


@dataclass(frozen=True)
class TrainingPlan:
    """The plan of a training: its steps, and about how long they take."""

    settings: Settings
    """The settings, with the number of epochs, and a limit unless epochs have all batches."""
    batches: int
    """The number of batches of each epoch."""
    images: int
    """The number of images of each epoch."""
    compared: int
    """The number of first steps that one device takes too, in turn with all devices."""
    seconds: float
    """About how many seconds all of that takes; NaN if that was not tried."""
    is_chosen: bool
    """Whether the number of batches was chosen to fit the time."""


def plan_training(
    backend: Backend,
    data: Dataset,
    settings: Settings,
    compared: int | None,
    done: int = 0,
    agree: Callable[[float], float] | None = None,
) -> TrainingPlan:
    """Choose the numbers of steps that are not given, and estimate how long a training takes.

    `done` steps of the training are done already. `compared` is the number of first steps that one
    device takes too; None: it is chosen. If there are several processes, each calls this, and
    `agree` returns the first one's seconds. To try steps they must exchange, so they do it only if
    there is something to choose.
    """
    is_chosen = settings.epochs is None and settings.limit is None
    is_bounded = settings.epochs is None and compared is None
    steps_in_all = settings.last_epoch * steps_of(data, settings)
    is_short = not is_chosen and not is_bounded and steps_in_all < ESTIMATED_FROM
    step_on_all = step_on_one = math.nan
    if is_chosen or (agree is None and not is_short):
        step_on_all = _seconds_of_step(backend, data, settings, len(backend.devices))
        if agree is not None:
            step_on_all = agree(step_on_all)
    if compared == 0:
        step_on_one = 0.0
    elif not is_short:
        step_on_one = _seconds_of_step(backend, data, settings, 1)

    limit = settings.limit
    if is_chosen:
        limit = max(1, int(HALF_A_MINUTE / step_on_all))
        if limit >= steps_of(data, settings):
            # Without a limit the training can be resumed with more epochs.
            limit = None
    if compared is None:
        compared = MOST_COMPARED
        if is_bounded:
            fitting = int(HALF_A_MINUTE / (step_on_all + step_on_one))
            compared = min(MOST_COMPARED, max(FEWEST_COMPARED, fitting))
    settings = replace(settings, epochs=settings.last_epoch, limit=limit)
    steps = steps_of(data, settings)
    compared = min(steps, compared)

    images = min(len(data.train_labels), steps * settings.batch_size)
    trained_steps = max(0, settings.last_epoch * steps - done)
    batches_of_test = min(len(data.test_labels), images) / settings.batch_size
    forward_steps = settings.last_epoch * batches_of_test
    seconds = step_on_all * (trained_steps + FORWARD_SHARE * forward_steps)
    seconds += compared * (step_on_all + step_on_one)
    return TrainingPlan(settings, steps, images, compared, seconds, is_chosen)


def _seconds_of_step(backend: Backend, data: Dataset, settings: Settings, devices: int) -> float:
    """Train for a few steps on the first devices, and return the seconds of one step."""
    params = [
        get_params(backend, device, settings.seed, settings.width)
        for device in backend.devices[:devices]
    ]
    # The first step warms up.
    train_epoch(backend, params, data, replace(settings, limit=1), number=1)
    epoch = train_epoch(backend, params, data, replace(settings, limit=PROBED_STEPS), number=1)
    return epoch.seconds / len(epoch.losses)
