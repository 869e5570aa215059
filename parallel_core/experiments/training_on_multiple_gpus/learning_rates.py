"""Learning rates: which learning rate is best, and does it change with the number of devices?

Book: Dive into Deep Learning, "Training on Multiple GPUs", exercise 2. Accuracies are computed on
all devices, as its exercise 4 asks (`parallel_core.training.loop.evaluate`).

Prediction: With the same batch, k devices add up the same gradient as one, so neither losses nor
accuracy nor the best rate depend on k. With a batch of k·b there are k times fewer steps for the
same images, and the linear scaling rule says what makes up for it: a rate k times as large (Goyal
and others 2017, "Accurate, Large Minibatch SGD"). It holds while k small steps go nearly the way of
a large one, and must fail if the network does not bear the larger rate.

Method: LeNet is trained on the same images with each rate on 1, 2, 4, … of the loaded devices up to
all of them, with the batch of b and with k·b, in three rounds unless `--rounds` says otherwise;
each has a separate seed, which draws its start and its order of images, the same for all. The rate
is per image: gradients are averaged over the global batch. The weights start 8 times as large as
the book's, with which the first 300 steps at a rate of 0.2 stay at chance (`--initial-scale 1`).
The first losses are checked against NumPy, and with the same batch against those of one device.
Noise is what the seeds do to one point and not to another: of rates on the same devices, and at
each rate of numbers of devices with the same batch.

Look at: the curves of accuracy over the rate; `best_rate_ratio`, which linear scaling predicts to
be k; `scaled_rate_gain`, the accuracy that a rate k times as large gains with k times the batch.

Read: The curves of the fixed batch coincide within the noise, which grows towards rates that the
network hardly bears: there rounding errors, which the number of devices changes, grow from step to
step. So losses that agree to the last digits in the first steps may end in accuracies that differ
by a tenth. The best rate is a set: all whose accuracy on 2000 test images differs from the best by
no more than the noise. 0.1 is guessing, here mostly after a rate that was too large. Training is
short, 200 steps at most unless `--limit` says more, and a longer one moves the curves.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Annotated, Any

import numpy as np

from backends import Backend
from parallel_core.experiments import training_steps
from parallel_core.experiments.runner.changes import larger
from parallel_core.experiments.runner.declaration import Exercise, Experiment
from parallel_core.experiments.runner.metrics import answer_by
from parallel_core.experiments.runner.parameters import Parameter
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus.best_rates import (
    DIFFERENCE,
    GAIN,
    RATIO,
    Plan,
    find_figures,
)
from parallel_core.experiments.training_steps import FIXED, SCALED, case_name, plans
from parallel_core.measurement.checks import devices_differ, largest_of, relative_error
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.timing import measure
from parallel_core.system.errors import MeasurementError
from parallel_core.system.machine import MachineWatch, sample_machine, watched
from parallel_core.training.batches import Epoch, Settings
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import start_of
from parallel_core.training.loop import NotFiniteError, OnBatch, evaluate, ignore, train

Training = tuple[Settings, tuple[Epoch, ...]]
"""The settings of a training, and its epochs."""

RATES = Parameter(
    "Learning rates. The rule is tried if one is as many times another one as there are devices.",
    metavar="RATES",
)
SETTINGS = Parameter(
    fields={
        "batch_size": Parameter("Of one device."),
        "epochs": Parameter("Of each training."),
        "limit": Parameter(
            "One device's batches an epoch. Default: chosen, 200 at most.", is_amount=True
        ),
        "seed": Parameter(minimum=0, maximum=2**32 - 1),
        "initial_scale": Parameter("Times the book's initial weights. Default: 8."),
    }
)
BUDGET = Parameter("Seconds that trainings may take, about: shorter ones if they are too few.")
DEFAULTS = Settings(epochs=1, batch_size=32)
LARGEST_DIFFERENCE = 1e-4
"""Of losses with the same batch on more devices, from those on one."""
MOST_STEPS, FEWEST_STEPS, PROBED_STEPS = 200, 20, 10
"""The most and the fewest steps of a training that the budget allows, and the steps that are timed
to choose them.
"""


def program(
    trial: Trial,
    data: Dataset,
    rates: Annotated[Sequence[float], RATES] = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8),
    settings: Annotated[Settings, SETTINGS] = DEFAULTS,
    rounds: Annotated[int, Parameter("Trainings at each point, seed by seed.")] = 3,
    budget: Annotated[float, BUDGET] = 180,
    on_batch: OnBatch = ignore,
    on_training: Callable[[str], object] = ignore,
) -> None:
    """Train with every rate on 1, 2, 4, … devices, with a fixed batch and with one that grows.

    The fixed batch has `settings.batch_size` images; the scaled one has as many for each device.
    All trainings see the same number of images: `settings.limit` fixed batches, or as many as the
    budget allows if that is None. Round n, from 0, has the seed `settings.seed + n`. The learning
    rate of the settings is not used.

    `on_training(name)` is called before each training, and `on_batch(epoch, images)` after each
    batch, with the epochs of all trainings counted through. Raises RequestError for a backend with
    a single device, and MeasurementError if no loss stays finite.
    """
    trial.refuse_single_device("learning-rates", "compares devices")
    backend, total, rates = trial.backend, len(trial.devices), tuple(sorted(rates))
    settings = replace(settings, initial_scale=settings.initial_scale or training_steps.ENLARGED)
    data = data.tested_on(2000)
    batches = plans(settings.batch_size, total)
    points = list(product(range(rounds), rates, batches))
    limit = settings.limit
    if limit is None:
        probed = replace(settings, learning_rate=rates[0])
        seconds = budget / len(points)
        limit = steps_that_fit(backend, data, probed, seconds)
    # Progress is reported as if a training had the expected number of steps.
    factor = 1.0 if settings.limit else MOST_STEPS / limit
    settings = replace(settings, limit=limit)
    trial.parameters |= {
        "rates": ",".join(f"{rate:g}" for rate in rates),
        "limit": limit,
        "initial_scale": settings.initial_scale,
    }

    def report(epochs_before: int, epoch: int, images: int) -> None:
        on_batch(epochs_before + epoch, round(factor * images))

    before = sample_machine()
    trained: dict[Plan, list[Training]] = {plan: [] for plan in batches}
    for number, (seed, rate, plan) in enumerate(points):
        kind, count = plan
        own_settings = with_batch(
            settings, batches[plan], learning_rate=rate, seed=settings.seed + seed
        )
        case = case_name(kind, count, total)
        on_training(f"training {number + 1} of {len(points)}: rate {rate:g}, {case}")
        report_batch = partial(report, number * settings.last_epoch)
        epochs = train_once(backend, count, data, own_settings, report_batch)
        trained[plan].append((own_settings, epochs))
    watch = watched(before, sample_machine())
    for plan, trainings in trained.items():
        add_case(trial, data, plan, trainings, watch)
    _compare_devices(trial, trained)
    accuracies: dict[Plan, dict[float, list[float]]] = {}
    for plan, trainings in trained.items():
        accuracies[plan] = {rate: [] for rate in rates}
        for own_settings, epochs in trainings:
            accuracies[plan][own_settings.learning_rate].append(epochs[-1].accuracy)
    find_figures(trial, accuracies, len(data.test_labels))
    trial.described["data"] = data.source


def add_case(
    trial: Trial,
    data: Dataset,
    plan: Plan,
    trainings: Sequence[Training],
    watch: MachineWatch,
) -> None:
    """Add the case of a plan's trainings whose losses stayed finite, and check its first losses.

    Raises MeasurementError if none did.
    """
    kind, count = plan
    name = case_name(kind, count, len(trial.devices))
    finite = [(settings, epochs) for settings, epochs in trainings if epochs[0].losses]
    if not finite:
        raise MeasurementError(f"on {name} no loss stayed finite: choose lower --rates")
    settings, _ = finite[0]
    all_epochs: list[Epoch] = []
    for _, epochs in finite:
        all_epochs += epochs
    start = start_of(settings)
    place = partial(training_steps.placed, trial.backend, start, count)
    units = training_steps.time_units(trial.backend, count, data, settings)
    training_steps.add_case_of_epochs(trial, name, place, units, data, settings, all_epochs, watch)
    # With the fixed batch NumPy is compared with one device only, and more devices with that one.
    if kind == SCALED or count == 1:
        training_steps.check_first_losses(trial, data, settings, start, all_epochs[0].losses)


def _compare_devices(trial: Trial, trained: Mapping[Plan, Sequence[Training]]) -> None:
    """Compare the first losses on all numbers of devices, with the same batch, with one device's.

    The trainings of every plan are in the same order. Where only one of two trainings stayed
    finite, the difference is infinite.
    """
    # By the number of devices, the first losses of each training with the fixed batch.
    first_losses: dict[int, list[np.ndarray]] = {}
    for (kind, count), trainings in trained.items():
        if kind == FIXED:
            first_losses[count] = [np.array(epochs[0].losses[:5]) for _, epochs in trainings]
    errors: list[float] = []
    for losses_on_devices in first_losses.values():
        for losses, losses_on_one in zip(losses_on_devices, first_losses[1], strict=True):
            errors.append(relative_error(losses, losses_on_one))
    difference = largest_of(errors)
    trial.checks["max_device_difference"] = difference
    # Also true of NaN.
    if not difference < LARGEST_DIFFERENCE:
        trial.problems.append(devices_differ("first losses with the same batch", difference))


def with_batch(settings: Settings, batch_size: int, **changed: Any) -> Settings:
    """Return settings for batches of another size, with as many images in an epoch."""
    limit = settings.limit
    if limit is not None:
        images = limit * settings.batch_size
        limit = math.ceil(images / batch_size)
    return replace(settings, batch_size=batch_size, limit=limit, **changed)


def train_once(
    backend: Backend,
    devices: int,
    data: Dataset,
    settings: Settings,
    on_batch: OnBatch = ignore,
) -> tuple[Epoch, ...]:
    """Train on the first devices, and return the epochs.

    If a loss is not finite, return a single epoch without losses.
    """
    params = training_steps.placed(backend, start_of(settings), devices)
    try:
        return tuple(train(backend, params, data, settings, on_batch))
    except NotFiniteError:
        # The parameters are those before the step that would have spoilt them.
        accuracy = evaluate(backend, params, data)
        return (Epoch(1, math.nan, math.nan, 0, (), accuracy),)


def steps_that_fit(backend: Backend, data: Dataset, settings: Settings, seconds: float) -> int:
    """Return the number of steps with which a training on one device takes about `seconds`."""

    def seconds_of(steps: int) -> float:
        limited = replace(settings, limit=steps)
        _, done = measure(backend, partial(train_once, backend, 1, data, limited))
        return done

    _warm_up = seconds_of(1)
    seconds_of_one = seconds_of(1)
    seconds_of_several = seconds_of(1 + PROBED_STEPS)
    # A training of one step is mostly loading and testing, which every training has.
    seconds_of_step = max(seconds_of_several - seconds_of_one, 1e-6) / PROBED_STEPS
    fitting = int((seconds - seconds_of_one) / seconds_of_step)
    return min(MOST_STEPS, max(FEWEST_STEPS, fitting))


EXPERIMENT = Experiment(
    name="learning-rates",
    question="Does the best rate depend on devices?",
    position=5,
    exercises=(
        Exercise(2, "Which learning rate is best, and how does that change with the devices?"),
    ),
    program=program,
    extent=lambda backend, data, rates, settings, rounds, **_: (
        len(plans(1, len(backend.devices))) * len(rates) * rounds * settings.last_epoch,
        min(len(data.train_labels), settings.batch_size * (settings.limit or MOST_STEPS)),
    ),
    case="1 device",
    metrics=(RATIO, GAIN, DIFFERENCE),
    answer=answer_by(DIFFERENCE),
    changes=(
        # Where nothing was learnt, any rate may be the best: the ratio has no interval.
        larger(
            "limit",
            "Longer trainings",
            "nothing was learnt (or larger weights: --initial-scale)",
            lambda answered: RATIO.name not in answered.result.metric_intervals,
        ),
        larger(
            "rounds",
            "More seeds",
            "fewer rates are within the noise",
            lambda answered: not answered.answers[RATIO.name],
        ),
        larger("limit", "Longer trainings", "smaller rates catch up"),
    ),
    rounds=None,
    budget=None,
    queued_case="all devices, scaled batch",
    devices=4,
    curves=Curves(
        over="rate",
        quantity="test_accuracy",
        x_title="learning rate",
        y_title="test accuracy",
        in_place_of_times=False,
        caption="Accuracy after short training on the same images. With the fixed batch the number "
        "of "
        "devices should change nothing; with the scaled one there are fewer, larger steps.",
    ),
    options={
        "full": {"rounds": 3, "rates": "0.025,0.1,0.4", "limit": 200},
        "quick": {"rounds": 3, "rates": "0.025,0.1", "limit": 60},
    },
)
