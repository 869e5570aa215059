"""Batch scaling: is a device worth more when the batch grows with the number of devices?

Book: Dive into Deep Learning, "Training on Multiple GPUs", exercise 1.

Prediction: A step on k devices costs the work on b/k images each, and something that does not
depend on the images: launching the operators on every device, exchanging the gradients, updating.
With a batch of k·b every device has b images to itself, so the fixed part weighs k times less, and
images a second should come nearer to k times one device's.

Method: LeNet takes the same few steps on 1, 2, 4, … of the loaded devices up to all of them, with
the batch of b that one device has and with k·b, in turn. The threads of a device stay the same. The
first losses of each are checked against NumPy on one device, with batches of 64 images for each
device at most.

Look at: In how many steps with the scaled batch devices computed at the same time, which answers
first; `scaled_batch_speedup`, the images a second with a batch of k·b over those with b, on all
devices; the curves of images a second over the number of devices; `…_scaling_efficiency`, the speed
of k devices over k times that of one.

Read: An efficiency of 1 means that every device counts in full. If devices share cores it cannot be
reached; on a synchronous engine the devices take turns, and it is 1/k. It may exceed 1 with the
fixed batch, because a smaller share of a batch fits better into a core's cache. Speed is half of
the answer: larger batches take fewer steps for the same images, and `learning-rates` asks what that
does to accuracy.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from parallel_core.experiments import training_steps
from parallel_core.experiments.runner.changes import LESS_NOISE, MORE_CORES, larger, with_queue
from parallel_core.experiments.runner.declaration import Exercise, Experiment
from parallel_core.experiments.runner.metrics import (
    LOWEST,
    Band,
    Metric,
    answer_by,
    bands_of_gain,
    gained_on_devices,
)
from parallel_core.experiments.runner.parameters import Chosen, Parameter, Seed
from parallel_core.experiments.runner.trial import TIMED_SHARE, Trial
from parallel_core.experiments.training_on_multiple_gpus.step_counts import AT_ONCE
from parallel_core.experiments.training_steps import FIXED, SCALED, case_name, plans
from parallel_core.experiments.workloads import units_of_step
from parallel_core.measurement.progress import tell
from parallel_core.measurement.sweep import Curves
from parallel_core.system.errors import RequestError
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import initial_parameters, start_of


def program(
    trial: Trial,
    data: Dataset,
    batch_size: Annotated[int, Parameter("Of one device.")] = 256,
    steps: Annotated[
        int | None, Chosen("Steps in one timing. Default: chosen, 10 at most.")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Time the same steps on 1, 2, 4, … devices, with the batch of one device and with a batch that
    grows with the devices.

    Raises RequestError for a backend with a single device, and if there are fewer images than the
    steps take.
    """
    trial.refuse_single_device("batch-scaling", "compares devices")
    total = len(trial.devices)
    if (steps or 1) * total * batch_size > len(data.train_labels):
        raise RequestError(
            f"{steps or 1} steps of {total} × {batch_size} images are more than the "
            f"{len(data.train_labels)} there "
            "are: choose fewer --steps or a smaller --batch-size"
        )
    check_losses(trial, data, batch_size, seed)
    steps_in_timing = steps or fitting_steps(trial, data, batch_size)
    trial.parameters["steps"] = steps_in_timing
    batches = plans(batch_size, total)
    for (kind, count), batch in batches.items():
        settings = Settings(1, batch, limit=steps_in_timing, seed=seed)
        params = training_steps.placed(trial.backend, initial_parameters(seed), count)
        take = partial(training_steps.time_steps, trial.backend, params, data, settings)
        step = training_steps.one_step(count, data, settings)
        bare = units_of_step(trial.backend, step, times=steps_in_timing)
        trial.time(case_name(kind, count, total), take=take, bare=bare)
    medians = {name: case.median for name, case in trial.run().items()}

    def step_seconds(kind: str, count: int, times: Any) -> Any:
        return times[case_name(kind, count, total)] / steps_in_timing

    def speed(kind: str, count: int, times: Any) -> Any:
        # One device has one kind of batch.
        batch = batches.get((kind, count), batch_size)
        return batch / step_seconds(kind, count, times)

    def efficiency(kind: str, count: int, times: Any) -> Any:
        return speed(kind, count, times) / (count * speed(kind, 1, times))

    quantities: Mapping[str, Callable[[str, int, Any], Any]] = {
        "images_per_second": speed,
        "scaling_efficiency": efficiency,
        "step_seconds": step_seconds,
    }
    counts = sorted({count for _, count in batches})
    series = {"devices": tuple(map(float, counts))}
    for kind in (FIXED, SCALED):
        for name, quantity in quantities.items():
            trial.found_by(f"{kind.replace(' ', '_')}_{name}", partial(quantity, kind, total))
            series[f"{name} {kind}"] = tuple(quantity(kind, count, medians) for count in counts)
    series["images_per_second k times one device"] = tuple(
        count * speed(FIXED, 1, medians) for count in counts
    )
    trial.found_by(
        SPEEDUP.name, lambda times: speed(SCALED, total, times) / speed(FIXED, total, times)
    )
    trial.described |= {"data": data.source, "series": series}


def check_losses(trial: Trial, data: Dataset, batch_size: int, seed: int) -> None:
    """Compare the first two losses on every number of devices with NumPy's on one device.

    The batches have at most 64 images for each device. The first loss only depends on the start;
    the second one shows the gradients.
    """
    tell("check against NumPy", 0.0)
    start = start_of(Settings(seed=seed, initial_scale=training_steps.ENLARGED))
    batches = plans(min(batch_size, 64), len(trial.devices))
    # Numbers of devices with the same batch are compared together, because NumPy is slow.
    counts_by_batch: dict[int, list[int]] = {}
    for (_, count), batch in batches.items():
        counts_by_batch.setdefault(batch, []).append(count)
    for batch, counts in counts_by_batch.items():
        settings = Settings(1, batch, seed=seed)
        losses = [
            training_steps.first_losses(trial.backend, count, data, settings, start, 2)
            for count in counts
        ]
        training_steps.check_first_losses(trial, data, settings, start, *losses)


def fitting_steps(trial: Trial, data: Dataset, batch_size: int) -> int:
    """Choose how many steps, at most 10, a timing has for all rounds to fit the budget.

    They fit even if devices take turns.
    """
    total = len(trial.devices)
    params = training_steps.placed(trial.backend, initial_parameters(), 1)
    settings = Settings(1, batch_size, limit=1)
    seconds = []
    for _ in range(2):
        _, done = training_steps.time_steps(trial.backend, params, data, settings)
        seconds.append(done)
    seconds_of_step = min(seconds)
    # A round takes a step of all cases as often as the timing has steps, and once more as units.
    steps_of_one_device = sum(plans(1, total).values())
    rounds = trial.rounds + 1  # with the warm-up
    seconds_of_all_rounds = rounds * steps_of_one_device * seconds_of_step
    fitting = trial.left(TIMED_SHARE) / seconds_of_all_rounds - 1
    steps_in_data = len(data.train_labels) // (total * batch_size)
    return max(1, int(min(10, fitting, steps_in_data)))


SPEEDUP = Metric(
    "scaled_batch_speedup",
    means="images a second with a batch that grows with the devices, over those without: 1 is no "
    "gain",
    bands=(
        Band(LOWEST, "less", "The larger batch made devices worth less"),
        Band(1.0, "more", "The larger batch made devices worth more"),
    ),
)


def efficiency(kind: str, most: float) -> Metric:
    """Declare the speed of k devices over k times that of one, with one kind of batch."""
    return Metric(
        f"{kind.replace(' ', '_')}_scaling_efficiency",
        means="the speed of k devices over k times that of one: 1 is the most",
        about=f"with the {kind}",
        share=lambda value, result: gained_on_devices(
            value * len(result.backend["devices"]), result
        ),
        at_most=lambda _: most,
        bands=bands_of_gain(
            hindered="All devices did less than one",
            serial="Devices took turns",
            partly="Each further device counted in part",
            parallel="Each device counted nearly in full",
        ),
    )


EXPERIMENT = Experiment(
    name="batch-scaling",
    question="Do larger batches make devices pay?",
    position=4,
    exercises=(Exercise(1, "What does a batch of k times b bring on k devices?"),),
    program=program,
    case="all devices, scaled batch",
    # Shares of a batch have no limit, for they may fit better into a core's cache.
    metrics=(SPEEDUP, efficiency(FIXED, math.inf), efficiency(SCALED, 1.0)),
    counts=(replace(AT_ONCE, case="all devices, scaled batch", title=""),),
    answer=answer_by(SPEEDUP),
    changes=(
        with_queue("devices should work at the same time, and each count for more"),
        LESS_NOISE,
        MORE_CORES,
        larger("batch_size", "Larger batches", "launches and exchange weigh less beside them"),
    ),
    curves=Curves(
        over="devices",
        quantity="images_per_second",
        x_title="devices",
        y_title="images a second",
        log_x=False,
        dotted=("k times one device",),
        in_place_of_times=False,
        caption="Images a second with the batch of one device, and with as many times that as "
        "there are "
        "devices. The dotted curve is what one device does, times their number.",
    ),
    options={"full": {"rounds": 5, "steps": 8}, "quick": {"rounds": 3, "steps": 4}},
)
