"""Metrics over the times of a run's cases, and the bands that say what a metric means.

Whoever says what a figure means asks `Metric.answers`: a run, a comparison, a difference, a guess,
the report. It gives each band that the interval touches, so that nothing is said that the noise
leaves open; and none if the figure may as well mean that there is no effect.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from parallel_core.experiments.runner.formulas import Formula, interval_of
from parallel_core.measurement.confidence_intervals import (
    Interval,
    ends_between,
    with_bounds,
)
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.verdicts import in_percent
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
        """Its heading in a table of all experiments: its title, or its name in words."""
        return self.title or self.name.replace("_", " ").capitalize()

    def measured(self, cases: Mapping[str, Case]) -> Interval | None:
        """Return the metric of a run's cases.

        None if the program gives it by itself, or lacks a case.
        """
        if self.formula is None:
            return None
        return interval_of(self.formula, cases, is_ratio=self.ratio)

    @property
    def no_effect(self) -> float:
        """The share of what is possible that means no effect, for a metric with bands.

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
        bounds = (self.share(interval.low, result), self.share(interval.high, result))
        low, high = sorted(bounds)
        shares = Interval(self.share(interval.estimate, result), low, high)
        ends = ends_between(shares, *(band.start for band in self.bands[1:]))
        if ends is None:
            return ()
        lowest, highest = ends
        touches_all = lowest == 0 and highest == len(self.bands) - 1
        if lowest < highest and (touches_all or low <= self.no_effect <= high):
            return ()
        answers: list[Band] = []
        for band in self.bands[lowest : highest + 1]:
            if result.backend["engine"] == "sync" and band.start >= self.needs_queue_from:
                band = WITHOUT_QUEUE
            if band not in answers:
                answers.append(band)
        return tuple(answers)

    def place(self, interval: Interval, result: Result) -> Band | None:
        """Return the band in which a whole interval lies.

        None if it touches several, or the metric has none.
        """
        answers = self.answers(interval, result)
        return answers[0] if len(answers) == 1 else None

    def says(self, interval: Interval, result: Result) -> str:
        """Say what an interval means, without the figure and a full stop.

        That is one answer, or the first and the last that the interval leaves.
        """
        if not self.bands:
            return _capitalised(self.means)
        answers = self.answers(interval, result)
        if not answers:
            return f"{INCONCLUSIVE}{self.name} leaves the question open"
        lowest, highest = answers[0].says, answers[-1].says
        if len(answers) == 1:
            return lowest
        if len(answers) == 2:
            return f"{lowest}, or {_continued(highest)}"
        return f"Anything from “{_continued(lowest)}” to “{_continued(highest)}”"

    def sentence(self, interval: Interval, result: Result, counted: bool = False) -> str:
        """Say what an interval means, and the figure; if the count has answered, as an addition."""
        meaning = self.says(interval, result)
        if counted:
            meaning = f"By the clock, {_continued(meaning.removeprefix(INCONCLUSIVE))}"
        about = self.about if isinstance(self.about, str) else self.about(result)
        if about:
            meaning += f", {about}"
        return f"{meaning}: {self.write(interval, result)}."

    def write(self, interval: Interval, result: Result) -> str:
        """Write an interval in the metric's unit, with the most that is possible.

        For example `1.97 (1.95–1.99) of 2`.
        """
        is_exact = interval.low == interval.high
        if is_exact:
            return self.in_short(interval.estimate, result)
        if self.in_percent:
            return in_percent(interval)
        estimate = self.brief(interval.estimate)
        has_no_unit = estimate == figure(interval.estimate)
        if has_no_unit:
            return with_bounds(interval) + self._possible(result)
        if not math.isfinite(interval.high):
            return estimate
        return f"{estimate} ({self.brief(interval.low)} … {self.brief(interval.high)})"

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
    """Return the share of the possible gain that a speed-up is: 0 is none, 1 is all.

    A loss is no share of it: it is returned as it is, below 0.
    """
    if speedup > 1 and most > 1:
        return (speedup - 1) / (most - 1)
    return speedup - 1


def gained_on_devices(speedup: float, result: Result) -> float:
    """Return the share of the possible gain on a result's devices that a speed-up over one is."""
    return gained(speedup, len(result.backend["devices"]))


def speed(name: str, slower: str, equal: str, faster: str, means: str = "") -> Metric:
    """Declare a figure of how many times as fast one thing is as another; the program gives it.

    `slower`, `equal` and `faster` say what it means: below 0.9, about 1, from 1.1 on.
    """
    bands = (Band(LOWEST, "slower", slower), Band(0.9, "equal", equal), Band(1.1, "faster", faster))
    return Metric(name, means=means, bands=bands)


def answers_of(metrics: Sequence[Metric], result: Result) -> dict[str, tuple[Band, ...]]:
    """Return what each of a result's metrics means that has bands and an interval."""
    answers = {}
    for metric in metrics:
        interval = result.interval(metric.name)
        if metric.bands and interval is not None:
            answers[metric.name] = metric.answers(interval, result)
    return answers


def _capitalised(words: str) -> str:
    return words[:1].upper() + words[1:]


def _continued(sentence: str) -> str:
    """Return a sentence as it stands within another one; none begins with a name."""
    return sentence[:1].lower() + sentence[1:]
