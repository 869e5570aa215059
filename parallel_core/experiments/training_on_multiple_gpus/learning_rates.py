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
from statistics import NormalDist, fmean
from typing import Annotated, Any, TypeAlias

import numpy as np

from backends import Backend
from parallel_core.experiments import training_steps
from parallel_core.experiments.runner.changes import larger
from parallel_core.experiments.runner.declaration import Exercise, Experiment
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.parameters import Parameter
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_steps import FIXED, SCALED, case_name, plans
from parallel_core.measurement.checks import largest_of, relative_error
from parallel_core.measurement.confidence_intervals import Interval, student_t
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.timing import measure
from parallel_core.system.errors import MeasurementError
from parallel_core.system.machine import sample_machine, watched
from parallel_core.training.batches import Epoch, Settings
from parallel_core.training.dataset import Dataset
from parallel_core.training.loop import NotFiniteError, OnBatch, evaluate, ignore, train

Plan: TypeAlias = tuple[str, int]
"""Whether the batch is fixed or scaled, and the number of devices."""
Training: TypeAlias = tuple[Settings, tuple[Epoch, ...]]
Accuracies: TypeAlias = Mapping[Plan, Mapping[float, Sequence[float]]]
"""By plan and rate, the accuracies, seed by seed."""

RATES = Parameter(
    "Learning rates. The rule is tried if one is as many times another one as there are devices.",
    metavar="RATES",
)
SETTINGS = Parameter(
    fields={
        "batch_size": Parameter("Of one device."),
        "epochs": Parameter("Of each training."),
        "limit": Parameter("One device's batches an epoch. Default: chosen, 200 at most."),
        "seed": Parameter(minimum=0, maximum=2**32 - 1),
    }
)
BUDGET = Parameter("Seconds that trainings may take, about: shorter ones if they are too few.")
DEFAULTS = Settings(epochs=1, batch_size=32)
MOST_STEPS, FEWEST_STEPS, PROBED_STEPS = 200, 20, 10
"""Of a training on one device, if the budget chooses."""
CHANCE = 0.2
"""An accuracy below this is guessing among ten classes, or hardly better."""
MIN_NOISE = 0.01
MISTAKEN = 0.03
"""How often one difference at least, of all that are looked at, may be called one by chance. Well
below one in twenty, for the quantiles are expansions and accuracies are not quite normal.
"""


def program(
    trial: Trial,
    data: Dataset,
    rates: Annotated[Sequence[float], RATES] = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8),
    settings: Annotated[Settings, SETTINGS] = DEFAULTS,
    initial_scale: Annotated[float, Parameter("Times the book's initial weights.")] = 8.0,
    rounds: Annotated[int, Parameter("Trainings at each point, seed by seed.")] = 3,
    budget: Annotated[float, BUDGET] = 180,
    on_batch: OnBatch = ignore,
    on_training: Callable[[str], object] = ignore,
) -> None:
    """Train with every rate on 1, 2, 4, … devices, with a fixed batch and with one that grows.

    The fixed one has `settings.batch_size` images, the other one as many times that as there are
    devices. `settings.limit` is in batches of that size, and all see as many images; if it is None,
    as many are chosen as the budget allows all trainings. The learning rate of the settings is not
    used. Round `n`, from 0, has the seed `settings.seed + n`. `on_batch(epoch, images)` is called
    as work is done, with all trainings' epochs counted through, and `on_training(name)` before
    each. Raises RequestError for a backend with a single device, and MeasurementError if no loss
    stays finite.
    """
    trial.refuse_single_device("learning-rates", "compares devices")
    backend, total, rates = trial.backend, len(trial.devices), tuple(sorted(rates))
    data = data.tested_on(2000)
    batches = plans(settings.batch_size, total)
    points = list(product(range(rounds), rates, batches))
    probed = replace(settings, learning_rate=rates[0])
    chosen = settings.limit or steps_that_fit(
        backend, data, probed, initial_scale, budget / len(points)
    )
    # Trainings as long as was expected are reported, however long they are.
    factor = 1.0 if settings.limit else MOST_STEPS / chosen
    settings = replace(settings, limit=chosen)
    trial.parameters |= {"rates": ",".join(f"{rate:g}" for rate in rates), "limit": chosen}

    def report(before: int, epoch: int, images: int) -> None:
        on_batch(before + epoch, round(factor * images))

    before = sample_machine()
    trained: dict[Plan, list[Training]] = {plan: [] for plan in batches}
    for number, (seed, rate, plan) in enumerate(points):
        kind, count = plan
        training = with_batch(
            settings, batches[plan], learning_rate=rate, seed=settings.seed + seed
        )
        case = case_name(kind, count, total)
        on_training(f"training {number + 1} of {len(points)}: rate {rate:g}, {case}")
        counted = partial(report, number * settings.last_epoch)
        epochs = train_once(backend, count, data, training, initial_scale, counted)
        trained[plan].append((training, epochs))
    watch = watched(before, sample_machine())
    for (kind, count), trainings in trained.items():
        name = case_name(kind, count, total)
        finite = [(training, epochs) for training, epochs in trainings if epochs[0].losses]
        if not finite:
            raise MeasurementError(f"on {name} no loss stayed finite: choose lower --rates")
        training, _ = finite[0]
        all_epochs = [epoch for _, epochs in finite for epoch in epochs]
        start = training_steps.enlarged_start(training.seed, initial_scale)
        again = partial(training_steps.placed, backend, start, count)
        units = training_steps.time_units(backend, count, data, training)
        training_steps.add_case_of_epochs(
            trial, name, again, units, data, training, all_epochs, watch
        )
        # NumPy repeats the fixed batch once: more devices are compared with one.
        if kind == SCALED or count == 1:
            training_steps.check_first_losses(trial, data, training, start, all_epochs[0].losses)
    _compare_devices(trial, trained)
    accuracies: dict[Plan, dict[float, list[float]]] = {}
    for plan, trainings in trained.items():
        accuracies[plan] = {rate: [] for rate in rates}
        for training, epochs in trainings:
            accuracies[plan][training.learning_rate].append(epochs[-1].accuracy)
    find_figures(trial, accuracies, len(data.test_labels))
    trial.described["data"] = data.source


def _compare_devices(trial: Trial, trained: Mapping[Plan, Sequence[Training]]) -> None:
    """Compare the first losses on all numbers of devices, with the same batch, with one device's.

    The trainings of each plan stand in the same order. One that ended early on one side only counts
    as infinite.
    """
    losses = {
        count: [np.array(epochs[0].losses[:5]) for _, epochs in trainings]
        for (kind, count), trainings in trained.items()
        if kind == FIXED
    }
    errors: list[float] = []
    for losses_on_devices in losses.values():
        errors += map(relative_error, losses_on_devices, losses[1])
    difference = trial.checks["max_device_difference"] = largest_of(errors)
    if not difference < 1e-4:
        trial.problems.append(
            "with the same batch the first losses differ from one device's by "
            f"{difference:.1e} of their size"
        )


def with_batch(settings: Settings, batch_size: int, **changed: Any) -> Settings:
    """Return settings for batches of another size, and as many images in all."""
    limit = settings.limit and math.ceil(settings.limit * settings.batch_size / batch_size)
    return replace(settings, batch_size=batch_size, limit=limit, **changed)


def train_once(
    backend: Backend,
    devices: int,
    data: Dataset,
    settings: Settings,
    scale: float,
    on_batch: OnBatch = ignore,
) -> tuple[Epoch, ...]:
    """Train on the first devices, and return the epochs.

    As soon as a loss is not finite, it is one without losses.
    """
    start = training_steps.enlarged_start(settings.seed, scale)
    params = training_steps.placed(backend, start, devices)
    try:
        return tuple(train(backend, params, data, settings, on_batch))
    except NotFiniteError:
        # The network is evaluated as it was before the step that would have spoilt it.
        return (Epoch(1, math.nan, math.nan, 0, (), evaluate(backend, params, data)),)


def steps_that_fit(
    backend: Backend, data: Dataset, settings: Settings, scale: float, seconds: float
) -> int:
    """Return the steps of an epoch of one device's training with which all fit the seconds."""

    def seconds_of(steps: int) -> float:
        limited = replace(settings, limit=steps)
        _, done = measure(backend, partial(train_once, backend, 1, data, limited, scale))
        return done

    # Warms up.
    seconds_of(1)
    single = seconds_of(1)
    several = seconds_of(1 + PROBED_STEPS)
    # One more in every epoch.
    step = max(several - single, 1e-6) / PROBED_STEPS
    return min(MOST_STEPS, max(FEWEST_STEPS, int((seconds - single) / step)))


def find_figures(trial: Trial, accuracies: Accuracies, images: int) -> None:
    """Keep the curves over the rates, and what they show.

    `accuracies` are shares of the test `images`, seed by seed.
    """
    curves = {
        plan: {rate: fmean(of_seeds) for rate, of_seeds in by_rate.items()}
        for plan, by_rate in accuracies.items()
    }
    total = len(trial.devices)
    one_device, scaled = curves[FIXED, 1], curves[SCALED, total]
    noise = _noise_between_rates(accuracies, images, len(one_device) - 1)
    trial.found("accuracy_noise", noise)
    best_before = _find_best(trial, "one_device", one_device, noise)
    best_after = _find_best(trial, "scaled_batch", scaled, noise)
    estimate = best_after.estimate / best_before.estimate
    if max(*one_device.values(), *scaled.values()) >= CHANCE:
        low, high = best_after.low / best_before.high, best_after.high / best_before.low
        trial.found(RATIO.name, Interval(estimate, low, high))
    else:
        trial.found(RATIO.name, estimate)
    # What the larger batch gains by the scaled rate, where one device has learnt.
    gains = []
    for rate, accuracy in one_device.items():
        for tried in scaled:
            is_scaled = math.isclose(tried, total * rate, rel_tol=1e-6)
            if is_scaled and accuracy >= CHANCE:
                gains.append(scaled[tried] - scaled[rate])
    if gains:
        gain = fmean(gains)
        trial.found(GAIN.name, Interval(gain, gain - noise, gain + noise))
        trial.found(f"lowest_{GAIN.name}", min(gains))
        trial.found(f"highest_{GAIN.name}", max(gains))
    _find_difference(trial, accuracies, curves, images)
    trial.points |= {case_name(*plan): curve for plan, curve in curves.items()}


def _noise_between_rates(
    accuracies: Accuracies,
    images: int,
    differences: int,
) -> float:
    """Return the noise of the points where something was learnt, or of one if there are few."""
    points: list[Sequence[float]] = []
    for (kind, count), by_rate in accuracies.items():
        # The same batch on more devices is the same training once more, and no further point.
        if kind != FIXED or count == 1:
            points += by_rate.values()
    learnt = [of_seeds for of_seeds in points if min(of_seeds) >= CHANCE]
    return noise_of(learnt if len(learnt) > 1 else points[:1], images, differences)


def _find_best(trial: Trial, name: str, curve: Mapping[float, float], noise: float) -> Interval:
    """Keep and return the best rate of a curve, with those that are as good within the noise."""
    # The lowest of equals.
    best = max(sorted(curve), key=curve.__getitem__)
    as_good = [rate for rate in curve if curve[best] - curve[rate] <= noise]
    trial.found(f"best_rate_{name}", best)
    trial.found(f"lowest_best_rate_{name}", min(as_good))
    trial.found(f"highest_best_rate_{name}", max(as_good))
    trial.found(f"best_test_accuracy_{name}", curve[best])
    return Interval(best, min(as_good), max(as_good))


def _find_difference(
    trial: Trial,
    accuracies: Accuracies,
    curves: Mapping[Plan, Mapping[float, float]],
    images: int,
) -> None:
    """Keep how far accuracies on several devices are from one device's with the same batch."""
    fixed = [plan for plan in accuracies if plan[0] == FIXED]
    one_device = curves[FIXED, 1]
    differences = len(one_device) * (len(fixed) - 1)
    largest_noise = 0.0
    largest = 0.0
    for rate, accuracy in one_device.items():
        noise = noise_of([accuracies[plan][rate] for plan in fixed], images, differences)
        largest_noise = max(largest_noise, noise)
        for plan in fixed:
            largest = max(largest, abs(curves[plan][rate] - accuracy) / noise)
    trial.found("largest_accuracy_noise_between_devices", largest_noise)
    trial.found(DIFFERENCE.name, Interval(largest, largest, largest))


def noise_of(points: Sequence[Sequence[float]], images: int, differences: int = 1) -> float:
    """Return what two mean accuracies must differ by to count as different.

    `points` holds the accuracies of each point, seed by seed; trainings of one seed start alike.
    What a seed does to all points is no noise; what seeds do to one point and not another is: the
    variance that is left. So many `differences` are looked at together, and the bound is that which
    all of them keep to (Bonferroni). Where there are too few points or seeds, there is only the
    variance of counting so many test images.
    """
    all_points = np.array(points)
    seeds = len(points[0])
    quantile = 1 - MISTAKEN / 2 / max(1, differences)
    if min(all_points.shape) < 2:
        variance_of_counting = 0.25 / images
        reach = NormalDist().inv_cdf(quantile)
        return max(MIN_NOISE, reach * (2 * variance_of_counting / seeds) ** 0.5)
    of_points = all_points.mean(axis=1, keepdims=True)
    of_seeds = all_points.mean(axis=0)
    remaining = all_points - of_points - of_seeds + all_points.mean()
    freedom = (len(points) - 1) * (seeds - 1)
    variance = float(np.sum(remaining**2)) / freedom
    return max(MIN_NOISE, student_t(freedom, quantile) * (2 * variance / seeds) ** 0.5)


RATIO = Metric(
    "best_rate_ratio",
    means="the best rate with a batch that grew with the devices, over one device's best: 1 is the "
    "same",
    # 0 is the same rate, 1 one that grew as the batch did.
    share=lambda ratio, result: (
        math.log(max(ratio, 1e-9)) / math.log(len(result.backend["devices"]))
    ),
    bands=(
        Band(LOWEST, "lower", "The best rate fell with the larger batch"),
        Band(-0.25, "same", "The best rate stayed the same with the larger batch"),
        Band(0.25, "partly", "The best rate grew less than the batch"),
        Band(0.75, "linear", "The best rate grew as the batch did, as linear scaling predicts"),
        Band(1.25, "more", "The best rate grew more than the batch"),
    ),
)
GAIN = Metric(
    "scaled_rate_gain",
    means="the accuracy that scaling the rate with the batch gains over keeping it, in the mean of "
    "rates: 0 is none",
    bands=(
        Band(
            LOWEST,
            "worse",
            "In the mean of rates, scaling with the batch was worse than keeping the rate",
        ),
        Band(
            0.0,
            "better",
            "In the mean of rates, scaling with the batch was better than keeping the rate",
        ),
    ),
)
DIFFERENCE = Metric(
    "fixed_batch_difference_over_noise",
    means="the largest difference of accuracies between numbers of devices, over the noise of "
    "seeds at its rate",
    bands=(
        Band(
            LOWEST,
            "same",
            "With the same batch more devices changed nothing beyond the noise of seeds",
        ),
        Band(1.0, "differ", "With the same batch accuracies differ beyond the noise of seeds"),
    ),
)

EXPERIMENT = Experiment(
    name="learning-rates",
    summary="Does the best rate depend on devices?",
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
            lambda answered: answered.is_open,
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
