"""Quantities over the rounds of one run, with intervals.

All rounds of a run are timed in turn, so a drift of the machine is common to the times of a round:
rounds are resampled whole. Few rounds know little of how far apart rounds can be, so the middle 80
% of the resampled quantities are stretched by Student's t, to the farther side on both sides. A
quantity of one time has the interval of that time's median (see `confidence_intervals`). No
interval is shorter than the noise that a quiet machine has too, or that two processes have.
tests/benchmarks/test_self_test.py counts how often what is said of a lab is wrong: less than once
in twenty.
"""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np

from parallel_core.measurement.confidence_intervals import (
    Interval,
    between,
    exponential,
    median_interval,
    resampled_medians,
    stretched,
)
from parallel_core.measurement.result import Case
from parallel_core.system.formatting import percent

MIN_NOISE = 0.05
"""A ratio of two times is never known better than this, however quiet the machine seemed."""
BETWEEN_PROCESSES = 0.10
"""The same noise for times of different processes.

What differs between them does not show in the rounds of either.
"""
PERTURBED = 2000
"""How often the noise that is assumed at least is drawn."""


def over_rounds(
    quantity: Callable[..., np.ndarray],
    *seconds: Sequence[float],
    noise: float = MIN_NOISE,
    paired: bool = True,
    among: int = 1,
) -> Interval:
    """Return a quantity of the medians of several times, with its interval.

    `seconds` has the rounds of each time. The quantity is computed element by element from arrays
    of medians. Rounds that were not timed in turn, in one process, are not `paired`, nor are those
    that differ in number. Of an interval `among` several, all are right together as often as one by
    itself (Bonferroni). It is unbounded if a time was taken once.
    """
    medians = [float(np.median(values)) for values in seconds]
    estimate = float(quantity(*map(np.asarray, medians)))
    fewest = min(map(len, seconds))
    if fewest == 1:
        return Interval(estimate, -math.inf, math.inf)
    generator = np.random.default_rng(0)
    if len(seconds) == 1:
        # A quantity of one time rises or falls with it.
        of_time = median_interval(seconds[0])
        bounds = quantity(np.array([of_time.low, of_time.high]))
        reach = float(np.max(np.abs(bounds - estimate)))
    else:
        arrays = [np.asarray(values, dtype=np.float64) for values in seconds]
        are_equally_many = len(set(map(len, seconds))) == 1
        if paired and are_equally_many:
            medians_drawn = list(resampled_medians(np.stack(arrays), generator))
        else:
            medians_drawn = [resampled_medians(values, generator) for values in arrays]
        resampled = stretched(estimate, quantity(*medians_drawn), fewest - 1)
        reach = max(resampled.high - estimate, estimate - resampled.low)
    normal = NormalDist()
    half = reach * normal.inv_cdf(1 - 0.025 / among) / normal.inv_cdf(0.975)
    # As much on each time as makes the ratio of two uncertain by the noise.
    factor = math.log1p(noise) / normal.inv_cdf(0.975) / math.sqrt(2)
    perturbed_medians = [
        median * np.exp(factor * generator.standard_normal(PERTURBED)) for median in medians
    ]
    perturbed = quantity(*perturbed_medians)
    low, high = (float(bound) for bound in np.percentile(perturbed, (2.5, 97.5)))
    return Interval(estimate, min(low, estimate - half), max(high, estimate + half))


def times_as_long(case: Case, other: Case, among: int = 1) -> Interval:
    """Return one case's time over another's, with its interval.

    It allows for what other processes took.
    """
    log_ratio = over_rounds(lambda a, b: np.log(a / b), case.seconds, other.seconds, among=among)
    ratio = exponential(log_ratio)
    low, high = ratio.low * case.least_share, ratio.high / other.least_share
    return Interval(case.median / other.median, low, high)


def in_percent(share: Interval) -> str:
    """Write a share in percent, with its bounds if it has some.

    It has digits enough for a small one.
    """
    if not math.isfinite(share.high):
        return percent(share.estimate)
    low, high = percent(share.low).removesuffix(" %"), percent(share.high)
    return f"{percent(share.estimate)} {between(low, high)}"
