"""Metrics over the times of a run's cases, and the bands that say what a metric means.

A run, a comparison, a guess and the report all ask `Metric.answers` what a figure means. It returns
every band that the interval touches, so that nothing is said that the noise leaves open. It returns
none if the figure may as well mean that there is no effect.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from parallel_core.experiments.runner.formulas import Formula, interval_of
from parallel_core.measurement.confidence_intervals import (
    Interval,
    ends_between,
    with_bounds,
)
from parallel_core.measurement.over_rounds import in_percent
from parallel_core.measurement.result import Case, Result
from parallel_core.system.formatting import figure, percent, quantity

LOWEST = -math.inf
CANNOT_TELL = "This run cannot tell"
"""The beginning of a metric's sentence if the noise leaves its question open."""


Overlap = Literal["none", "part", "all"]


@dataclass(frozen=True)
class Band:
    """Values with one meaning: from `start` up to the start of the next band."""

    start: float
    """The lowest value of the band, as a share of what is possible (`Metric.share`)."""
    code: str
    """The name of the band in a result's JSON."""
    says: str
    """The meaning as a sentence, without figures and without a full stop."""
    overlap: Overlap | None = None
    """How much of the work overlapped, if that is what the band means."""


WITHOUT_QUEUE = Band(
    LOWEST, "without-queue", "Nothing was queued, so a part was slower in isolation", overlap="none"
)
"""The band that replaces another one on an engine without a queue, if only a queue can reach it."""


@dataclass(frozen=True)
class Metric:
    """A figure of an experiment: its formula over times, the values that are possible, and their
    meanings.
    """

    name: str
    formula: Formula | None = None
    """None for a figure that the program finds by itself (`Trial.found`)."""
    means: str = ""
    """What the figure is, and its landmarks: `the share of the copies' time that is hidden: 0 is
    none, 1 is all`.
    """
    bands: tuple[Band, ...] = ()
    """The meanings of values, in ascending order; none for a figure that is only reported."""
    share: Callable[[float, Result], float] = lambda value, _: value
    """A function from a value to a share of what is possible, which decides the value's band.

    The share must rise, or fall, with the value.
    """
    at_most: Callable[[Result], float] = lambda _: math.inf
    """The largest value that is possible; an interval above it invalidates the result."""
    limits: tuple[float, float] = (0.0, math.inf)
    """The lowest and the highest guess that are accepted."""
    about: str | Callable[[Result], str] = ""
    """The subject of the figure, if sentences must tell it from others: `the book's way`."""
    title: str = ""
    """The heading in a table of all experiments: `Copies hidden`."""
    in_percent: bool = False
    needs_queue_from: float = math.inf
    """The share that cannot be reached without a queue (see `WITHOUT_QUEUE`)."""
    ratio: bool = False
    """Whether the figure is a ratio of times, whose interval is found for its logarithm."""
    not_if_counted: str = ""
    """The code of a band that a count above 0 excludes: that nothing was queued."""
    said: Callable[[Result], bool] = lambda _: True
    """Whether an answer may contain the figure's sentence."""

    @property
    def heading(self) -> str:
        """The heading in a table of all experiments: the title, or else the name in words."""
        return self.title or self.name.replace("_", " ").capitalize()

    def measured(self, cases: Mapping[str, Case]) -> Interval | None:
        """Return the metric's interval over a run's cases.

        None if the metric has no formula, or the run lacks a case of it.
        """
        if self.formula is None:
            return None
        return interval_of(self.formula, cases, is_ratio=self.ratio)

    @property
    def no_effect(self) -> float:
        """The share that means no effect, for a metric with bands.

        It is 0 for a gain, which has a band for losses below 0. It is 1 for a ratio of two things
        that may be equal.
        """
        is_gain = self.bands[1].start <= 0
        return 0.0 if is_gain else 1.0

    def answers(self, interval: Interval, result: Result) -> tuple[Band, ...]:
        """Return the meanings of an interval: the bands that it touches, in ascending order.

        There are none if the interval is inconclusive: it touches several bands, and contains no
        effect. From `result` follows what is possible, by its devices and parameters.
        """
        if not self.bands:
            return ()
        # The share may fall as the value rises.
        low, high = sorted((self.share(interval.low, result), self.share(interval.high, result)))
        shares = Interval(self.share(interval.estimate, result), low, high)
        starts = [band.start for band in self.bands[1:]]
        touched = ends_between(shares, *starts)
        if touched is None:
            return ()
        lowest, highest = touched
        contains_no_effect = low <= self.no_effect <= high
        if lowest < highest and contains_no_effect:
            return ()
        has_no_queue = result.backend["engine"] == "sync"
        answers: list[Band] = []
        was_counted = any(counted.count for counted in result.counts.values())
        for band in self.bands[lowest : highest + 1]:
            if was_counted and band.code == self.not_if_counted:
                continue
            if has_no_queue and band.start >= self.needs_queue_from:
                band = WITHOUT_QUEUE
            if band not in answers:
                answers.append(band)
        return tuple(answers)

    def place(self, interval: Interval, result: Result) -> Band | None:
        """Return the only band that an interval touches.

        None if the interval touches several bands, or the metric has none.
        """
        answers = self.answers(interval, result)
        return answers[0] if len(answers) == 1 else None

    def says(self, interval: Interval, result: Result) -> str:
        """Say what an interval means, without the figure and without a full stop.

        If the interval touches several bands, the lowest and the highest one are said.
        """
        if not self.bands:
            return self.means[:1].upper() + self.means[1:]
        answers = self.answers(interval, result)
        if not answers:
            return CANNOT_TELL
        lowest, highest = answers[0].says, answers[-1].says
        if len(answers) == 1:
            return lowest
        if len(answers) == 2:
            return f"{lowest}, or {_continued(highest)}"
        return f"Anything from “{_continued(lowest)}” to “{_continued(highest)}”"

    def sentence(self, interval: Interval, result: Result, counted: bool = False) -> str:
        """Say what an interval means, with the figure.

        If a count has answered the question (`counted`), the sentence begins `By the clock, `.
        """
        meaning = self.says(interval, result)
        if counted:
            meaning = f"By the clock, {_continued(meaning)}"
        about = self.about if isinstance(self.about, str) else self.about(result)
        if about:
            meaning += f", {about}"
        answers = self.answers(interval, result)
        ending = "."
        if len(answers) > 1:
            ending = f"; {_continued(CANNOT_TELL)} which."
        elif not answers and self.bands and self.means:
            ending = f" ({self.means})."
        return f"{meaning}: {self.write(interval, result)}{ending}"

    def write(self, interval: Interval, result: Result) -> str:
        """Write an interval in the metric's unit, with the largest value that is possible.

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
        """Write a value with the largest one that is possible: `1.97 of 2`."""
        return self.brief(value) + self._possible(result)

    def _possible(self, result: Result) -> str:
        """Write the largest value that is possible: ` of 2`; empty for percents and without one."""
        most = self.at_most(result)
        if self.in_percent or not math.isfinite(most):
            return ""
        return f" of {figure(most)}"

    def brief(self, value: float) -> str:
        """Write a value in the metric's unit."""
        if self.in_percent:
            return percent(value)
        return quantity(self.name, value)


def gained(speedup: float, most: float) -> float:
    """Return a speed-up's gain as a share of the possible gain: 0 is none, 1 is all.

    A loss is returned as it is, below 0, and not as a share.
    """
    if speedup > 1 and most > 1:
        return (speedup - 1) / (most - 1)
    return speedup - 1


def gained_on_devices(speedup: float, result: Result) -> float:
    """Return the gain of a speed-up over one device, as a share of the gain that is possible."""
    return gained(speedup, len(result.backend["devices"]))


def bands_of_gain(
    *,
    hindered: str,
    serial: str,
    partly: str,
    parallel: str,
    serial_code: str = "serial",
    parallel_code: str = "parallel",
) -> tuple[Band, ...]:
    """Declare the bands of a share of a possible gain, such as `gained` returns.

    The sentences say what a loss means, next to no gain, a part of the possible gain, and nearly
    all of it.
    """
    return (
        Band(LOWEST, "hindered", hindered, overlap="none"),
        Band(-0.2, serial_code, serial, overlap="none"),
        Band(0.2, "partly", partly, overlap="part"),
        Band(0.8, parallel_code, parallel, overlap="all"),
    )


def speed(name: str, slower: str, equal: str, faster: str, means: str = "") -> Metric:
    """Declare a metric of how many times as fast one thing is as another.

    `slower`, `equal` and `faster` are the meanings below 0.9, between, and from 1.1 on. The program
    finds the figure by itself.
    """
    bands = (Band(LOWEST, "slower", slower), Band(0.9, "equal", equal), Band(1.1, "faster", faster))
    return Metric(name, means=means, bands=bands)


class DirectAnswer(NamedTuple):
    """What answers a question of time: a code, which is None if this run cannot tell, and a
    sentence or two with figures.
    """

    code: str | None
    sentence: str


def answer_by(metric: Metric) -> Callable[[Result], DirectAnswer | None]:
    """Return the function that answers an experiment's question by a metric's sentence."""

    def answer_on(result: Result) -> DirectAnswer | None:
        interval = result.interval(metric.name)
        if interval is None:
            return None
        bands = metric.answers(interval, result)
        code = bands[0].code if len(bands) == 1 else None
        return DirectAnswer(code, metric.sentence(interval, result))

    return answer_on


def answers_of(metrics: Sequence[Metric], result: Result) -> dict[str, tuple[Band, ...]]:
    """Return the bands that each metric of a result touches, if it has bands and was measured."""
    answers = {}
    for metric in metrics:
        interval = result.interval(metric.name)
        if metric.bands and interval is not None:
            answers[metric.name] = metric.answers(interval, result)
    return answers


def _continued(sentence: str) -> str:
    """Return a sentence with a small first letter, to stand within another sentence."""
    return sentence[:1].lower() + sentence[1:]
