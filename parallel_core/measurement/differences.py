"""Differences of two cells, each with its interval, and the verdict that it allows.

The processes of a round are a pair: what the machine did to both of them cancels in their
difference, and only how far the pairs lie apart widens its interval.

Two or three pairs hardly tell how far they lie apart, so their variance is moderated: it is
averaged with the variance that is usual for the experiment, each weighted by its degrees of freedom
(Smyth 2004, Linear models and empirical Bayes methods for assessing differential expression in
microarray experiments). How loud this machine is, all cells of the comparison say together: the
usual deviation is multiplied by their `loudness`. One pair tells nothing.

One process in fifty is disturbed far beyond the others. Of four pairs or more the farthest one is
moved in, so that it does not hide what the rest show.

benchmarks/trust/self_test.py counts how often a cell that is compared with itself is called
different: less than once in twenty, with two processes too.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, median, variance
from types import MappingProxyType
from typing import Literal

import numpy as np

from parallel_core.measurement.confidence_intervals import (
    SMALLEST_DIFFERENCE,
    Interval,
    decide,
    exponential,
    student_t,
)

Verdict = Literal["faster", "slower", "no difference shown", "too few runs"]

USUAL_DEVIATION = 0.03
"""The standard deviation of the logarithms of a time in several processes, usually.

An experiment may have one of its own; tests/benchmarks/test_deviations.py fits them.
"""
USUAL_FREEDOM = 2.0
"""The degrees of freedom of the usual deviation: how much it weighs beside that of the pairs."""
LEAST_SHARE_OF_USUAL = 0.1
"""A deviation below this share of the usual one is chance, and counts as this share."""
FEWEST_PROCESSES = 2
"""With one process a cell no difference is told."""
FEWEST_TO_SPARE_ONE = 4
LOST_BY_SPARING: Mapping[int, float] = MappingProxyType(
    {4: 1.91, 5: 1.58, 6: 1.44, 7: 1.34, 8: 1.29, 9: 1.25}
)
"""The variance of so many normal values over what is left of it, on average, if the farthest one is
moved in; of more it is 1 + 2/n. From 20,000 draws each.
"""
VARIANCE_OF_MEDIAN = math.pi / 2
"""The variance of the median of normal values over that of their mean is at most this."""


def ratio_interval(
    values: Sequence[float], others: Sequence[float], deviation: float = USUAL_DEVIATION
) -> Interval:
    """Return the ratio `values` / `others` of two cells in the same rounds, with its interval.

    It is the median of the rounds' ratios. All values are positive. `deviation` is the usual one of
    the logarithms of a cell's values.
    """
    logarithms = np.log(values).tolist(), np.log(others).tolist()
    return exponential(difference_interval(*logarithms, (deviation, deviation)))


def difference_interval(
    values: Sequence[float], others: Sequence[float], deviations: tuple[float, float]
) -> Interval:
    """Return the difference `values` − `others` of two cells in the same rounds, with its interval.

    It is the median of the rounds' differences, and unbounded if there is one round. `deviations`
    are the usual ones of the two cells, in the values' unit.
    """
    pairs = [value - other for value, other in zip(values, others, strict=True)]
    count, estimate = len(pairs), median(pairs)
    if count < FEWEST_PROCESSES:
        return Interval(estimate, -math.inf, math.inf)
    freedom = USUAL_FREEDOM + count - 1
    usual_variance = sum(deviation**2 for deviation in deviations)
    moderated = (USUAL_FREEDOM * usual_variance + (count - 1) * _variance(pairs)) / freedom
    # The median of two values is their mean.
    of_median = moderated / count * (1.0 if count == 2 else VARIANCE_OF_MEDIAN)
    reach = student_t(freedom) * math.sqrt(of_median)
    return Interval(estimate, estimate - reach, estimate + reach)


def _variance(values: Sequence[float]) -> float:
    """Return the variance of some values, which one disturbed process of four or more hardly
    changes.
    """
    count = len(values)
    if count < FEWEST_TO_SPARE_ONE:
        return variance(values)
    # The value farthest from the median counts as if it were as far as the next one.
    middle = median(values)
    *others, farthest = sorted(values, key=lambda value: abs(value - middle))
    reach = abs(others[-1] - middle)
    spared = [*others, middle + math.copysign(reach, farthest - middle)]
    return LOST_BY_SPARING.get(count, 1 + 2 / count) * variance(spared)


def loudness(cells: Iterable[tuple[Sequence[float], float]]) -> float:
    """Return by what factor the processes of a comparison lie farther apart than is usual.

    Each cell, or pair of cells, has its times, or ratios of times, and the usual deviation of their
    logarithms. Few processes tell the factor badly: it is larger then. Without any it is 1.
    """
    logarithms: list[float] = []
    freedoms = 0
    for values, deviation in cells:
        freedom = len(values) - 1
        if freedom < 1:
            continue
        of_cell = _variance(np.log(values).tolist())
        share = max(math.sqrt(of_cell) / deviation, LEAST_SHARE_OF_USUAL)
        # The mean of a logarithm of a variance lies below the logarithm of its mean.
        logarithms.append(
            2 * math.log(share) + logarithm_bias(freedom) - logarithm_bias(USUAL_FREEDOM)
        )
        freedoms += freedom
    if not logarithms:
        return 1.0
    return math.exp(mean(logarithms) / 2) * (1 + 2 / freedoms)


def logarithm_bias(freedom: float) -> float:
    """Return by how much the mean logarithm of a variance with so many degrees of freedom is too
    low.
    """
    return math.log(freedom / 2) - _digamma(freedom / 2)


def _digamma(x: float) -> float:
    """Return the derivative of the logarithm of the gamma function, within 1e-9."""
    below = 0.0
    while x < 8:
        below -= 1 / x
        x += 1
    return below + math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def verdict_on(ratio: Interval, processes: int) -> Verdict:
    """Return the verdict on a ratio of times, given the smaller number of processes on its two
    sides.

    A difference is called only if the whole interval lies farther than 1 % from equality.
    """
    if processes < FEWEST_PROCESSES:
        return "too few runs"
    place = decide(ratio, 1 / (1 + SMALLEST_DIFFERENCE), 1 + SMALLEST_DIFFERENCE)
    if place == 0:
        return "faster"
    if place == 2:
        return "slower"
    return "no difference shown"
