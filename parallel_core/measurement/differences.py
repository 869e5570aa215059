"""Differences of two cells, each with its interval, and the verdict that it allows.

The processes of a round are a pair: what the machine did to both of them cancels in their
difference, and only how far the pairs lie apart widens its interval.

Two or three pairs hardly tell how far they lie apart, so their variance is moderated: it is
averaged with the variance that is usual for the experiment, each weighted by its degrees of freedom
(Smyth 2004, Linear models and empirical Bayes methods for assessing differential expression in
microarray experiments). How loud this machine is, all cells of the comparison say together: the
usual deviation is multiplied by their `loudness`. An experiment whose own cells lie clearly farther
apart than that is judged by them instead (`noise_of_experiment`). One pair tells nothing.

One process in fifty is disturbed far beyond the others. Of four pairs or more the farthest one is
moved in, so that it does not hide what the rest show.

Where two sides were not measured in turn, as two comparisons or recordings of a program, there are
no pairs: `unpaired_interval` compares their means, each with its variance (Welch 1947). The usual
deviation only steadies a side that is as quiet as usual; a louder one is judged by itself, so that
the interval holds on a busy machine too.

benchmarks/trust/self_test.py counts how often a cell that is compared with itself is called
different: less than once in twenty, with two processes too.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, median, variance
from types import MappingProxyType
from typing import Literal, NamedTuple

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
FREEDOM_IN_EXPERIMENT = 3.0
"""The degrees of freedom of the deviation that is usual in one experiment: its cells are more alike
than those of several (2.0 to 4.6 in four published experiments).
"""
CLEARLY_NOISIER = 1.5
"""An experiment is judged by its own deviation if that is so many times the expected one."""
COUNTS_OF_OTHERS = 0.75
"""How much a degree of freedom of the experiment's other cells counts beside those of a pair: the
pair is part of the experiment's deviation too.
"""
LEAST_SHARE_OF_USUAL = 0.1
"""A deviation below this share of the usual one is chance, and counts as this share."""
KNOWN = 1e6
"""The degrees of freedom of a variance that is not estimated."""
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


class Noise(NamedTuple):
    """How far apart the logarithms of a cell's times are expected to lie in several processes."""

    deviation: float = USUAL_DEVIATION
    """Their standard deviation."""
    freedom: float = USUAL_FREEDOM
    """The degrees of freedom of the deviation: how much it weighs beside that of the pairs."""


USUAL_NOISE = Noise()


class Sample(NamedTuple):
    """What the processes of one side measured."""

    values: Sequence[float]
    deviation: float
    """The standard deviation of such values, usually; of a single value it is all that is known."""
    lost: float = 0.0
    """By how much other work may have made all of them larger."""

    @property
    def logarithms(self) -> "Sample":
        """The logarithms of the values, which are positive, with their deviation and loss."""
        center = median(self.values)
        logarithms = tuple(map(math.log, self.values))
        return Sample(logarithms, self.deviation / center, -math.log1p(-self.lost / center))


def ratio_interval(
    values: Sequence[float], others: Sequence[float], noise: Noise = USUAL_NOISE
) -> Interval:
    """Return the ratio `values` / `others` of two cells in the same rounds, with its interval.

    It is the median of the rounds' ratios. All values are positive.
    """
    sample, other = (Sample(np.log(side).tolist(), noise.deviation) for side in (values, others))
    return exponential(difference_interval(sample, other, noise.freedom))


def difference_interval(
    sample: Sample, other: Sample, freedom_of_usual: float = USUAL_FREEDOM
) -> Interval:
    """Return by how much a cell's values are larger than another's in the same rounds, with its
    interval.

    It is the median of the rounds' differences, and unbounded if there is one round.
    """
    rounds = zip(sample.values, other.values, strict=True)
    pairs = [value - other_value for value, other_value in rounds]
    count, estimate = len(pairs), median(pairs)
    if count < FEWEST_PROCESSES:
        return Interval(estimate, -math.inf, math.inf)
    freedom = freedom_of_usual + count - 1
    usual_variance = sample.deviation**2 + other.deviation**2
    moderated = (freedom_of_usual * usual_variance + (count - 1) * _variance(pairs)) / freedom
    # The median of two values is their mean.
    of_median = moderated / count * (1.0 if count == 2 else VARIANCE_OF_MEDIAN)
    reach = student_t(freedom) * math.sqrt(of_median)
    return Interval(estimate, estimate - reach - sample.lost, estimate + reach + other.lost)


def unpaired_interval(sample: Sample, other: Sample, among: int = 1) -> Interval:
    """Return by how much the mean of a sample is larger than that of another, with its interval.

    Of an interval `among` several, all are right together as often as one by itself (Bonferroni).
    """
    difference = mean(sample.values) - mean(other.values)
    variances_of_means = [_variance_of_mean(side) for side in (sample, other)]
    whole = sum(of_mean.variance for of_mean in variances_of_means)
    reach = 0.0
    if whole:
        # The degrees of freedom of a sum of variances, by Welch and Satterthwaite.
        parts = (of_mean.variance**2 / of_mean.freedom for of_mean in variances_of_means)
        freedom = whole**2 / sum(parts)
        reach = student_t(freedom, 1 - 0.025 / among) * math.sqrt(whole)
    low, high = difference - reach - sample.lost, difference + reach + other.lost
    return Interval(difference, low, high)


class _VarianceOfMean(NamedTuple):
    """How far the mean of a sample may lie from the true one."""

    variance: float
    freedom: float


def _variance_of_mean(sample: Sample) -> _VarianceOfMean:
    """Return the variance of a sample's mean.

    It is moderated, unless the values lie farther apart than usual: then it is theirs alone.
    """
    count = len(sample.values)
    usual_variance = sample.deviation**2
    if count < FEWEST_PROCESSES:
        return _VarianceOfMean(usual_variance, KNOWN)
    of_values = variance(sample.values)
    if of_values > usual_variance:
        return _VarianceOfMean(of_values / count, count - 1)
    freedom = USUAL_FREEDOM + count - 1
    moderated = (USUAL_FREEDOM * usual_variance + (count - 1) * of_values) / freedom
    return _VarianceOfMean(moderated / count, freedom)


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


def noise_of_experiment(
    pairs: Iterable[Sequence[float]], cells: int, expected_deviation: float
) -> Noise:
    """Return the noise of an experiment from the ratios of times of all pairs of its cells.

    It is the expected one, unless the pairs lie clearly farther apart. Then it is theirs, and for a
    pair it has the degrees of freedom of the other cells: of two cells there are none.
    """
    variances: list[float] = []
    fewest_rounds = 0
    for ratios in pairs:
        if len(ratios) >= FEWEST_PROCESSES:
            variances.append(_variance(np.log(ratios).tolist()))
            fewest_rounds = min(fewest_rounds or len(ratios), len(ratios))
    # The ratio of two cells varies twice as much as a cell.
    own_deviation = math.sqrt(mean(variances) / 2) if variances else 0.0
    if own_deviation <= CLEARLY_NOISIER * expected_deviation:
        return Noise(expected_deviation, FREEDOM_IN_EXPERIMENT)
    freedom_of_others = COUNTS_OF_OTHERS * (cells - 2) * (fewest_rounds - 1)
    return Noise(own_deviation, min(FREEDOM_IN_EXPERIMENT, freedom_of_others))


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
