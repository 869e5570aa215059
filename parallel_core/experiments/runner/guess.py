"""A reader's guess of a figure, compared with what was measured.

A guess of a figure with bands is right if it lies in the band of the whole interval: it means the
same. Of another figure the interval decides: the guess is within, too low or too high. Nothing is
said of it if the result is invalid, if the figure has no interval, or if the interval is too wide;
what others took of the machine widens it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, TypeAlias

from backends.errors import unknown
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Result
from parallel_core.system.errors import RequestError

Judgement: TypeAlias = Literal["within", "too low", "too high", "open"]

WIDEST_FACTOR = 2.0
"""Of a figure without bands, an interval whose bounds are farther apart holds guesses that mean
different things.
"""


@dataclass(frozen=True)
class Guess:
    """A guess of a figure of a result, what was measured, and how the two compare."""

    metric: str
    value: float
    judgement: Judgement
    reason: str
    """How the guess compares with what was measured, or why that stays open, without a full
    stop.
    """

    guessed_in_words: str
    """The guess in the unit of its figure."""
    measured_in_words: str
    """The figure with its bounds: `0.93 (0.90–0.96)`."""

    @property
    def sentence(self) -> str:
        """Guess, result and judgement in a sentence."""
        return (
            f"You guessed {self.guessed_in_words}; measured {self.measured_in_words}: "
            f"{self.reason}."
        )

    def as_json(self) -> dict[str, Any]:
        """Return the object that stands under `guess` in a run's JSON."""
        return {
            "metric": self.metric,
            "value": self.value,
            "judgement": self.judgement,
            "reason": self.reason,
        }


def check_guess(value: object, metric: Metric) -> float:
    """Return a guess as a number; raises RequestError for anything else, and for what the figure
    cannot be.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(float(value)):
        raise RequestError(f"a guess of {metric.name} is a number, and not {value!r}")
    number, (least, most) = float(value), metric.limits
    if not least <= number <= most:
        possible = (
            f"between {least:g} and {most:g}" if math.isfinite(most) else f"of at least {least:g}"
        )
        raise RequestError(f"{metric.name} cannot be {number:g}: guess a number {possible}")
    return number


def judge(value: float, metric: Metric, result: Result) -> Guess:
    """Compare a guess of a metric with a result; raises RequestError for a metric that nothing is
    known of.
    """
    interval = result.interval(metric.name)
    if interval is None and not metric.bands:
        raise RequestError(unknown(f"metric of {result.experiment}", metric.name, result.metrics))
    # What a figure compares may not have been there.
    interval = interval or Interval(math.nan, math.nan, math.nan)
    is_missing, unbounded = (
        math.isnan(interval.estimate),
        not math.isfinite(interval.low + interval.high),
    )
    judgement: Judgement = "open"
    if result.problems:
        reason = f"the result is invalid, so nothing is said of your guess ({result.problems[0]})"
    elif is_missing:
        reason = "the run did not find this figure, so whether your guess is right stays open"
    elif unbounded:
        reason = (
            "one run does not say how well this is known, so whether your guess is right stays open"
        )
    else:
        judgement = _compared(value, metric, interval, result)
        reason = REASONS[judgement]
    measured = "nothing" if is_missing else metric.write(interval, result)
    return Guess(metric.name, value, judgement, reason, metric.brief(value), measured)


REASONS: Mapping[Judgement, str] = {
    "within": "your guess is right",
    "too low": "your guess is too low",
    "too high": "your guess is too high",
    "open": "the noise leaves open whether your guess is right",
}


def _compared(value: float, metric: Metric, interval: Interval, result: Result) -> Judgement:
    low, high = interval.low, interval.high
    if metric.bands:
        measured, guessed = (
            metric.place(interval, result),
            metric.place(Interval(value, value, value), result),
        )
        if measured is None or measured == guessed:
            return "open" if measured is None else "within"
        return "too low" if value < interval.estimate else "too high"
    if not low <= value <= high:
        return "too low" if value < low else "too high"
    least, most = sorted((abs(low), abs(high)))
    is_wide = low < high and (low <= 0 <= high or most / least > WIDEST_FACTOR)
    return "open" if is_wide else "within"
