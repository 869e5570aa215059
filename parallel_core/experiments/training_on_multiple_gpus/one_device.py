"""Steps of a training, on one device and on all devices in turn: the speed-up, and a comparison of
the losses.

Both trainings start from the same enlarged weights, at a rate at which the loss falls and rounding
errors hardly grow. They take turns, so that a drift of the machine affects both.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.runner.counts import Count
from parallel_core.experiments.runner.formulas import ratio
from parallel_core.experiments.runner.metrics import LOWEST, Band, speed
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_steps import ENLARGED, placed
from parallel_core.measurement.result import Case
from parallel_core.system.machine import MachineWatch, sample_machine, watched
from parallel_core.training.batches import Settings, Stretch
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import start_of
from parallel_core.training.loop import OnBatch, ignore, train_steps

ON_ONE, ON_ALL = "a step on one device", "a step on all devices"
TURNS = 6
"""The number of turns of each training, if there are as many steps."""
RATE = 0.01
"""At the book's rate of 0.2 rounding errors grow from step to step: two of 60 losses are alike."""
TOLERANCE = 1e-4
"""The difference from which on two losses are unequal, as a share of the loss.

In 60 steps another order of summing changes a loss by 2e-5, and by 7e-5 in batches of 32. Gradients
that lack another device's share change it by 2e-3 or more from the second step on.
"""


@dataclass(frozen=True)
class Turns:
    """The same steps on one device and on all devices, turn by turn."""

    on_one: tuple[Stretch, ...]
    on_all: tuple[Stretch, ...]
    watch: MachineWatch


def train_in_turn(
    backend: Backend, data: Dataset, settings: Settings, steps: int, on_batch: OnBatch = ignore
) -> Turns:
    """Train for some steps on all devices and on one, in turn.

    `on_batch(epoch, 0)` is called for each batch: no images count, since these parameters are
    discarded.
    """
    before = sample_machine()
    settings = replace(settings, learning_rate=RATE, initial_scale=ENLARGED)
    start = start_of(settings)
    params_on_all, params_on_one = placed(backend, start), placed(backend, start, 1)
    length = max(1, math.ceil(steps / TURNS))
    on_all: list[Stretch] = []
    on_one: list[Stretch] = []

    def train(params: list[Array], turn: slice) -> Stretch:
        return train_steps(
            backend, params, data, settings, 1, turn, lambda epoch, _: on_batch(epoch, 0)
        )

    for first in range(0, steps, length):
        turn = slice(first, min(first + length, steps))
        on_all.append(train(params_on_all, turn))
        on_one.append(train(params_on_one, turn))
    return Turns(tuple(on_one), tuple(on_all), watched(before, sample_machine()))


def find_gain(trial: Trial, turns: Turns) -> None:
    """Find the speed-up of all devices over one, and count the losses that are those of one."""
    for name, stretches in ((ON_ONE, turns.on_one), (ON_ALL, turns.on_all)):
        trial.cases[name] = Case(
            name,
            tuple(stretch.seconds / len(stretch.losses) for stretch in stretches),
            tuple(stretch.dispatch_seconds / len(stretch.losses) for stretch in stretches),
            watch=turns.watch,
        )
    trial.found_by(SPEEDUP.name, ratio(ON_ONE, ON_ALL))
    losses_of_one = np.concatenate([stretch.losses for stretch in turns.on_one])
    losses_of_all = np.concatenate([stretch.losses for stretch in turns.on_all])
    is_equal = np.abs(losses_of_all - losses_of_one) <= TOLERANCE * np.abs(losses_of_one)
    # The first loss alone depends on no gradients.
    if len(is_equal) > 1:
        trial.count(EQUAL.name, int(is_equal.sum()), len(is_equal), "the losses of both trainings")


SPEEDUP = speed(
    "speedup_over_one_device",
    "All devices together trained slower than one",
    "All devices together trained about as fast as one",
    "All devices together trained faster than one",
    means="the time of a step on one device over that on all devices: 1 is no gain",
)
EQUAL = Count(
    "losses_of_one_device",
    "losses are one device's, to a ten-thousandth",
    bands=(
        Band(LOWEST, "different", "No, the losses are not those of one device"),
        Band(0.2, "first", "At first, the losses are those of one device"),
        Band(1.0, "equal", "Yes, the losses are those of one device"),
    ),
)
