"""Learning rates: which learning rate is best, and does it change with the number of devices?

Book: Dive into Deep Learning, "Training on Multiple GPUs", exercise 2. Accuracies are computed on all devices, as
its exercise 4 asks (`parallel_core.training.loop.evaluate`).

Prediction: With the same batch, k devices add up the same gradient as one, so neither losses nor accuracy nor the best
rate depend on k. With a batch of k·b there are k times fewer steps for the same images, and the linear scaling rule
says what makes up for it: a rate k times as large (Goyal and others 2017, "Accurate, Large Minibatch SGD"). It holds
while k small steps go nearly the way of a large one, and must fail if the network does not bear the larger rate.

Method: LeNet is trained on the same images with each rate on 1, 2, 4, … of the loaded devices up to all of them, with
the batch of b and with k·b, in at least three rounds; each round has a seed of its own, which draws its start and its
order of images, the same for all. The rate is per image: gradients are averaged over the global batch. The weights
start 8 times as large as the book's, with which the first 300 steps at a rate of 0.2 stay at chance (`--initial-scale
1` shows it). The first losses are checked against NumPy, and with the same batch against those of one device. What the
seeds do to one point and not to another is the noise: of rates that are compared on the same devices, and at each rate
of numbers of devices that are compared with the same batch.

Look at: the curves of accuracy over the rate, one for each number of devices and kind of batch; `best_rate_ratio`,
which linear scaling predicts to be k; `scaled_rate_gain`, the accuracy that a rate k times as large gains with k times
the batch.

Read: The curves of the fixed batch coincide within the noise, which is small in the middle and grows towards rates that
the network hardly bears: there rounding errors, which the number of devices changes, grow from step to step until one
training learns and another does not. So losses that agree to the last digits in the first steps may end in accuracies
that differ by a tenth. Accuracy is of 2000 test images; one is called better only if it differs by more than the
noise. Therefore the best rate is a set: all that do not differ significantly from the best. 0.1 is guessing, here
mostly after a rate that was too large. Training is short, 200 steps at most unless `--limit` says more, and a longer
one moves the curves.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import fmean
from time import perf_counter
from typing import Annotated, TypeAlias

import numpy as np

from backends import Backend
from parallel_core.errors import MeasurementError
from parallel_core.experiments.runner.changes import Found, larger
from parallel_core.experiments.runner.declaration import Exercise, Experiment
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.parameters import Parameter
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus.first_losses import check_first_losses, enlarged_start, placed
from parallel_core.experiments.training_on_multiple_gpus.learning_rates.noise import CHANCE, Seeds
from parallel_core.experiments.training_on_multiple_gpus.repeated_steps import bare_epoch_seconds, repeated_steps
from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import FIXED, SCALED, case_name, plans
from parallel_core.measurement.checks import largest_of, relative_error
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Case
from parallel_core.measurement.sweep import Curves
from parallel_core.system.machine_watch import sample_machine, watched
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import Dataset
from parallel_core.training.divergence import NotFiniteError
from parallel_core.training.loop import evaluate, ignore, train
from parallel_core.training.progress import Epoch

__all__ = ["EXPERIMENT", "Trained", "find_figures", "program", "train_once", "with_batch"]

RATES = Parameter(
    "Learning rates. The rule is tried if one is as many times another one as there are devices.", metavar="RATES"
)
DEFAULT_RATES = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
SETTINGS = Parameter(
    fields={
        "batch_size": Parameter("Of one device."),
        "epochs": Parameter("Of each training."),
        "limit": Parameter("One device's batches an epoch. Default: chosen, 200 at most."),
        "seed": Parameter(minimum=0, maximum=2**32 - 1),
    }
)
DEFAULTS = Settings(epochs=1, batch_size=32)
MOST_STEPS, FEWEST_STEPS, PROBED_STEPS = 200, 20, 10
"""Of a training on one device, if the budget chooses."""
TEST_IMAGES = 2000
COMPARED_STEPS = 5

Plan: TypeAlias = tuple[str, int]
"""A kind of batch and a number of devices."""
Curve: TypeAlias = Mapping[float, float]
"""Accuracies by learning rate."""


def program(
    trial: Trial,
    data: Dataset,
    rates: Annotated[Sequence[float], RATES] = DEFAULT_RATES,
    settings: Annotated[Settings, SETTINGS] = DEFAULTS,
    initial_scale: Annotated[float, Parameter("Times the book's initial weights.")] = 8.0,
    rounds: Annotated[int, Parameter("Trainings at each point, seed by seed.")] = 3,
    budget: Annotated[
        float, Parameter("Seconds that trainings may take, about: shorter ones if they are too few.")
    ] = 180,
    on_batch: Callable[[int, int], object] = ignore,
) -> None:
    """Train with every rate on 1, 2, 4, … devices, with batches of `settings.batch_size` and of as many times that.

    `settings.limit` is in batches of that size, and all see as many images; if it is None, as many are chosen as the
    budget allows all trainings. The learning rate of the settings is not used. Round `n`, from 0, has the seed
    `settings.seed + n`. `on_batch(epoch, images)` is called as work is done, with all trainings' epochs counted
    through. Raises RequestError for a backend with a single device, and MeasurementError if no loss stays finite.
    """
    trial.refuse_single_device("learning-rates", "compares devices")
    backend, total, rates = trial.backend, len(trial.devices), tuple(sorted(rates))
    data = replace(data, test_images=data.test_images[:TEST_IMAGES], test_labels=data.test_labels[:TEST_IMAGES])
    batches = plans(settings.batch_size, total)
    points = list(product(range(rounds), rates, batches))
    lowest = replace(settings, learning_rate=rates[0])
    chosen = settings.limit or steps_that_fit(backend, data, lowest, initial_scale, budget / len(points))
    trial.parameters |= {"rates": ",".join(f"{rate:g}" for rate in rates), "limit": chosen}
    # Trainings as long as was expected are reported, however long they are.
    factor = 1.0 if settings.limit else MOST_STEPS / chosen
    before = sample_machine()
    trained: dict[Plan, list[Trained]] = {plan: [] for plan in batches}
    for place, (seed, rate, (kind, count)) in enumerate(points):
        own = with_batch(replace(settings, limit=chosen), count if kind == SCALED else 1, rate)
        report = partial(_counted_through, on_batch, place * settings.epochs, factor)
        own = replace(own, seed=settings.seed + seed)
        trained[kind, count].append(train_once(backend, count, data, own, initial_scale, report))
    watch = watched(before, sample_machine())
    for plan, trainings in trained.items():
        case = case_of(case_name(*plan, total), trainings, backend, plan[1], data, initial_scale)
        trial.cases[case.name] = replace(case, watch=watch)
    check_losses(trial, data, trained, initial_scale)
    accuracies = {
        plan: {rate: [one.accuracy for one in trainings[place :: len(rates)]] for place, rate in enumerate(rates)}
        for plan, trainings in trained.items()
    }
    find_figures(trial, accuracies, len(data.test_labels))
    trial.described["data"] = data.source


@dataclass(frozen=True)
class Trained:
    """What one training gave; without epochs if the loss did not stay finite."""

    settings: Settings
    accuracy: float
    epochs: tuple[Epoch, ...]

    @property
    def first_losses(self) -> tuple[float, ...]:
        """The losses of the first few steps."""
        return self.epochs[0].losses[:COMPARED_STEPS] if self.epochs else ()


def with_batch(settings: Settings, times: int, rate: float) -> Settings:
    """Return settings for a batch so many times as large, and as many images in all."""
    limit = settings.limit and math.ceil(settings.limit / times)
    return replace(settings, batch_size=settings.batch_size * times, limit=limit, learning_rate=rate)


def train_once(
    backend: Backend,
    devices: int,
    data: Dataset,
    settings: Settings,
    scale: float,
    on_batch: Callable[[int, int], object] = ignore,
) -> Trained:
    """Train on the first devices and return what came of it; a loss that is not finite ends it early."""
    params = placed(backend, enlarged_start(settings.seed, scale), devices)
    try:
        epochs = tuple(train(backend, params, data, settings, on_batch))
    except NotFiniteError:
        # The network is evaluated as it was before the step that would have spoilt it.
        return Trained(settings, evaluate(backend, params, data), ())
    return Trained(settings, epochs[-1].accuracy, epochs)


def steps_that_fit(backend: Backend, data: Dataset, settings: Settings, scale: float, seconds: float) -> int:
    """Return how many steps one device's training may have, so that it takes so many seconds."""

    def taken(limit: int) -> float:
        started = perf_counter()
        train_once(backend, 1, data, replace(settings, limit=limit), scale)
        return perf_counter() - started

    taken(1)
    single, several = taken(1), taken(1 + PROBED_STEPS)
    step = max(several - single, 1e-6) / PROBED_STEPS
    return min(MOST_STEPS, max(FEWEST_STEPS, int((seconds - single) / (settings.epochs * step))))


def case_of(
    name: str, trainings: Sequence[Trained], backend: Backend, devices: int, data: Dataset, scale: float
) -> Case:
    """Make the case of all whole epochs; raises MeasurementError if there is none."""
    whole = [one for one in trainings if one.epochs]
    if not whole:
        raise MeasurementError(f"on {name} no loss stayed finite: choose lower --rates")
    settings, first = whole[0].settings, whole[0].epochs[0]
    place = partial(placed, backend, enlarged_start(settings.seed, scale), devices)
    again, share = repeated_steps(backend, place, data, settings, first)
    return Case(
        name,
        tuple(epoch.seconds for one in whole for epoch in one.epochs),
        tuple(epoch.dispatch_seconds for one in whole for epoch in one.epochs),
        bare_seconds=bare_epoch_seconds(backend, devices, data, settings, first),
        again=again,
        share=share,
    )


def check_losses(trial: Trial, data: Dataset, trained: Mapping[Plan, Sequence[Trained]], scale: float) -> None:
    """Compare the first losses with NumPy's, and with the fixed batch with those of one device.

    So NumPy repeats the fixed batch once. The trainings of each plan stand in the same order. One that ended early on
    one side only counts as infinite.
    """
    for (kind, count), trainings in trained.items():
        if kind != FIXED or count == 1:
            one = next(one for one in trainings if one.epochs)
            start = enlarged_start(one.settings.seed, scale)
            check_first_losses(trial, data, one.settings, one.first_losses, start)
    difference = trial.checks["max_device_difference"] = largest_of(
        relative_error(np.array(mine.first_losses), np.array(one.first_losses))
        for (kind, _), trainings in trained.items()
        if kind == FIXED
        for mine, one in zip(trainings, trained[FIXED, 1], strict=True)
    )
    if not difference < 1e-4:
        unlike = f"with the same batch the first losses differ from one device's by {difference:.1e} of their size"
        trial.problems.append(unlike)


def find_figures(trial: Trial, accuracies: Mapping[Plan, Mapping[float, Sequence[float]]], images: int) -> None:
    """Keep the curves over the rates, and what they show: accuracies of so many test images, seed by seed."""
    seeds, total = Seeds(accuracies, images), len(trial.devices)
    curves = {plan: {rate: fmean(each) for rate, each in row.items()} for plan, row in accuracies.items()}
    one, scaled, noise = curves[FIXED, 1], curves[SCALED, total], seeds.between_rates
    best = {"one_device": best_rates(one, noise), "scaled_batch": best_rates(scaled, noise)}
    for (name, rates), curve in zip(best.items(), (one, scaled), strict=True):
        trial.found(f"best_rate_{name}", rates[0])
        trial.found(f"lowest_best_rate_{name}", min(rates))
        trial.found(f"highest_best_rate_{name}", max(rates))
        trial.found(f"best_test_accuracy_{name}", max(curve.values()))
    trial.found("accuracy_noise", noise)
    trial.found("largest_accuracy_noise_between_devices", max(map(seeds.between_devices, one)))
    before, after = best.values()
    ratio = after[0] / before[0]
    learnt = max(*one.values(), *scaled.values()) >= CHANCE
    allowed = Interval(ratio, min(after) / max(before), max(after) / min(before))
    trial.found(RATIO.name, allowed if learnt else ratio)
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
        abs(curve[rate] - one[rate]) / seeds.between_devices(rate)
        for (kind, _), curve in curves.items()
        if kind == FIXED
        for rate in one
    )
    trial.found(DIFFERENCE.name, Interval(difference, difference, difference))
    trial.described["series"] = {"rate": tuple(one)} | {
        f"test_accuracy {case_name(*plan)}": tuple(curve.values()) for plan, curve in curves.items()
    }


def best_rates(curve: Curve, noise: float) -> tuple[float, ...]:
    """Return the rates that do not differ significantly from the best: that one first, the lowest of equals."""
    best = max(sorted(curve), key=lambda rate: curve[rate])
    return (best, *(rate for rate in curve if rate != best and curve[best] - curve[rate] <= noise))


def _counted_through(
    on_batch: Callable[[int, int], object], before: int, factor: float, epoch: int, images: int
) -> None:
    """Pass progress on, with the epochs of the trainings before counted in."""
    on_batch(before + epoch, round(factor * images))


def _extent(
    backend: Backend, data: Dataset, rates: Sequence[float], settings: Settings, rounds: int, **_: object
) -> tuple[int, int]:
    """Return the epochs of all trainings, and the images of each."""
    trainings = len(plans(1, len(backend.devices))) * len(rates) * rounds
    images = len(data.train_labels)
    return trainings * settings.epochs, min(images, settings.batch_size * (settings.limit or MOST_STEPS))


RATIO = Metric(
    "best_rate_ratio",
    means="the best rate with a batch that grew with the devices, over one device's best: 1 is the same",
    # 0 is the same rate, 1 one that grew as the batch did.
    share=lambda ratio, result: math.log(max(ratio, 1e-9)) / math.log(len(result.backend["devices"])),
    timed=False,
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
    means="the accuracy that scaling the rate with the batch gains over keeping it, in the mean of rates: 0 is none",
    timed=False,
    bands=(
        Band(LOWEST, "worse", "In the mean of rates, scaling with the batch was worse than keeping the rate"),
        Band(0.0, "better", "In the mean of rates, scaling with the batch was better than keeping the rate"),
    ),
)
DIFFERENCE = Metric(
    "fixed_batch_difference_over_noise",
    means="the largest difference of accuracies between numbers of devices, over the noise of seeds at its rate",
    timed=False,
    bands=(
        Band(LOWEST, "same", "With the same batch more devices changed nothing beyond the noise of seeds"),
        Band(1.0, "differ", "With the same batch accuracies differ beyond the noise of seeds"),
    ),
)


def _learnt_nothing(found: Found) -> bool:
    best = (found.result.metrics[f"best_test_accuracy_{which}"] for which in ("one_device", "scaled_batch"))
    return max(best) < CHANCE


EXPERIMENT = Experiment(
    name="learning-rates",
    position=5,
    exercises=(Exercise(2, "Which learning rate is best, and how does that change with the devices?"),),
    program=program,
    extent=_extent,
    case="1 device",
    metrics=(RATIO, GAIN, DIFFERENCE),
    changes=(
        larger("limit", "Longer trainings", "nothing was learnt (or larger weights: --initial-scale)", _learnt_nothing),
        larger("rounds", "More seeds", "fewer rates are within the noise", lambda found: found.is_open),
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
        caption="Accuracy after short training on the same images. With the fixed batch the number of "
        "devices should change nothing; with the scaled one there are fewer, larger steps.",
    ),
    options={
        "full": {"rounds": 3, "rates": "0.025,0.1,0.4", "limit": 200},
        "quick": {"rounds": 3, "rates": "0.025,0.1", "limit": 60},
    },
)
