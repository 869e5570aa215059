"""Figures over the accuracies of trainings with several learning rates: the best rates, what a rate
that is scaled with the batch gains, and the noise of seeds.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean

import numpy as np

from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_steps import FIXED, SCALED, case_name
from parallel_core.measurement.confidence_intervals import Interval, student_t
from parallel_core.measurement.result import Result
from parallel_core.system.formatting import percent

Plan = tuple[str, int]
"""Whether the batch is fixed or scaled, and the number of devices."""
Accuracies = Mapping[Plan, Mapping[float, Sequence[float]]]
"""The accuracies of all seeds, by plan and rate."""

CHANCE = 0.2
"""An accuracy below this is guessing among ten classes, or hardly better."""
MIN_NOISE = 0.01
MISTAKEN = 0.03
"""The probability that noise passes for a difference at least once among all comparisons.

It is well below one in twenty, for the quantiles are expansions and accuracies not quite normal.
"""


def find_figures(trial: Trial, accuracies: Accuracies, images: int) -> None:
    """Find the curves of accuracy over the rates, the best rates, and what scaled rates gain.

    `accuracies` are shares of the number of test `images`.
    """
    curves = {}
    for plan, accuracies_of_rates in accuracies.items():
        curve = {rate: fmean(of_seeds) for rate, of_seeds in accuracies_of_rates.items()}
        curves[plan] = curve
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
    gains = _gains_of_scaled_rates(one_device, scaled, total)
    if gains:
        gain = fmean(gains)
        trial.found(GAIN.name, Interval(gain, gain - noise, gain + noise))
        trial.found(f"lowest_{GAIN.name}", min(gains))
        trial.found(f"highest_{GAIN.name}", max(gains))
    _find_difference(trial, accuracies, curves, images)
    trial.points |= {case_name(*plan): curve for plan, curve in curves.items()}


def _gains_of_scaled_rates(
    one_device: Mapping[float, float], scaled: Mapping[float, float], factor: int
) -> list[float]:
    """Return the accuracy that the scaled batch gains at each rate that is scaled by the factor.

    The curves are accuracies by rate. Rates at which one device has learnt nothing are left out.
    """
    gains = []
    for rate, accuracy in one_device.items():
        if accuracy < CHANCE:
            continue
        for other_rate in scaled:
            is_scaled = math.isclose(other_rate, factor * rate, rel_tol=1e-6)
            if is_scaled:
                gains.append(scaled[other_rate] - scaled[rate])
    return gains


def _noise_between_rates(
    accuracies: Accuracies,
    images: int,
    differences: int,
) -> float:
    """Return the noise of the points at which something was learnt.

    If there are fewer than two, it is the noise of counting test images.
    """
    points: list[Sequence[float]] = []
    for (kind, count), by_rate in accuracies.items():
        # The same batch on more devices is the same training again, and no further point.
        if kind != FIXED or count == 1:
            points += by_rate.values()
    learnt = [of_seeds for of_seeds in points if min(of_seeds) >= CHANCE]
    if len(learnt) < 2:
        learnt = points[:1]
    return noise_of(learnt, images, differences)


def _find_best(trial: Trial, name: str, curve: Mapping[float, float], noise: float) -> Interval:
    """Keep and return the best rate of a curve, with the rates that are as good within the noise.

    Of equal rates the lowest one is the best.
    """
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
    """Find the largest difference between one device's accuracy and that of more devices with the
    same batch, over the noise at its rate.
    """
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
    # Accuracies of networks that guess do not differ.
    has_learnt = max(one_device.values()) >= CHANCE
    trial.found(DIFFERENCE.name, Interval(largest, largest, largest) if has_learnt else largest)


def noise_of(points: Sequence[Sequence[float]], images: int, differences: int = 1) -> float:
    """Return the smallest difference between two mean accuracies that is more than noise.

    `points` holds the accuracies of each point, seed by seed; trainings of one seed start alike.
    What a seed adds to all points alike is no noise, and what it adds to a single point is. With a
    single point or seed, the noise is that of counting test images. The bound holds for all of
    several `differences` together (Bonferroni).
    """
    accuracies = np.array(points)
    seeds = len(points[0])
    quantile = 1 - MISTAKEN / 2 / max(1, differences)
    if min(accuracies.shape) < 2:
        variance = 0.25 / images
        reach = NormalDist().inv_cdf(quantile)
    else:
        effects_of_points = accuracies.mean(axis=1, keepdims=True)
        effects_of_seeds = accuracies.mean(axis=0)
        remaining = accuracies - effects_of_points - effects_of_seeds + accuracies.mean()
        freedom = (len(points) - 1) * (seeds - 1)
        variance = float(np.sum(remaining**2)) / freedom
        reach = student_t(freedom, quantile)
    deviation_of_difference = (2 * variance / seeds) ** 0.5
    return max(MIN_NOISE, reach * deviation_of_difference)


def best_accuracy(result: Result) -> str:
    """Say how well one device learnt, without which equal accuracies show little."""
    best = result.metrics.get("best_test_accuracy_one_device", math.nan)
    return f"with accuracies up to {percent(best)}; largest difference over that noise"


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
            "No, with the same batch more devices changed nothing beyond the noise of seeds",
        ),
        Band(1.0, "differ", "Yes, with the same batch accuracies differ beyond the noise of seeds"),
    ),
    about=best_accuracy,
)
