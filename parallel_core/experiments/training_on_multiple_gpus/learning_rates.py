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
from typing import Annotated, Any

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
    """Train with every rate on 1, 2, 4, … devices, with batches of `settings.batch_size` and of as
    many times that.

    `settings.limit` is in batches of that size, and all see as many images; if it is None, as many
    are chosen as the budget allows all trainings. The learning rate of the settings is not used.
    Round `n`, from 0, has the seed `settings.seed + n`. `on_batch(epoch, images)` is called as work
    is done, with all trainings' epochs counted through, and `on_training(name)` before each. Raises
    RequestError for a backend with a single device, and MeasurementError if no loss stays finite.
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
    trained: dict[tuple[str, int], list[tuple[Settings, tuple[Epoch, ...]]]] = {
        plan: [] for plan in batches
    }
    for place, (seed, rate, (kind, count)) in enumerate(points):
        own = with_batch(
            settings, batches[kind, count], learning_rate=rate, seed=settings.seed + seed
        )
        counted = partial(report, place * settings.last_epoch)
        on_training(
            f"training {place + 1} of {len(points)}: rate {rate:g}, {case_name(kind, count, total)}"
        )
        trained[kind, count].append(
            (own, train_once(backend, count, data, own, initial_scale, counted))
        )
    watch = watched(before, sample_machine())
    for (kind, count), trainings in trained.items():
        name = case_name(kind, count, total)
        whole = [(own, epochs) for own, epochs in trainings if epochs[0].losses]
        if not whole:
            raise MeasurementError(f"on {name} no loss stayed finite: choose lower --rates")
        own, epochs = whole[0][0], [epoch for _, each in whole for epoch in each]
        start = training_steps.enlarged_start(own.seed, initial_scale)
        again = partial(training_steps.placed, backend, start, count)
        units = training_steps.time_units(backend, count, data, own)
        training_steps.add_case_of_epochs(trial, name, again, units, data, own, epochs, watch)
        # NumPy repeats the fixed batch once: more devices are compared with one.
        if kind == SCALED or count == 1:
            training_steps.check_first_losses(trial, data, own, start, epochs[0].losses)
    # The trainings of each plan stand in the same order. One that ended early on one side only
    # counts as infinite.
    losses = {
        count: [np.array(epochs[0].losses[:5]) for _, epochs in trainings]
        for (kind, count), trainings in trained.items()
        if kind == FIXED
    }
    difference = trial.checks["max_device_difference"] = largest_of(
        relative_error(mine, one)
        for each in losses.values()
        for mine, one in zip(each, losses[1], strict=True)
    )
    if not difference < 1e-4:
        unlike = (
            "with the same batch the first losses differ from one device's by "
            f"{difference:.1e} of their size"
        )
        trial.problems.append(unlike)
    accuracies = {
        plan: {
            rate: [each[-1].accuracy for own, each in trainings if own.learning_rate == rate]
            for rate in rates
        }
        for plan, trainings in trained.items()
    }
    find_figures(trial, accuracies, len(data.test_labels))
    trial.described["data"] = data.source


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
    """Train on the first devices; return the epochs, or one without losses as soon as a loss is not
    finite.
    """
    params = training_steps.placed(
        backend, training_steps.enlarged_start(settings.seed, scale), devices
    )
    try:
        return tuple(train(backend, params, data, settings, on_batch))
    except NotFiniteError:
        # The network is evaluated as it was before the step that would have spoilt it.
        return (Epoch(1, math.nan, math.nan, 0, (), evaluate(backend, params, data)),)


def steps_that_fit(
    backend: Backend, data: Dataset, settings: Settings, scale: float, seconds: float
) -> int:
    """Return how many steps an epoch of one device's training may have, so that all take so many
    seconds.
    """
    _, single, several = (
        measure(
            backend, partial(train_once, backend, 1, data, replace(settings, limit=limit), scale)
        )[1]
        for limit in (1, 1, 1 + PROBED_STEPS)
    )
    # One more in every epoch.
    step = max(several - single, 1e-6) / PROBED_STEPS
    return min(MOST_STEPS, max(FEWEST_STEPS, int((seconds - single) / step)))


def find_figures(
    trial: Trial, accuracies: Mapping[tuple[str, int], Mapping[float, Sequence[float]]], images: int
) -> None:
    """Keep the curves over the rates, and what they show: accuracies of so many test images, seed
    by seed.
    """
    curves = {
        plan: {rate: fmean(each) for rate, each in row.items()} for plan, row in accuracies.items()
    }
    total = len(trial.devices)
    one, scaled = curves[FIXED, 1], curves[SCALED, total]
    # The same batch on more devices is the same training once more, and no further point.
    points = [row for (kind, count), row in accuracies.items() if kind != FIXED or count == 1]
    everywhere = [each for row in points for each in row.values()]
    learnt = [each for each in everywhere if min(each) >= CHANCE]
    noise = noise_of(learnt if len(learnt) > 1 else everywhere[:1], images, len(one) - 1)
    trial.found("accuracy_noise", noise)
    fixed = {count: row for (kind, count), row in accuracies.items() if kind == FIXED}
    differences = len(one) * (len(fixed) - 1)
    noise_at = {
        rate: noise_of([row[rate] for row in fixed.values()], images, differences) for rate in one
    }
    trial.found("largest_accuracy_noise_between_devices", max(noise_at.values()))
    best: list[Interval] = []
    for name, curve in (("one_device", one), ("scaled_batch", scaled)):
        # The lowest of equals.
        rate = max(sorted(curve), key=curve.__getitem__)
        as_good = [other for other in curve if curve[rate] - curve[other] <= noise]
        best.append(Interval(rate, min(as_good), max(as_good)))
        trial.found(f"best_rate_{name}", rate)
        trial.found(f"lowest_best_rate_{name}", min(as_good))
        trial.found(f"highest_best_rate_{name}", max(as_good))
        trial.found(f"best_test_accuracy_{name}", curve[rate])
    before, after = best
    allowed = Interval(
        after.estimate / before.estimate, after.low / before.high, after.high / before.low
    )
    trial.found(
        RATIO.name, allowed if max(*one.values(), *scaled.values()) >= CHANCE else allowed.estimate
    )
    gains = [
        scaled[tried] - scaled[rate]
        for rate, tried in product(one, scaled)
        if one[rate] >= CHANCE and math.isclose(tried, total * rate, rel_tol=1e-6)
    ]
    if gains:
        gain = fmean(gains)
        trial.found(GAIN.name, Interval(gain, gain - noise, gain + noise))
        trial.found(f"lowest_{GAIN.name}", min(gains))
        trial.found(f"highest_{GAIN.name}", max(gains))
    difference = max(
        abs(curves[FIXED, count][rate] - one[rate]) / noise_at[rate]
        for count in fixed
        for rate in one
    )
    trial.found(DIFFERENCE.name, Interval(difference, difference, difference))
    trial.points |= {case_name(*plan): curve for plan, curve in curves.items()}


def noise_of(points: Sequence[Sequence[float]], images: int, differences: int = 1) -> float:
    """Return what two mean accuracies must differ by to count as different: what seeds do to one
    point and not another.

    `points` holds the accuracies of each point, seed by seed; trainings of one seed start alike.
    What a seed does to all points is no noise; the variance that is left is. So many `differences`
    are looked at together, and the bound is that which all of them keep to (Bonferroni). Where
    there are too few points or seeds, there is only the variance of counting so many test images.
    """
    all_points = np.array(points)
    count, quantile = len(points[0]), 1 - MISTAKEN / 2 / max(1, differences)
    if min(all_points.shape) < 2:
        return max(MIN_NOISE, NormalDist().inv_cdf(quantile) * (2 * 0.25 / images / count) ** 0.5)
    left = (
        all_points
        - all_points.mean(axis=1, keepdims=True)
        - all_points.mean(axis=0)
        + all_points.mean()
    )
    freedom = (len(points) - 1) * (count - 1)
    return max(
        MIN_NOISE,
        student_t(freedom, quantile) * float(2 * np.sum(left**2) / freedom / count) ** 0.5,
    )


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
