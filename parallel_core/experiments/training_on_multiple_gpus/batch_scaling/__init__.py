"""Batch scaling: is a device worth more when the batch grows with the number of devices?

Book: Dive into Deep Learning, "Training on Multiple GPUs", exercise 1.

Prediction: A step on k devices costs the work on b/k images each, and something that does not depend on the images:
launching the operators on every device, exchanging the gradients, updating. With a batch of k·b every device has b
images to itself, so the fixed part weighs k times less, and images a second should come nearer to k times one device's.

Method: LeNet takes the same few steps on 1, 2, 4, … of the loaded devices up to all of them, with the batch of b that
one device has and with k·b; all of them are timed in turn. The threads of a device stay the same. The first losses of
each are checked against NumPy on one device, with batches of 64 images for each device at most.

Look at: `scaled_batch_speedup`, the images a second with a batch of k·b over those with b, on all devices; the curves
of images a second over the number of devices; `…_scaling_efficiency`, the speed of k devices over k times that of one.

Read: An efficiency of 1 means that every device counts in full. If devices share cores (`--devices 4` on 2 cores) it
cannot be reached; on a synchronous engine the devices take turns, and it is 1/k. It may exceed 1 with the fixed
batch, because a smaller share of a batch fits better into a core's cache. Speed is half of the answer: larger batches
take fewer steps for the same images, and `learning-rates` asks what that does to accuracy.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated

import numpy as np

from backends import Backend
from backends.host import clock_without_compiling
from parallel_core.errors import RequestError
from parallel_core.experiments.measuring import largest_error, refuse_single_device, result_of, take_in_turn
from parallel_core.experiments.runner.declaration import BUDGET, Budget, Exercise, Experiment, Parameter, Rounds, Seed
from parallel_core.experiments.training_on_multiple_gpus.batch_scaling import verdicts
from parallel_core.experiments.training_on_multiple_gpus.first_losses import (
    enlarged_start,
    first_losses,
    numpy_losses,
    without_test,
)
from parallel_core.experiments.training_on_multiple_gpus.repeated_steps import one_step
from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import FIXED, SCALED, case_name, plans
from parallel_core.experiments.training_on_multiple_gpus.steps_as_units import units_of
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.timing import Timing
from parallel_core.measurement.verdicts import times_as_long
from parallel_core.system.machine import describe_machine
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import Dataset
from parallel_core.training.loop import train
from parallel_core.training.step import get_params

__all__ = ["EXPERIMENT", "run"]

CHECKED_SCALE = 8.0
CHECKED_STEPS = 2
"""The first loss is of the start alone; the second one shows the gradients, and NumPy is slow."""
CHECKED_IMAGES = 64
"""Of one device, at most."""
MOST_STEPS = 10
TIMED_SHARE = 0.9
"""Of the budget: for what comes before the last timing ends."""

Plan = tuple[str, int]
"""A kind of batch and a number of devices."""


def run(
    backend: Backend,
    data: Dataset,
    batch_size: Annotated[int, Parameter("Of one device.")] = 256,
    steps: Annotated[int | None, Parameter("Steps in one timing. Default: chosen, 10 at most.")] = None,
    seed: Seed = 0,
    rounds: Rounds = 5,
    budget: Budget = BUDGET,
) -> Result:
    """Time the same steps on 1, 2, 4, … devices, with batches of `batch_size` and of as many times that.

    Raises RequestError for a backend with a single device, and if there are fewer images than the steps take.
    """
    end = clock_without_compiling() + TIMED_SHARE * budget
    total = len(backend.devices)
    refuse_single_device(backend, "batch-scaling", "compares devices")
    if (steps or 1) * total * batch_size > len(data.train_labels):
        raise RequestError(
            f"{steps or 1} steps of {total} × {batch_size} images are more than the {len(data.train_labels)} there "
            "are: choose fewer --steps or a smaller --batch-size"
        )
    error = _error_of_losses(backend, data, plans(min(batch_size, CHECKED_IMAGES), total), seed)
    steps = steps or _chosen_steps(backend, data, batch_size, rounds, end - clock_without_compiling())
    settings = {plan: Settings(1, batch, limit=steps, seed=seed) for plan, batch in plans(batch_size, total).items()}
    cases = _time(backend, data, settings, rounds, end)
    timed = _by_image(dict(zip(settings, cases, strict=True)), settings)
    series = _series_of(timed, batch_size)
    intervals = {
        "scaled_batch_speedup": times_as_long(timed[FIXED][total], timed[SCALED][total]),
        **{f"{kind.replace(' ', '_')}_scaling_efficiency": verdicts.efficiency(timed, kind) for kind in timed},
    }
    return result_of(
        "batch-scaling",
        backend,
        parameters={"batch_size": batch_size, "steps": steps, "seed": seed, "rounds": rounds, "budget": budget},
        cases=cases,
        metrics={
            "scaled_batch_speedup": timed[FIXED][total].median / timed[SCALED][total].median,
            **{
                f"{kind.replace(' ', '_')}_{quantity}": series[f"{quantity} {kind}"][-1]
                for quantity in ("images_per_second", "scaling_efficiency", "step_seconds")
                for kind in timed
            },
        },
        explanation=verdicts.verdict(timed, batch_size),
        answer=Answer(
            (verdicts.about_efficiency(timed), *verdicts.about_cores(_most_efficient(backend))),
            verdicts.what_would_change(backend, timed, batch_size),
        ),
        error=error,
        intervals=intervals,
        # Shares of a batch have no limit, for they may fit better into a core's cache.
        limits={"scaled_batch_scaling_efficiency": 1.0},
        compared="the first losses",
        of="their size",
        data=data.source,
        series=series,
    )


def _chosen_steps(backend: Backend, data: Dataset, batch_size: int, rounds: int, seconds: float) -> int:
    """Choose how many steps a timing has, so that all rounds fit into so many seconds even if devices take turns."""
    total = len(backend.devices)
    take = _take_steps(backend, 1, data, Settings(1, batch_size, limit=1))
    _, step = min(take() for _ in range(2))
    batches = sum(plans(1, total).values())
    # One more for the warm-up, and in each round a step of every device as one unit.
    fitting = int(seconds / ((rounds + 1) * batches * step)) - 1
    return max(1, min(MOST_STEPS, fitting, len(data.train_labels) // (total * batch_size)))


def _time(
    backend: Backend, data: Dataset, settings: Mapping[Plan, Settings], rounds: int, end: float
) -> tuple[Case, ...]:
    """Time the steps of every plan in turn, and what their kernels take by themselves, until `end` at most."""
    names = {plan: case_name(*plan, len(backend.devices)) for plan in settings}
    units = units_of(backend, {names[plan]: one_step(plan[1], data, wanted) for plan, wanted in settings.items()})
    takes = {names[plan]: _take_steps(backend, plan[1], data, wanted) for plan, wanted in settings.items()}
    cases = take_in_turn(backend, takes, rounds, units=units, budget=end - clock_without_compiling())
    return tuple(
        replace(
            cases[names[plan]],
            bare_seconds=tuple((wanted.limit or 1) * bare for bare in cases[names[plan]].bare_seconds),
        )
        for plan, wanted in settings.items()
    )


def _take_steps(backend: Backend, count: int, data: Dataset, settings: Settings) -> Callable[[], Timing]:
    """Make the function that trains on the first devices, from where it left off, and returns its timing."""
    params = [get_params(backend, device, settings.seed) for device in backend.devices[:count]]
    images = without_test(data)

    def take() -> Timing:
        epoch = next(train(backend, params, images, settings))
        return epoch.dispatch_seconds, epoch.seconds

    return take


def _error_of_losses(backend: Backend, data: Dataset, batches: Mapping[Plan, int], seed: int) -> float:
    """Return the largest relative difference of the first losses from NumPy's, over all kinds of batches."""
    start = enlarged_start(seed, CHECKED_SCALE)
    expected = {
        batch: numpy_losses(data, Settings(1, batch, seed=seed), start, CHECKED_STEPS, _tell_of_numpy)
        for batch in set(batches.values())
    }
    losses = [
        first_losses(backend, count, data, Settings(1, batch, seed=seed), start, len(expected[batch]))
        for (_, count), batch in batches.items()
    ]
    return largest_error(map(np.array, losses), [np.array(expected[batch]) for batch in batches.values()])


def _tell_of_numpy(*_: int) -> None:
    tell("check against NumPy", 0.0)


def _by_image(cases: Mapping[Plan, Case], settings: Mapping[Plan, Settings]) -> verdicts.Timed:
    """Return the times of an image, by kind and number of devices; one device stands in both kinds."""
    images = {plan: wanted.batch_size * (wanted.limit or 1) for plan, wanted in settings.items()}
    an_image = {plan: verdicts.divided(case, images[plan]) for plan, case in cases.items()}
    counts = sorted({count for _, count in cases})
    return {
        kind: {count: an_image[kind if count > 1 else FIXED, count] for count in counts} for kind in (FIXED, SCALED)
    }


def _series_of(timed: verdicts.Timed, batch_size: int) -> dict[str, tuple[float, ...]]:
    """Return speed, time of a step and efficiency over the number of devices, `QUANTITY KIND` each."""
    counts = tuple(timed[FIXED])
    one = 1 / timed[FIXED][1].median
    series = {"devices": tuple(map(float, counts))}
    for kind, cases in timed.items():
        speeds = {count: 1 / case.median for count, case in cases.items()}
        series[f"images_per_second {kind}"] = tuple(speeds.values())
        series[f"scaling_efficiency {kind}"] = tuple(speed / (count * one) for count, speed in speeds.items())
        series[f"step_seconds {kind}"] = tuple(
            batch_size * (count if kind == SCALED else 1) / speed for count, speed in speeds.items()
        )
    series["images_per_second k times one device"] = tuple(count * one for count in counts)
    return series


def _most_efficient(backend: Backend) -> float:
    """Return the efficiency that all devices together cannot exceed: below 1 if CPU devices share cores."""
    if any(device.kind == "gpu" for device in backend.devices):
        return 1.0
    return min(1.0, describe_machine()["cores"] / (len(backend.devices) * backend.threads_per_device))


EXPERIMENT = Experiment(
    name="batch-scaling",
    position=4,
    exercises=(Exercise(1, "What does a batch of k times b bring on k devices?"),),
    run=run,
    case="all devices, scaled batch",
    metric="scaled_batch_speedup",
    metric_means="images a second with a batch that grows with the devices, over those without: 1 is no gain",
    curves=Curves(
        over="devices",
        quantity="images_per_second",
        x_title="devices",
        y_title="images a second",
        log_x=False,
        dotted=("k times one device",),
        in_place_of_times=False,
        caption="Images a second with the batch of one device, and with as many times that as there are "
        "devices. The dotted curve is what one device does, times their number.",
    ),
    options={"full": {"rounds": 5, "steps": 8}, "quick": {"rounds": 3, "steps": 4}},
)
