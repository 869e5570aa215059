"""Batch scaling: is a device worth more when the batch grows with the number of devices?

Book: Dive into Deep Learning, "Training on Multiple GPUs", exercise 1.

Prediction: A step on k devices costs the work on b/k images each, and something that does not depend on the images:
launching the operators on every device, exchanging the gradients, updating. With a batch of k·b every device has b
images to itself, so the fixed part weighs k times less, and images a second should come nearer to k times one device's.

Method: LeNet takes the same few steps on 1, 2, 4, … of the loaded devices up to all of them, with the batch of b that
one device has and with k·b; all of them are timed in turn. The threads of a device stay the same. The first losses of
each are checked against NumPy on one device.

Look at: `scaled_batch_speedup`, the images a second with a batch of k·b over those with b, on all devices; the curves
of images a second over the number of devices; `scaling_efficiency_…`, the speed of k devices over k times that of one.

Read: An efficiency of 1 means that every device counts in full. Where devices share cores (`--devices 4` on 2 cores)
it cannot be reached; on a synchronous engine the devices take turns, and it is 1/k. It may exceed 1 with the fixed
batch, for a smaller share of a batch fits better into a core's cache. Speed is half of the answer: larger batches take
fewer steps for the same images, and what that does to accuracy is what `learning-rates` asks.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from backends import Array, Backend
from parallel_core.dataset import Dataset
from parallel_core.errors import RequestError
from parallel_core.experiments.device_counts import device_counts, in_words
from parallel_core.experiments.first_losses import first_losses, numpy_losses, without_test
from parallel_core.lenet import initial_parameters
from parallel_core.machine import describe_machine
from parallel_core.measurement import Timing, differ, interleave, relative_error
from parallel_core.result import Case, Result, describe_backend
from parallel_core.training import Settings, get_params, train

__all__ = ["explain", "run"]

CHECKED_STEPS = 2
"""The first loss is of the start alone; the second one shows the gradients, and NumPy is slow."""
FIXED, SCALED = "fixed batch", "scaled batch"
Timed = Mapping[str, Mapping[int, Case]]
"""The times of an image, by the kind of batch and the number of devices."""


def run(
    backend: Backend, data: Dataset, batch_size: int = 256, steps: int = 10, seed: int = 0, rounds: int = 5
) -> Result:
    """Time the same steps on 1, 2, 4, … devices, with batches of `batch_size` and of as many times that.

    Raises RequestError for a backend with a single device, and where the data do not suffice for the steps.
    """
    total = len(backend.devices)
    if total < 2:
        raise RequestError("the experiment 'batch-scaling' compares devices: it needs at least 2 (--devices 2)")
    if steps * total * batch_size > len(data.train_labels):
        raise RequestError(
            f"{steps} steps of {total} × {batch_size} images are more than the {len(data.train_labels)} there are: "
            "choose fewer --steps or a smaller --batch-size"
        )
    counts = device_counts(total)
    plans = {
        (kind, count): Settings(1, batch_size * (count if kind == SCALED else 1), limit=steps, seed=seed)
        for count in counts
        for kind in ((FIXED, SCALED) if count > 1 else (FIXED,))
    }
    error = largest_error(backend, data, plans)
    cases = dict(
        zip(
            plans,
            interleave(
                {
                    case_name(kind, count, total): take_steps(backend, count, data, settings)
                    for (kind, count), settings in plans.items()
                },
                rounds,
            ),
            strict=True,
        )
    )
    per_image = {key: divided(case, steps * plans[key].batch_size) for key, case in cases.items()}
    timed = {
        kind: {count: per_image[kind if count > 1 else FIXED, count] for count in counts} for kind in (FIXED, SCALED)
    }
    series = series_of(timed, batch_size)
    return Result(
        experiment="batch-scaling",
        backend=describe_backend(backend),
        parameters={"batch_size": batch_size, "steps": steps, "seed": seed, "rounds": rounds},
        cases=tuple(cases.values()),
        metrics={
            "scaled_batch_speedup": timed[FIXED][total].median / timed[SCALED][total].median,
            **{
                f"{quantity}_{kind.replace(' ', '_')}": series[f"{quantity} {kind}"][-1]
                for quantity in ("images_per_second", "scaling_efficiency", "step_seconds")
                for kind in timed
            },
        },
        checks={"max_relative_error": error},
        explanation=explain(timed, batch_size),
        notes=(about_efficiency(timed, most_efficient(backend)),),
        problems=() if error < 1e-4 else (f"the first losses differ from NumPy's by {error:.1e} of their size",),
        data=data.source,
        series=series,
    )


def case_name(kind: str, count: int, total: int) -> str:
    """Name what is timed; all devices have the same name however many they are."""
    if count == 1:
        return "1 device"
    return f"{'all devices' if count == total else in_words(count)}, {kind}"


def take_steps(backend: Backend, count: int, data: Dataset, settings: Settings) -> partial[Timing]:
    """Make the function that trains on the first devices, from where it left off, and returns its timing."""
    params = [get_params(backend, device, settings.seed) for device in backend.devices[:count]]
    return partial(time_steps, backend, params, without_test(data), settings)


def time_steps(backend: Backend, params: list[Array], data: Dataset, settings: Settings) -> Timing:
    """Train for an epoch of a few steps and return its timing; `params` are kept up to date."""
    epoch = next(train(backend, params, data, settings))
    return epoch.dispatch_seconds, epoch.seconds


def largest_error(backend: Backend, data: Dataset, plans: Mapping[tuple[str, int], Settings]) -> float:
    """Return the largest relative difference of the first losses from NumPy's, over all that is going to be timed."""
    start = initial_parameters(next(iter(plans.values())).seed)
    expected = {plan: numpy_losses(data, plan, start, CHECKED_STEPS) for plan in set(plans.values())}
    return max(
        relative_error(
            np.array(first_losses(backend, count, data, plan, start, CHECKED_STEPS)), np.array(expected[plan])
        )
        for (_, count), plan in plans.items()
    )


def divided(case: Case, parts: int) -> Case:
    """Return the case of one of so many equal parts: batches of unlike sizes are compared by an image of each."""
    return replace(
        case,
        seconds=tuple(seconds / parts for seconds in case.seconds),
        dispatch_seconds=tuple(seconds / parts for seconds in case.dispatch_seconds),
    )


def series_of(timed: Timed, batch_size: int) -> dict[str, tuple[float, ...]]:
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


def most_efficient(backend: Backend) -> float:
    """Return the efficiency that all devices together cannot exceed: below 1 where CPU devices share cores."""
    if backend.devices[0].kind == "gpu":
        return 1.0
    return min(1.0, describe_machine()["cores"] / (len(backend.devices) * backend.threads_per_device))


def explain(timed: Timed, batch_size: int) -> str:
    """Say whether all devices were worth more with the larger batch, and by how much."""
    count = max(timed[FIXED])
    fixed, scaled = timed[FIXED][count], timed[SCALED][count]
    ratio = fixed.median / scaled.median
    compared = (
        f"On {in_words(count)} batches of {count * batch_size} instead of {batch_size} images trained "
        f"{ratio:.2f} × as fast ({1 / scaled.median:,.0f} images/s instead of {1 / fixed.median:,.0f})"
    )
    if not differ(fixed, scaled):
        return f"{compared}: no difference beyond the noise, so what a step costs besides its images weighs little."
    if ratio > 1:
        share = 1 - 1 / ratio
        return f"{compared}: the larger batch made devices worth more; {share:.0%} of an image's time was saved."
    return f"{compared}: the larger batch made devices worth less, against the prediction."


def about_efficiency(timed: Timed, most: float) -> str:
    """Say how much of k devices' worth was reached with either batch; `most` is what shared cores leave of it."""
    count = max(timed[FIXED])
    one = timed[FIXED][1]
    told = [about_kind(kind, one, cases[count], count) for kind, cases in timed.items()]
    sentence = f"The efficiency of {in_words(count)} was {' and '.join(told)}"
    if most < 1:
        sentence += f"; they share cores, which leaves {most:.2f} at most if one device keeps its core busy"
    return f"{sentence}."


def about_kind(kind: str, one: Case, case: Case, count: int) -> str:
    """Write one kind's efficiency, and say where it is that of turns or of full value, within the noise."""
    efficiency = one.median / case.median / count
    as_one, in_full = not differ(one, case), not differ(divided(one, count), case)
    if as_one and in_full:
        meaning = "the noise leaves open whether they count"
    elif as_one:
        meaning = "no faster than one device"
    elif in_full:
        meaning = "each counted in full"
    elif efficiency > 1:
        meaning = "a device is faster with fewer images at once"
    else:
        meaning = f"{count * efficiency:.2f} devices' worth"
    return f"{efficiency:.2f} with the {kind} ({meaning})"
