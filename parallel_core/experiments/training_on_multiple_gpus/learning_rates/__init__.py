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

Look at: the curves of accuracy over the rate, one for each number of devices and kind of batch; the notes, in which the
rule is held against keeping the rate.

Read: The curves of the fixed batch coincide within the noise, which is small in the middle and grows towards rates that
the network hardly bears: there rounding errors, which the number of devices changes, grow from step to step until one
training learns and another does not. So losses that agree to the last digits in the first steps may end in accuracies
that differ by a tenth. Accuracy is of 2000 test images; one is called better only if it differs by more than the
noise. Therefore the best rate is a set: all that are not shown to be worse than the highest. 0.1 is guessing, here
mostly after a rate that was too large. Training is short, 200 steps at most unless `--limit` says more, and a longer
one moves the curves.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from time import perf_counter
from typing import Annotated

from backends import Backend
from parallel_core.experiments.measuring import refuse_single_device, result_of
from parallel_core.experiments.runner.declaration import Exercise, Experiment, Parameter
from parallel_core.experiments.training_on_multiple_gpus.learning_rates import verdicts
from parallel_core.experiments.training_on_multiple_gpus.learning_rates.noise import Seeds
from parallel_core.experiments.training_on_multiple_gpus.learning_rates.trainings import (
    Trained,
    case_of,
    device_difference,
    error_of_first,
    train_once,
    with_batch,
)
from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import (
    FIXED,
    SCALED,
    case_name,
    plans,
)
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import Curves
from parallel_core.system.machine_watch import sample_machine, watched
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import Dataset
from parallel_core.training.loop import ignore

__all__ = ["EXPERIMENT", "run"]

DEFAULT_RATES = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
RATES = Parameter(
    "Learning rates. The rule is tried if one is as many times another one as there are devices.", metavar="RATES"
)
DEFAULTS = Settings(epochs=1, batch_size=32)
MOST_STEPS, FEWEST_STEPS, PROBED_STEPS = 200, 20, 10
"""Of a training on one device, if the budget chooses."""
SETTINGS = Parameter(
    fields={
        "batch_size": Parameter("Of one device."),
        "epochs": Parameter("Of each training."),
        "limit": Parameter("One device's batches an epoch. Default: chosen, 200 at most."),
        "seed": Parameter(minimum=0, maximum=2**32 - 1),
    }
)

TEST_IMAGES = 2000

Trainings = dict[tuple[str, int], list[Trained]]
"""For each kind of batch and number of devices: the trainings, round by round, and rate by rate in each."""


def run(
    backend: Backend,
    data: Dataset,
    rates: Annotated[Sequence[float], RATES] = DEFAULT_RATES,
    settings: Annotated[Settings, SETTINGS] = DEFAULTS,
    initial_scale: Annotated[float, Parameter("Times the book's initial weights.")] = 8.0,
    rounds: Annotated[int, Parameter("Trainings at each point, seed by seed.")] = 3,
    budget: Annotated[
        float, Parameter("Seconds that trainings may take, about: shorter ones if they are too few.")
    ] = 180,
    on_batch: Callable[[int, int], object] = ignore,
) -> Result:
    """Train with every rate on 1, 2, 4, … devices, with batches of `settings.batch_size` and of as many times that.

    `settings.limit` is in batches of that size, and all see as many images; if it is None, as many are chosen as the
    budget allows all trainings. The learning rate of the settings is not used. Round `n`,
    from 0, has the seed `settings.seed + n`. `on_batch(epoch, images)` is called as work is done, with all trainings'
    epochs counted through. Raises RequestError for a backend with a single device, and MeasurementError if no loss
    stays finite.
    """
    total = len(backend.devices)
    refuse_single_device(backend, "learning-rates", "compares devices")
    rates = tuple(sorted(rates))
    data = replace(data, test_images=data.test_images[:TEST_IMAGES], test_labels=data.test_labels[:TEST_IMAGES])
    chosen = settings.limit or _steps_that_fit(backend, data, rates, settings, initial_scale, rounds, budget)
    report = partial(_stretched, on_batch, 1.0 if settings.limit else MOST_STEPS / chosen)
    settings = replace(settings, limit=chosen)
    before = sample_machine()
    trained = _train_all(backend, data, rates, settings, initial_scale, rounds, report)
    watch = watched(before, sample_machine())

    accuracies = {
        plan: {rate: [one.accuracy for one in trainings[place :: len(rates)]] for place, rate in enumerate(rates)}
        for plan, trainings in trained.items()
    }
    curves = {plan: {rate: fmean(each) for rate, each in row.items()} for plan, row in accuracies.items()}
    seeds = Seeds(accuracies, len(data.test_labels))
    noise = seeds.between_rates
    one, scaled = curves[FIXED, 1], {count: curve for (kind, count), curve in curves.items() if kind == SCALED}
    fixed = {count: curve for (kind, count), curve in curves.items() if kind == FIXED and count > 1}
    cases = tuple(
        replace(case_of(case_name(*plan, total), trainings, backend, plan[1], data, initial_scale), watch=watch)
        for plan, trainings in trained.items()
    )
    difference = device_difference(trained)
    unlike = f"with the same batch the first losses differ from one device's by {difference:.1e} of their size"
    return result_of(
        "learning-rates",
        backend,
        parameters={
            "rates": ",".join(f"{rate:g}" for rate in rates),
            **{name: getattr(settings, name) for name in ("batch_size", "epochs", "limit", "seed")},
            "initial_scale": initial_scale,
            "rounds": rounds,
        },
        cases=cases,
        intervals={"best_rate_ratio": verdicts.ratio_of_ranges(one, scaled[total], noise)},
        metrics={
            "best_rate_ratio": verdicts.best_rate(scaled[total]) / verdicts.best_rate(one),
            "best_rate_one_device": verdicts.best_rate(one),
            "best_rate_scaled_batch": verdicts.best_rate(scaled[total]),
            "best_test_accuracy_one_device": max(one.values()),
            "best_test_accuracy_scaled_batch": max(scaled[total].values()),
            "accuracy_noise": noise,
            "largest_accuracy_noise_between_devices": max(seeds.between_devices(rate) for rate in rates),
            **verdicts.ranges({"one_device": one, "scaled_batch": scaled[total]}, noise),
        },
        explanation=verdicts.verdict(one, scaled, noise),
        answer=Answer(
            (
                verdicts.about_scaling(one, scaled, noise),
                verdicts.about_fixed(one, fixed, difference, seeds.between_devices),
            ),
            verdicts.what_would_change(one, scaled[total], noise, rounds, chosen),
        ),
        notes=(
            verdicts.about_seeds(rounds, chosen),
            *(verdicts.about_rule(one, curve, count, noise) for count, curve in scaled.items()),
        ),
        error=error_of_first(data, trained, initial_scale),
        compared="the first losses",
        of="their size",
        checks={"max_device_difference": difference},
        judges_times=False,
        problems=() if difference < 1e-4 else (unlike,),
        data=data.source,
        series={"rate": rates}
        | {f"test_accuracy {case_name(*plan)}": tuple(curve.values()) for plan, curve in curves.items()},
    )


def _train_all(
    backend: Backend,
    data: Dataset,
    rates: Sequence[float],
    settings: Settings,
    initial_scale: float,
    rounds: int,
    on_batch: Callable[[int, int], object],
) -> Trainings:
    """Train once for each round, rate, kind of batch and number of devices."""
    batches = plans(settings.batch_size, len(backend.devices))
    trained: Trainings = {plan: [] for plan in batches}
    for seed in range(settings.seed, settings.seed + rounds):
        for rate in rates:
            for (kind, count), trainings in trained.items():
                chosen = replace(with_batch(settings, count if kind == SCALED else 1, rate), seed=seed)
                before = settings.epochs * sum(map(len, trained.values()))
                report = partial(_counted_through, on_batch, before)
                trainings.append(train_once(backend, count, data, chosen, initial_scale, report))
    return trained


def _steps_that_fit(
    backend: Backend,
    data: Dataset,
    rates: Sequence[float],
    settings: Settings,
    initial_scale: float,
    rounds: int,
    budget: float,
) -> int:
    """Return how many steps one device's training may have, so that all trainings fit into the budget of seconds."""

    def seconds(limit: int) -> float:
        started = perf_counter()
        train_once(backend, 1, data, with_batch(replace(settings, limit=limit), 1, rates[0]), initial_scale, ignore)
        return perf_counter() - started

    seconds(1)
    single, several = seconds(1), seconds(1 + PROBED_STEPS)
    trainings = len(plans(1, len(backend.devices))) * len(rates) * rounds
    step = max(several - single, 1e-6) / PROBED_STEPS
    return min(MOST_STEPS, max(FEWEST_STEPS, int((budget / trainings - single) / (settings.epochs * step))))


def _stretched(on_batch: Callable[[int, int], object], factor: float, epoch: int, images: int) -> None:
    """Pass progress on as that of trainings so many times as long, which were expected."""
    on_batch(epoch, round(factor * images))


def _counted_through(on_batch: Callable[[int, int], object], before: int, epoch: int, images: int) -> None:
    """Pass progress on, with the epochs of the trainings before counted in."""
    on_batch(before + epoch, images)


def _extent(
    backend: Backend, data: Dataset, rates: Sequence[float], settings: Settings, rounds: int, **_: object
) -> tuple[int, int]:
    """Return the epochs of all trainings, and the images of each."""
    trainings = len(plans(1, len(backend.devices))) * len(rates) * rounds
    images = len(data.train_labels)
    return trainings * settings.epochs, min(images, settings.batch_size * (settings.limit or MOST_STEPS))


EXPERIMENT = Experiment(
    name="learning-rates",
    position=5,
    exercises=(Exercise(2, "Which learning rate is best, and how does that change with the devices?"),),
    run=run,
    extent=_extent,
    case="1 device",
    metric="best_rate_ratio",
    metric_means="the best rate with a batch that grew with the devices, over one device's best: 1 is the same",
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
