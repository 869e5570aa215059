"""Figures that follow from the times of a run's cases: formulas, element by element, and how well
what they give is known.

An interval is over the rounds, and allows for what other programs took of the cores.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from parallel_core.measurement.confidence_intervals import Interval, exponential
from parallel_core.measurement.result import Case
from parallel_core.measurement.verdicts import MIN_NOISE, over_rounds

MOST_LOSING = 16
"""How many times of a formula lose to others or do not, independently: 65,536 combinations."""

Values: TypeAlias = Any
"""A number, or an array of resampled ones: formulas work element by element."""


class Times:
    """The medians of the cases' times, as a formula takes them: `times["run"] / times["copy"]`."""

    def __init__(self, values: Callable[[str, str], Values], cases: Mapping[str, Case]) -> None:
        self._values = values
        self._cases = cases

    def __getitem__(self, case: str) -> Values:
        """Return the seconds until all was done."""
        return self._values(case, "seconds")

    def dispatch(self, case: str) -> Values:
        """Return the seconds until control returned."""
        return self._values(case, "dispatch_seconds")

    def parts(self, case: str) -> list[Values]:
        """Return the seconds of each case whose work a case contains."""
        return [self[part] for part in self._cases[case].parts]


Formula: TypeAlias = Callable[[Times], Values]
"""What follows from times, element by element."""


def ratio(slow: str, fast: str) -> Formula:
    """Return the formula of how many times as fast one case is as another."""
    return lambda times: times[slow] / times[fast]


def median_of(formulas: Iterable[Formula]) -> Formula:
    """Return the formula of the median of what several formulas give."""
    all_formulas = tuple(formulas)
    return lambda times: np.median([formula(times) for formula in all_formulas], axis=0)


def hidden_share(together: str) -> Formula:
    """Return the formula of the hidden share of a case's two parts.

    It is the time that the two save together, as a share of the shorter one; it is not clamped.
    """

    def share(times: Times) -> Values:
        run, copy = times.parts(together)
        saved = run + copy - times[together]
        return saved / np.minimum(run, copy)

    return share


class TouchedTime(NamedTuple):
    """A time that a formula takes."""

    case: str
    which: str
    """`seconds`: until all was done; `dispatch_seconds`: until control returned."""


def interval_of(
    formula: Formula, cases: Mapping[str, Case], *, is_ratio: bool = False, noise: float = MIN_NOISE
) -> Interval | None:
    """Return what a formula gives, with its interval; None if a case that it touches is missing.

    The interval allows for what others took of the cores (see `_under_load`). That of a ratio
    (`is_ratio`) is found for its logarithm. With more `noise` than usual the cases are of several
    processes.
    """
    touched = _touched_by(formula, cases)
    if touched is None:
        return None

    def figures(*medians: np.ndarray) -> np.ndarray:
        """Return what the formula gives, element by element, for medians of the touched times."""
        by_time = dict(zip(touched, medians, strict=True))
        times = Times(lambda case, which: by_time[TouchedTime(case, which)], cases)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.asarray(formula(times))
            return np.log(values) if is_ratio else values

    rounds = [getattr(cases[time.case], time.which) for time in touched]
    interval = over_rounds(figures, *rounds, noise=noise, paired=noise <= MIN_NOISE)
    interval = _under_load(figures, touched, cases, interval)
    return exponential(interval) if is_ratio else interval


def _touched_by(formula: Formula, cases: Mapping[str, Case]) -> list[TouchedTime] | None:
    """List the times that a formula takes, each once; None if one is of a case that is missing."""
    touched: list[TouchedTime] = []

    def median_seconds(case: str, which: str) -> Values:
        time = TouchedTime(case, which)
        if time not in touched:
            touched.append(time)
        return np.asarray(median(getattr(cases[case], which)))

    try:
        formula(Times(median_seconds, cases))
    except KeyError:
        return None
    return touched


def _under_load(
    figures: Callable[..., np.ndarray],
    touched: Sequence[TouchedTime],
    cases: Mapping[str, Case],
    interval: Interval,
) -> Interval:
    """Widen a figure's interval by what others may have taken of the times that it touches.

    By itself, a case of w seconds in which others held a share s of the cores takes between w(1 −
    s) and w. It is delayed only while others hold a core that it wants, and of those they hold no
    larger a share than of all, because a scheduler gives them idle cores first; others that are
    bound to its cores break this. What s does to a case differs from case to case: one that wants
    one core of two may lose nothing. So each case has a factor of its own in [1 − s, 1], and if the
    time until control returned is touched too, so have that time and the rest.

    A figure rises or falls with each factor, so it is farthest where each is 1 − s or 1: all these
    corners are tried. The distances from the estimate are added to the bounds that rounds give:
    rounds show what differs from one to the next, the factors what is common to all.
    """
    least_shares = np.array([cases[time.case].least_share for time in touched])
    if least_shares.min() == 1 or not math.isfinite(interval.estimate):
        return interval
    factors = np.where(_corners(touched, cases), least_shares, 1.0)
    values = figures(*_shortened(touched, cases, factors).T)
    lower = float(np.nanmin(values)) - interval.estimate
    higher = float(np.nanmax(values)) - interval.estimate
    return Interval(interval.estimate, interval.low + lower, interval.high + higher)


def _corners(touched: Sequence[TouchedTime], cases: Mapping[str, Case]) -> np.ndarray:
    """Return in which ways times can have lost to others: a row for each way, a bool for each time.

    A case that contains others wants their cores as well: it loses no less than they do, which
    keeps a speed-up from falling.
    """
    losing = min(len(touched), MOST_LOSING)
    ways = np.arange(2**losing)[:, np.newaxis]
    lost = (ways >> np.arange(losing) & 1).astype(bool)
    # Of more times than that, neighbours lose together.
    lost = lost[:, np.arange(len(touched)) * losing // len(touched)]
    for whole, time in enumerate(touched):
        if time.which == "seconds":
            for part in cases[time.case].parts:
                if (part, "seconds") in touched:
                    loses_less = lost[:, touched.index((part, "seconds"))] & ~lost[:, whole]
                    lost = lost[~loses_less]
    return lost


def _shortened(
    touched: Sequence[TouchedTime], cases: Mapping[str, Case], factors: np.ndarray
) -> np.ndarray:
    """Return the medians of touched times without what they lost: a row for each row of factors."""
    medians = np.array([median(getattr(cases[time.case], time.which)) for time in touched])
    times = factors * medians
    for returned, (case, which) in enumerate(touched):
        if which == "dispatch_seconds" and (case, "seconds") in touched:
            # The time until control returned is the first part of the time until all was done.
            done = touched.index((case, "seconds"))
            rest = medians[done] - medians[returned]
            times[:, done] = times[:, returned] + factors[:, done] * rest
    return times
