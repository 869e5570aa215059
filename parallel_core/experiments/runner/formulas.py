"""Formulas over the times of a run's cases, and the intervals of the figures that they give.

A figure's interval contains the noise between rounds, and the share of the cores that other
programs may have taken.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from parallel_core.measurement.confidence_intervals import Interval, exponential
from parallel_core.measurement.over_rounds import MIN_NOISE, over_rounds
from parallel_core.measurement.result import Case

MOST_FACTORS = 16
"""The most factors of a formula's times that are tried independently: 65,536 combinations."""

Values = Any
"""A number, or an array of resampled numbers: formulas work element by element."""


class Times:
    """The medians of the cases' times, as a formula takes them: `times["run"] / times["copy"]`."""

    def __init__(self, values: Callable[[str, str], Values], cases: Mapping[str, Case]) -> None:
        """Take the medians from `values(case, which)`: see `UsedTime`."""
        self._values = values
        self._cases = cases

    def __getitem__(self, case: str) -> Values:
        """Return the seconds until all was done."""
        return self._values(case, "seconds")

    def dispatch(self, case: str) -> Values:
        """Return the seconds until control returned."""
        return self._values(case, "dispatch_seconds")

    def parts(self, case: str) -> list[Values]:
        """Return the seconds of each of a case's parts, which are cases too."""
        return [self[part] for part in self._cases[case].parts]


Formula = Callable[[Times], Values]
"""A function from times to a figure, element by element."""


def ratio(slow: str, fast: str) -> Formula:
    """Return the formula of one case's time over another's: how many times as fast that one is."""
    return lambda times: times[slow] / times[fast]


def median_of(formulas: Iterable[Formula]) -> Formula:
    """Return the formula of the median of several formulas' values."""
    all_formulas = tuple(formulas)
    return lambda times: np.median([formula(times) for formula in all_formulas], axis=0)


def hidden_share(together: str) -> Formula:
    """Return the formula of the hidden share of a case's two parts.

    It is the time that doing both together saves, as a share of the shorter part. It is below 0 if
    that takes longer than one part after the other.
    """

    def share(times: Times) -> Values:
        run, copy = times.parts(together)
        saved = run + copy - times[together]
        return saved / np.minimum(run, copy)

    return share


class UsedTime(NamedTuple):
    """A time that a formula uses."""

    case: str
    which: str
    """`seconds`: until all was done; `dispatch_seconds`: until control returned."""


def interval_of(
    formula: Formula, cases: Mapping[str, Case], *, is_ratio: bool = False, noise: float = MIN_NOISE
) -> Interval | None:
    """Return a formula's figure with its interval; None if a case that it uses is missing.

    The interval allows for the share of the cores that other programs took (see `_under_load`). For
    a ratio (`is_ratio`) it is found for the logarithm. More `noise` than `MIN_NOISE` means that the
    cases are of several processes, whose rounds are not paired.
    """
    used = _times_used_by(formula, cases)
    if used is None:
        return None

    def figures(*medians: np.ndarray) -> np.ndarray:
        """Return the formula's values, element by element, for medians of the used times."""
        by_time = dict(zip(used, medians, strict=True))
        times = Times(lambda case, which: by_time[UsedTime(case, which)], cases)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.asarray(formula(times))
            return np.log(values) if is_ratio else values

    rounds = [getattr(cases[time.case], time.which) for time in used]
    is_one_process = noise <= MIN_NOISE
    interval = over_rounds(figures, *rounds, noise=noise, paired=is_one_process)
    interval = _under_load(figures, used, cases, interval)
    return exponential(interval) if is_ratio else interval


def _times_used_by(formula: Formula, cases: Mapping[str, Case]) -> list[UsedTime] | None:
    """Return the times that a formula uses, each once; None if a case of one is missing."""
    used: list[UsedTime] = []

    def median_seconds(case: str, which: str) -> Values:
        """Return the median of a time, and note that the formula uses it."""
        time = UsedTime(case, which)
        if time not in used:
            used.append(time)
        return np.asarray(median(getattr(cases[case], which)))

    try:
        formula(Times(median_seconds, cases))
    except KeyError:
        return None
    return used


def _under_load(
    figures: Callable[..., np.ndarray],
    used: Sequence[UsedTime],
    cases: Mapping[str, Case],
    interval: Interval,
) -> Interval:
    """Widen a figure's interval by the time that other programs may have taken from its cases.

    On a quiet machine, a case of w seconds in which other programs held a share s of the cores
    takes between w(1 − s) and w. It is delayed only while they hold a core that it wants. They hold
    no larger a share of those cores than of all, because a scheduler gives them idle cores first;
    programs that are bound to the case's cores break this. The delay differs from case to case: one
    that wants one core of two may lose nothing. So each time has an independent factor in
    [1 − s, 1].

    A figure rises or falls with each factor, so it is farthest where each is 1 − s or 1: all these
    corners are tried. Their distances from the estimate are added to the bounds that the rounds
    give: rounds show what differs between them, factors what is common to all.
    """
    least_shares = np.array([cases[time.case].least_share for time in used])
    if least_shares.min() == 1 or not math.isfinite(interval.estimate):
        return interval
    lost_time = _combinations_of_losses(used, cases)
    factors = np.where(lost_time, least_shares, 1.0)
    values = figures(*_without_losses(used, cases, factors).T)
    lower = float(np.nanmin(values)) - interval.estimate
    higher = float(np.nanmax(values)) - interval.estimate
    return Interval(interval.estimate, interval.low + lower, interval.high + higher)


def _combinations_of_losses(used: Sequence[UsedTime], cases: Mapping[str, Case]) -> np.ndarray:
    """Return which times may have lost to other programs: a row a combination, a bool a time.

    A case with parts wants the cores of all its parts, so it loses if one of them does. That keeps
    a speed-up from falling.
    """
    factors = min(len(used), MOST_FACTORS)
    numbers = np.arange(2**factors)[:, np.newaxis]
    # The bits of a number are a combination.
    combinations = (numbers >> np.arange(factors) & 1).astype(bool)
    # If there are more times than factors, neighbours share a factor.
    factor_of_time = np.arange(len(used)) * factors // len(used)
    lost = combinations[:, factor_of_time]
    for whole, time in enumerate(used):
        if time.which != "seconds":
            continue
        for part in cases[time.case].parts:
            if (part, "seconds") in used:
                part_lost = lost[:, used.index(UsedTime(part, "seconds"))]
                whole_lost = lost[:, whole]
                lost = lost[whole_lost | ~part_lost]
    return lost


def _without_losses(
    used: Sequence[UsedTime], cases: Mapping[str, Case], factors: np.ndarray
) -> np.ndarray:
    """Return the medians of the used times, shortened by factors: a row for each row of factors.

    The time until control returned is the first part of the time until all was done. If a formula
    uses both times, the factor of the second one applies only to the part after the return.
    """
    medians = np.array([median(getattr(cases[time.case], time.which)) for time in used])
    times = factors * medians
    for return_column, (case, which) in enumerate(used):
        if which == "dispatch_seconds" and (case, "seconds") in used:
            done_column = used.index(UsedTime(case, "seconds"))
            after_return = medians[done_column] - medians[return_column]
            shortened = factors[:, done_column] * after_return
            times[:, done_column] = times[:, return_column] + shortened
    return times
