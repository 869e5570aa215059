"""What a run finds: metrics over the times of its cases, and the bands that say what a metric
means.

Whoever says what a figure means asks `Metric.answers`: a run, a comparison, a difference, a guess,
the report. It gives each band that the interval touches, so that nothing is said that the noise
leaves open; and none if the figure may as well mean that there is no effect.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

import numpy as np

from parallel_core.measurement.confidence_intervals import (
    Interval,
    ends_between,
    exponential,
    with_bounds,
)
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.verdicts import MIN_NOISE, in_percent, over_rounds
from parallel_core.system.formatting import figure, percent, quantity

LOWEST = -math.inf
INCONCLUSIVE = "Inconclusive, "
"""Begins the sentence of a metric that answers nothing."""


@dataclass(frozen=True)
class Band:
    """Values with one meaning: from `start` up to the start of the next band."""

    start: float
    """As a share of what is possible (`Metric.share`)."""
    code: str
    """What stands for it in a result's JSON."""
    says: str
    """What it means, as a sentence without figures and without a full stop."""


WITHOUT_QUEUE = Band(
    LOWEST, "without-queue", "Nothing was queued, so a part was slower in isolation"
)
"""What a figure means that only a queue could reach, on an engine that has none."""

Values: TypeAlias = Any
"""A number, or an array of resampled ones: formulas work element by element."""


class Times:
    """The medians of the cases' times, as a metric's formula takes them: `times["run"] /
    times["copy"]`.
    """

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
    each = tuple(formulas)
    return lambda times: np.median([formula(times) for formula in each], axis=0)


def hidden_share(together: str) -> Formula:
    """Return the formula of the share of the shorter of a case's two parts that the longer one hid,
    not clamped.
    """

    def share(times: Times) -> Values:
        one, other = times.parts(together)
        return (one + other - times[together]) / np.minimum(one, other)

    return share


def interval_of(
    formula: Formula, cases: Mapping[str, Case], *, is_ratio: bool = False, noise: float = MIN_NOISE
) -> Interval | None:
    """Return what a formula gives, with its interval from the cases that it touches; None if one of
    them is missing.

    It allows for what others took of the cores (see `_under_load`). The interval of a ratio
    (`is_ratio`) is that of its logarithm. With more `noise` than usual the cases are of several
    processes.
    """
    touched: list[tuple[str, str]] = []

    def first_median(case: str, which: str) -> Values:
        if (case, which) not in touched:
            touched.append((case, which))
        return np.asarray(median(getattr(cases[case], which)))

    try:
        formula(Times(first_median, cases))
    except KeyError:
        return None

    def resampled(*medians: np.ndarray) -> np.ndarray:
        drawn = dict(zip(touched, medians, strict=True))
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.asarray(formula(Times(lambda case, which: drawn[case, which], cases)))
            return np.log(values) if is_ratio else values

    seconds = [getattr(cases[case], which) for case, which in touched]
    found = over_rounds(resampled, *seconds, noise=noise, paired=noise <= MIN_NOISE)
    found = _under_load(resampled, touched, cases, found)
    return exponential(found) if is_ratio else found


def _under_load(
    quantity: Callable[..., np.ndarray],
    touched: list[tuple[str, str]],
    cases: Mapping[str, Case],
    found: Interval,
) -> Interval:
    """Widen a quantity's interval by what others may have taken of the times that it touches.

    By itself, a case of w seconds in which others held a share s of the cores takes between w(1 −
    s) and w. It is delayed only while others hold a core that it wants, and of those they hold no
    larger a share than of all, because a scheduler gives them idle cores first; others that are
    bound to its cores break this. What s does to a case differs from case to case: one that wants
    one core of two may lose nothing. So each case has a factor of its own in [1 − s, 1], and if the
    time until control returned is touched too, so have that time and the rest. A case that contains
    others wants their cores as well: it loses no less than they do, which keeps a speed-up from
    falling.

    A quantity rises or falls with each factor, so it is farthest where each is 1 − s or 1. From no
    loss on, the factor that takes it farthest is changed, until none does. These distances from the
    estimate are added to the bounds that rounds give: rounds show what differs from one to the
    next, the factors what is common to all.
    """
    least = np.array([cases[case].least_share for case, _ in touched])
    if least.min() == 1 or not math.isfinite(found.estimate):
        return found
    medians = np.array([median(getattr(cases[case], which)) for case, which in touched])
    places = {key: place for place, key in enumerate(touched)}
    done = {case: place for (case, which), place in places.items() if which == "seconds"}
    sent = {case: place for (case, which), place in places.items() if which != "seconds"}
    nested = [(done[case], sent[case]) for case in done.keys() & sent.keys()]
    containing = [
        (place, done[part])
        for case, place in done.items()
        for part in cases[case].parts
        if part in done
    ]

    def farthest(sign: int) -> float:
        lost, best = np.zeros(len(touched), dtype=bool), sign * found.estimate
        while True:
            tried = lost ^ np.eye(len(touched), dtype=bool)
            for whole, part in containing:
                tried[:, whole] |= tried[:, part]
            factors = np.where(tried, least, 1.0)
            times = factors * medians
            for whole, first in nested:
                times[:, whole] += medians[first] * (factors[:, first] - factors[:, whole])
            values = np.nan_to_num(
                sign * quantity(*times.T), nan=-math.inf, posinf=math.inf, neginf=-math.inf
            )
            if not values.max() > best:
                return sign * best
            lost, best = tried[values.argmax()], float(values.max())

    low, high = (farthest(sign) - found.estimate for sign in (-1, 1))
    return Interval(found.estimate, found.low + low, found.high + high)


@dataclass(frozen=True)
class Metric:
    """A figure of an experiment: how it follows from the times, what is possible, and what its
    values mean.
    """

    name: str
    formula: Formula | None = None
    """None for a figure that the program gives by itself (`Trial.found`)."""
    means: str = ""
    """What the figure is, and its landmarks: `the share of the copies' time that is hidden: 0 is
    none, 1 is all`.
    """
    bands: tuple[Band, ...] = ()
    """In ascending order; none for a figure that is only reported."""
    share: Callable[[float, Result], float] = lambda value, _: value
    """The share of what is possible that a value is, which decides its band; it rises or falls with
    the value.
    """
    at_most: Callable[[Result], float] = lambda _: math.inf
    """The largest value that is possible; an interval beyond it invalidates the result."""
    limits: tuple[float, float] = (0.0, math.inf)
    """Between which values a guess is accepted."""
    about: str | Callable[[Result], str] = ""
    """What it is of, if that must be said beside other metrics or backends: `the book's way`."""
    title: str = ""
    """The question that it answers in a table of all experiments: `Copies hidden`."""
    in_percent: bool = False
    needs_queue_from: float = math.inf
    """From this share on the figure cannot be reached without a queue (see `WITHOUT_QUEUE`)."""
    ratio: bool = False
    """Whether it is a ratio of times, so that its interval is that of its logarithm."""
    said: Callable[[Result], bool] = lambda _: True
    """Whether its sentence belongs to an answer."""

    @property
    def heading(self) -> str:
        """What stands beside it in a table of all experiments: its title, or its name in words."""
        return self.title or self.name.replace("_", " ").capitalize()

    def measured(self, cases: Mapping[str, Case]) -> Interval | None:
        """Return the metric of a run's cases; None if the program gives it by itself, or lacks a
        case.
        """
        if self.formula is None:
            return None
        return interval_of(self.formula, cases, is_ratio=self.ratio)

    @property
    def no_effect(self) -> float:
        """The share that means that there is no effect, for a metric with bands.

        It is 0 for a gain, which may be a loss; and 1 for what is set beside a whole, or beside
        something else that may take as long.
        """
        return 0.0 if self.bands[1].start <= 0 else 1.0

    def answers(self, interval: Interval, result: Result) -> tuple[Band, ...]:
        """Return what an interval means: the bands that it touches, in ascending order.

        There are none if the interval is inconclusive: it touches several, and no effect lies in
        it, or these are all that there are. `result` tells what is possible: on how many devices
        and with which parameters the metric was measured.
        """
        if not self.bands:
            return ()
        low, high = sorted(self.share(bound, result) for bound in (interval.low, interval.high))
        shares = Interval(self.share(interval.estimate, result), low, high)
        ends = ends_between(shares, *(band.start for band in self.bands[1:]))
        if ends is None:
            return ()
        first, last = ends
        touches_all = first == 0 and last == len(self.bands) - 1
        if first < last and (touches_all or low <= self.no_effect <= high):
            return ()
        touched = self.bands[first : last + 1]
        if result.backend["engine"] == "sync":
            touched = tuple(
                WITHOUT_QUEUE if band.start >= self.needs_queue_from else band for band in touched
            )
        return tuple(dict.fromkeys(touched))

    def place(self, interval: Interval, result: Result) -> Band | None:
        """Return the band in which a whole interval lies; None if it touches several, or the metric
        has none.
        """
        answers = self.answers(interval, result)
        return answers[0] if len(answers) == 1 else None

    def says(self, interval: Interval, result: Result) -> str:
        """Say what an interval means, without the figure and a full stop: one answer, or the first
        and the last that it leaves.
        """
        if not self.bands:
            return _capitalised(self.means)
        answers = self.answers(interval, result)
        if not answers:
            return f"{INCONCLUSIVE}{self.name} leaves the question open"
        first, last = answers[0].says, answers[-1].says
        if len(answers) == 1:
            return first
        if len(answers) == 2:
            return f"{first}, or {_continued(last)}"
        return f"Anything from “{_continued(first)}” to “{_continued(last)}”"

    def sentence(self, interval: Interval, result: Result, counted: bool = False) -> str:
        """Say what an interval means, and the figure. After a count, that is what the clock
        adds.
        """
        says = self.says(interval, result)
        if counted:
            # The count has answered.
            says = f"By the clock, {_continued(says.removeprefix(INCONCLUSIVE))}"
        about = self.about if isinstance(self.about, str) else self.about(result)
        return f"{', '.join(filter(None, (says, about)))}: {self.write(interval, result)}."

    def write(self, interval: Interval, result: Result) -> str:
        """Write an interval in the metric's unit, with the most that is possible: `1.97 (1.95–1.99)
        of 2`.
        """
        # A count is known exactly.
        if interval.low == interval.high:
            return self.in_short(interval.estimate, result)
        if self.in_percent:
            return in_percent(interval)
        if quantity(self.name, interval.estimate) == figure(interval.estimate):
            return with_bounds(interval) + self._possible(result)
        bounds = (
            f" ({self.brief(interval.low)} … {self.brief(interval.high)})"
            if math.isfinite(interval.high)
            else ""
        )
        return self.brief(interval.estimate) + bounds

    def in_short(self, value: float, result: Result) -> str:
        """Write a value with the most that is possible: `1.97 of 2`."""
        return self.brief(value) + self._possible(result)

    def _possible(self, result: Result) -> str:
        most = self.at_most(result)
        return f" of {figure(most)}" if math.isfinite(most) and not self.in_percent else ""

    def brief(self, value: float) -> str:
        """Write a value in the metric's unit."""
        return percent(value) if self.in_percent else quantity(self.name, value)


def gained(speedup: float, most: float) -> float:
    """Return the share of the possible gain that a speed-up is: 0 is none, 1 is all; a loss is no
    share of it.
    """
    return (speedup - 1) / (most - 1) if min(speedup, most) > 1 else speedup - 1


def gained_on_devices(speedup: float, result: Result) -> float:
    """Return the share of what a result's devices can gain together that a speed-up over one of
    them is.
    """
    return gained(speedup, len(result.backend["devices"]))


def speed(name: str, slower: str, equal: str, faster: str, means: str = "") -> Metric:
    """Declare how many times as fast as another something is, by what it means if it is slower,
    about as fast, faster.

    The program gives the figure.
    """
    bands = (Band(LOWEST, "slower", slower), Band(0.9, "equal", equal), Band(1.1, "faster", faster))
    return Metric(name, means=means, bands=bands)


def answers_of(metrics: Sequence[Metric], result: Result) -> dict[str, tuple[Band, ...]]:
    """Return what each of a result's metrics means that has bands and an interval."""
    return {
        metric.name: metric.answers(interval, result)
        for metric in metrics
        if metric.bands and (interval := result.interval(metric.name)) is not None
    }


def _capitalised(words: str) -> str:
    return words[:1].upper() + words[1:]


def _continued(sentence: str) -> str:
    """Return a sentence as it stands within another one; none begins with a name."""
    return sentence[:1].lower() + sentence[1:]
