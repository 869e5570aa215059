"""Intervals of medians over processes, and what may be concluded from an interval.

A process gives one value, its own median, because what differs between processes (the layout of
memory, the state of the machine) does not average out within one.

The interval of one cell's median lies between order statistics, whose chance to enclose it is known
for every distribution (Hettmansperger and Sheather 1986, Confidence intervals based on interpolated
order statistics). Up to five processes even the lowest and the highest value enclose it too seldom,
so their range is stretched.

benchmarks/trust/self_test.py counts how often a cell's interval misses the true median: less than
once in twenty. How far two cells are apart, `differences` says.
"""

import math
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from statistics import NormalDist
from types import MappingProxyType

import numpy as np

from parallel_core.system.formatting import figure, seconds

RESAMPLES = 4000
DRAWN_AT_ONCE = 250_000
COVERAGE = 0.95
"""How often an interval is to hold the true value."""
STRETCHED_RANGE: Mapping[int, float] = MappingProxyType({2: 12.71, 3: 2.68, 4: 1.48, 5: 1.12})
"""The reach of a median's interval to each side, in halves of the range, by the number of values.

With these it holds the median of a normal distribution in 95 % of 1,000,000 draws, and that of a
heavier-tailed one more often. For two values it is Student's t.
"""
LARGEST_EXPONENT = 700.0
"""The largest exponent; the exponential of more is infinite."""
TAIL = 0.10
"""The share of the resamples beyond each bound, before the interval is stretched to 95 %."""
MOST_RESAMPLED = 200
"""A trace may have thousands of steps."""

FEWEST_FOR_A_VERDICT = 3
"""The rounds, or processes of one cell, from which on something is concluded."""

SMALLEST_DIFFERENCE = 0.01
"""A ratio closer to 1 is not called a difference: the same work, measured twice on a quiet machine,
differs by tenths of a percent for reasons that no interval over a few processes covers, such as
their order in a round.
"""


@dataclass(frozen=True)
class Interval:
    """An estimate and the bounds between which the true value is believed to lie."""

    estimate: float
    low: float
    high: float


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median of the processes' values with its interval.

    It is unbounded if there is one value.
    """
    if min(values) > 0:
        # A quantity that is always positive, like a time, gets positive bounds.
        return exponential(_interval_of_median(np.log(values)))
    return _interval_of_median(np.asarray(values, dtype=np.float64))


def _interval_of_median(values: np.ndarray) -> Interval:
    """Return the median of values of any sign with its interval.

    It is unbounded if there is one value.
    """
    ordered = np.sort(values)
    count, estimate = len(ordered), float(np.median(ordered))
    if count == 1:
        return Interval(estimate, -math.inf, math.inf)
    if count in STRETCHED_RANGE:
        reach = STRETCHED_RANGE[count] * float(ordered[-1] - ordered[0]) / 2
        return Interval(estimate, estimate - reach, estimate + reach)

    # The innermost pair of values that encloses the median often enough, and the next pair, which
    # does not.
    enclosed = _enclosed(count)
    rank, outer, inner = 1, next(enclosed), next(enclosed)
    while inner >= COVERAGE:
        rank, outer, inner = rank + 1, inner, next(enclosed)
    surplus = (outer - COVERAGE) / (outer - inner)
    # How far to go from the outer pair to the inner one: Hettmansperger and Sheather's
    # interpolation.
    weight = (count - rank) * surplus / (rank + (count - 2 * rank) * surplus)
    low = (1 - weight) * ordered[rank - 1] + weight * ordered[rank]
    high = (1 - weight) * ordered[count - rank] + weight * ordered[count - rank - 1]
    return Interval(estimate, float(low), float(high))


def _enclosed(count: int) -> Iterator[float]:
    """Give how likely the median lies between the first and the last of `count` values, between
    the second and the last but one, and so on.

    It lies outside the values of a rank if fewer than that many fall on one side of it, each of
    which does with probability 1/2.
    """
    ways_outside = 0
    ways = 1
    for below in range(count):
        ways_outside += ways
        yield 1 - 2 * ways_outside / 2**count
        # From the number of ways to choose `below` of the values to that for one more.
        ways = ways * (count - below) // (below + 1)


def decide(interval: Interval, *bounds: float) -> int | None:
    """Return between which of ascending bounds a whole interval lies: 0 is below the first.

    It is None if the interval contains one. Everything that is concluded from measured values is
    concluded by this. Of what is not a number nothing is.
    """
    ends = ends_between(interval, *bounds)
    if ends is None:
        return None
    lowest, highest = ends
    return lowest if lowest == highest else None


def ends_between(interval: Interval, *bounds: float) -> tuple[int, int] | None:
    """Return between which of ascending bounds an interval begins and ends: 0 is below the first.

    It is None if the interval has no ends.
    """
    if math.isnan(interval.low + interval.high):
        return None
    return bisect(bounds, interval.low), bisect(bounds, interval.high)


def resampled_medians(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return resampled medians of the last axis; a process's quantities are drawn together.

    Of many values `MOST_RESAMPLED` stand for all, evenly over them: the interval is no narrower.
    """
    count = values.shape[-1]
    if count > MOST_RESAMPLED:
        values = values[..., np.linspace(0, count - 1, MOST_RESAMPLED).astype(int)]
        count = MOST_RESAMPLED
    draws = generator.integers(count, size=(RESAMPLES, count))
    # Some at a time: the values of all draws would take 32 MB for each quantity.
    parts = np.array_split(draws, 1 + draws.size // DRAWN_AT_ONCE)
    medians = [np.median(values[..., part], axis=-1) for part in parts]
    return np.concatenate(medians, axis=-1)


def exponential(interval: Interval) -> Interval:
    """Return the interval of a quantity, given that of its logarithm."""
    return Interval(*map(_exponential, astuple(interval)))


def _exponential(exponent: float) -> float:
    return math.inf if exponent >= LARGEST_EXPONENT else math.exp(exponent)


def stretched(estimate: float, draws: np.ndarray, freedom: float) -> Interval:
    """Return the interval of an estimate from resamples with these degrees of freedom.

    It is unbounded if there are none.
    """
    if not freedom:
        return Interval(estimate, -math.inf, math.inf)
    low, high = np.percentile(draws, (100 * TAIL, 100 * (1 - TAIL)))
    factor = student_t(freedom) / NormalDist().inv_cdf(1 - TAIL)
    stretched_low = estimate + factor * (float(low) - estimate)
    stretched_high = estimate + factor * (float(high) - estimate)
    return Interval(estimate, stretched_low, stretched_high)


def student_t(freedom: float, quantile: float = 0.975) -> float:
    """Return a quantile of Student's t, above one half.

    It is exact for 1 and 2 degrees of freedom, else within 0.5 %.
    """
    below = math.floor(freedom)
    if below < freedom < 3:
        # Logarithms of the neighbours, in proportion to the reciprocals of the degrees of freedom.
        weight = below * (below + 1 - freedom) / freedom
        return float(
            student_t(below, quantile) ** weight * student_t(below + 1, quantile) ** (1 - weight)
        )
    if freedom == 1:
        return math.tan(math.pi * (quantile - 0.5))
    if freedom == 2:
        return (2 * quantile - 1) * math.sqrt(2 / (4 * quantile * (1 - quantile)))
    # Abramowitz and Stegun 26.7.5.
    z = NormalDist().inv_cdf(quantile)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def with_bounds(interval: Interval) -> str:
    """Write an estimate with its bounds: `0.87 (0.85–0.90)`; dots separate them if one is negative.

    Without the bounds if the interval is unbounded.
    """
    if not math.isfinite(interval.high):
        return figure(interval.estimate)
    largest = max(abs(interval.low), abs(interval.high))
    is_count = all(float(value).is_integer() for value in astuple(interval))
    if is_count or largest >= 1000:
        digits = 0
    elif largest >= 0.02:
        digits = 2
    else:
        digits = 4
    estimate, low, high = (_rounded(value, digits) for value in astuple(interval))
    return f"{estimate} {between(low, high)}"


def _rounded(value: float, digits: int) -> str:
    # Adding zero turns the negative zero that rounding may give into a plain one.
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", "−")


def between(low: str, high: str) -> str:
    """Write bounds: `(0.85–0.90)`; dots separate them if one is negative."""
    dash = " … " if "−" in low + high else "–"
    return f"({low}{dash}{high})"


def with_seconds(interval: Interval) -> str:
    """Write a time with its bounds, in the estimate's unit: `20.1 ms (19.8–20.9)`.

    Without the bounds if it is unbounded.
    """
    if not math.isfinite(interval.high - interval.low):
        return seconds(interval.estimate)
    estimate, low, high = map(seconds, astuple(interval))
    unit = " " + estimate.rpartition(" ")[2]
    if low.endswith(unit) and high.endswith(unit):
        low, high = low.removesuffix(unit), high.removesuffix(unit)
        return f"{estimate} {between(low, high)}"
    return f"{estimate} ({low} – {high})"
