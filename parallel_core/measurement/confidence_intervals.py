"""How well a median is known: bootstrap intervals over processes, and verdicts that they allow.

A process gives one value, its own median, because what is drawn anew for each process (the layout of memory, the
state of the machine) does not average out within it. The processes are drawn anew many times, and the middle 80 % of
their medians are stretched to 95 %, by Student's t because there are few processes. The outermost draws are not used
directly: a percentile interval of few values is too short (Hesterberg 2015, What Teachers Should Know about the
Bootstrap), and one disturbed process in five, which rules 6 % of the draws, would decide it alone.
benchmarks/self_test.py counts how often a cell compared with itself is called different: less than once in twenty.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from parallel_core.formatting import figure

__all__ = [
    "FEWEST_FOR_A_VERDICT",
    "SMALLEST_DIFFERENCE",
    "Interval",
    "Verdict",
    "median_interval",
    "ratio_interval",
    "verdict",
    "with_bounds",
]


Verdict = Literal["faster", "slower", "no difference shown", "too few runs"]


RESAMPLES = 4000


TAIL = 0.10
"""The share of the draws beyond each bound, before the interval is stretched to 95 %."""


# Two and two values fall apart by chance in one case of three.
FEWEST_FOR_A_VERDICT = 3


SMALLEST_DIFFERENCE = 0.01
"""A ratio closer to 1 is not called a difference: the same work, measured twice on a quiet machine, differs by tenths
of a percent for reasons that no interval over a few processes holds, such as their order in a round."""


@dataclass(frozen=True)
class Interval:
    """An estimate and the bounds between which the true value is believed to lie."""

    estimate: float
    low: float
    high: float


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median of some processes' values with its interval, which has no ends where there is one value."""
    if min(values) > 0:
        # What is always positive, like a time, has bounds that are positive.
        return _exponential(_median(np.log(values)))
    return _median(np.asarray(values, dtype=np.float64))


def ratio_interval(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Return the ratio of two cells' medians, `values` / `others`, with its interval; all values are positive."""
    mine, theirs = (np.sort(np.log(some)) for some in (values, others))
    if tuple(mine) > tuple(theirs):
        # The same draws from both sides, so that no verdict depends on which cell is named first.
        inverse = _difference(theirs, mine)
        return _exponential(Interval(-inverse.estimate, -inverse.high, -inverse.low))
    return _exponential(_difference(mine, theirs))


def verdict(ratio: Interval, processes: int) -> Verdict:
    """Say what a ratio of times allows to say, given the smaller number of processes on its two sides.

    A difference is called where the whole interval lies farther than 1 % from equality.
    """
    if processes < FEWEST_FOR_A_VERDICT:
        return "too few runs"
    if ratio.low > 1 + SMALLEST_DIFFERENCE:
        return "slower"
    if ratio.high < 1 / (1 + SMALLEST_DIFFERENCE):
        return "faster"
    return "no difference shown"


def _median(values: np.ndarray) -> Interval:
    draws = _resampled_medians(np.sort(values), np.random.default_rng(0))
    return _stretched(float(np.median(values)), draws, len(values))


def _difference(mine: np.ndarray, theirs: np.ndarray) -> Interval:
    generator = np.random.default_rng(0)
    draws = _resampled_medians(mine, generator) - _resampled_medians(theirs, generator)
    return _stretched(float(np.median(mine) - np.median(theirs)), draws, min(len(mine), len(theirs)))


def _resampled_medians(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    return np.median(generator.choice(values, size=(RESAMPLES, len(values))), axis=1)


def _exponential(found: Interval) -> Interval:
    return Interval(
        *(math.exp(bound) if bound < math.inf else bound for bound in (found.estimate, found.low, found.high))
    )


def _stretched(estimate: float, draws: np.ndarray, count: int) -> Interval:
    if count == 1:
        return Interval(estimate, -math.inf, math.inf)
    low, high = np.percentile(draws, (100 * TAIL, 100 * (1 - TAIL)))
    factor = _student_t(count - 1) / NormalDist().inv_cdf(1 - TAIL)
    return Interval(estimate, estimate + factor * (float(low) - estimate), estimate + factor * (float(high) - estimate))


def _student_t(freedom: int) -> float:
    # The quantile at 97.5 %; from 3 degrees of freedom on its expansion about the normal one is close enough
    # (Abramowitz and Stegun 26.7.5).
    if freedom < 3:
        return (12.706, 4.303)[freedom - 1]
    z = NormalDist().inv_cdf(0.975)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def with_bounds(interval: Interval) -> str:
    """Write an estimate with its bounds: `0.87 (0.85–0.90)`; a negative bound is set apart by dots.

    An interval without ends is left out.
    """
    if not math.isfinite(interval.high):
        return figure(interval.estimate)
    largest = max(abs(interval.low), abs(interval.high))
    digits = 0 if largest >= 1000 else 2 if largest >= 0.02 else 4
    # Adding zero turns a negative zero, which rounding may give, into a plain one.
    estimate, low, high = (
        f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", "−")
        for value in (interval.estimate, interval.low, interval.high)
    )
    return f"{estimate} ({low}{' … ' if '−' in low + high else '–'}{high})"
