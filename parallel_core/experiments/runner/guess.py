"""A reader's guess of a figure, compared with what was measured.

A guess of a figure with bands is right if it lies in the band of the whole interval: it means the same. Of another
figure the interval decides: the guess is within, too low or too high. Nothing is said of it if the result is invalid,
if others took too much of the machine, if the figure has no interval, or if the interval is too wide.
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, TypeAlias

from parallel_core.errors import RequestError
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.measurement.confidence_intervals import Interval, decide, with_bounds
from parallel_core.measurement.result import Result
from parallel_core.system.formatting import figure, quantity

__all__ = ["Guess", "Judgement", "check_guess", "judge"]

Judgement: TypeAlias = Literal["within", "too low", "too high", "open"]

WIDEST_SHARE = 0.5
"""An interval of a share that is wider than this holds guesses that mean different things."""
WIDEST_FACTOR = 2.0
"""The same for the bounds of any other figure, one over the other."""
COUNTED = ("waits", "allreduces", "operations", "crossings", "_images")
"""How the names of metrics end that are counted, and so known exactly."""
UNTIMED = (*COUNTED, "accuracy", "best_rate_ratio")
"""The same of metrics that no time is in: what else the machine did changes none of them."""
SMALL = 0.02
"""Of an interval below this, `with_bounds` would write too few digits to tell a guess from its bounds."""


@dataclass(frozen=True)
class Guess:
    """A guess of a figure of a result, what was measured, and how the two compare."""

    metric: str
    value: float
    measured: Interval | None
    """The figure with its interval, unbounded if none was found; None if it was not measured."""
    judgement: Judgement
    reason: str
    """How the guess compares with what was measured, or why that stays open, without a full stop."""

    @property
    def guessed_in_words(self) -> str:
        """The guess in the unit of its figure."""
        return quantity(self.metric, self.value)

    @property
    def measured_in_words(self) -> str:
        """The figure with its bounds: `0.93 (0.90–0.96)`."""
        return "nothing" if self.measured is None else _in_words(self.metric, self.measured)

    @property
    def sentence(self) -> str:
        """Guess, result and judgement in a sentence."""
        return f"You guessed {self.guessed_in_words}; measured {self.measured_in_words}: {self.reason}."

    def as_json(self) -> dict[str, Any]:
        """Return the object that stands under `guess` in a run's JSON."""
        return {"metric": self.metric, "value": self.value, "judgement": self.judgement, "reason": self.reason}


def check_guess(value: object, metric: Metric) -> float:
    """Return a guess as a number; raises RequestError for anything else, and for what the figure cannot be."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(float(value)):
        raise RequestError(f"a guess of {metric.name} is a number, and not {value!r}")
    number, (least, most) = float(value), metric.limits
    if not least <= number <= most:
        possible = f"between {least:g} and {most:g}" if math.isfinite(most) else f"of at least {least:g}"
        raise RequestError(f"{metric.name} cannot be {number:g}: guess a number {possible}")
    return number


def judge(value: float, guessed: Metric, result: Result) -> Guess:
    """Compare a guess of a metric with a result; raises RequestError for a metric that the result does not have."""
    metric = guessed.name
    interval = result.interval(metric)
    if interval is None:
        raise RequestError(f"{result.experiment} has no metric {metric!r} (known: {', '.join(result.metrics)})")
    estimate = interval.estimate
    if metric.endswith(COUNTED):
        interval = Interval(estimate, estimate, estimate)
    if why := _why_open(result, interval, metric.endswith(UNTIMED)):
        return Guess(metric, value, None if math.isnan(estimate) else interval, "open", why)
    if guessed.bands:
        return _judge_by_bands(value, guessed, interval, result)
    # Between a guess and the next number nothing lies, so an interval that begins or ends with the guess holds it.
    place = decide(interval, value, math.nextafter(value, math.inf))
    if place == 2 and not _is_written_like(value, interval.low, metric, interval):
        return Guess(metric, value, interval, "too low", "your guess is too low")
    if place == 0 and not _is_written_like(value, interval.high, metric, interval):
        return Guess(metric, value, interval, "too high", "your guess is too high")
    if _says_little(interval, guessed.limits):
        return Guess(metric, value, interval, "open", "the noise leaves open whether your guess is right")
    how = "is right" if interval.low == interval.high else "lies within what was measured"
    return Guess(metric, value, interval, "within", f"your guess {how}")


def _judge_by_bands(value: float, metric: Metric, interval: Interval, result: Result) -> Guess:
    measured, guessed = metric.place(interval, result), metric.place(Interval(value, value, value), result)
    if measured is None:
        return Guess(metric.name, value, interval, "open", "the noise leaves open whether your guess is right")
    if measured == guessed:
        return Guess(metric.name, value, interval, "within", "your guess is right")
    if value < interval.estimate:
        return Guess(metric.name, value, interval, "too low", "your guess is too low")
    return Guess(metric.name, value, interval, "too high", "your guess is too high")


def _why_open(result: Result, interval: Interval, untimed: bool) -> str:
    """Say why nothing can be said of any guess; empty if something can."""
    if result.problems:
        return f"the result is invalid, so nothing is said of your guess ({result.problems[0]})"
    if not untimed and result.machine_watch is not None and not result.machine_watch.allows_verdict:
        return "other work took so much of the cores' time that nothing is said of your guess"
    if math.isnan(interval.estimate):
        return "the run did not find this figure, so whether your guess is right stays open"
    if not math.isfinite(interval.low + interval.high):
        return "one run does not say how well this is known, so whether your guess is right stays open"
    return ""


def _says_little(interval: Interval, limits: tuple[float, float]) -> bool:
    if limits[1] == 1 or interval.low == interval.high:
        return interval.high - interval.low > WIDEST_SHARE
    return interval.low <= 0 or interval.high / interval.low > WIDEST_FACTOR


def _is_written_like(value: float, bound: float, metric: str, interval: Interval) -> bool:
    """Tell whether a guess and a bound of the interval are the same number to the digits that are shown."""
    return _in_words(metric, Interval(value, interval.low, interval.high)).startswith(
        _in_words(metric, Interval(bound, interval.low, interval.high)).partition("(")[0]
    )


def _in_words(metric: str, interval: Interval) -> str:
    """Write a figure in its unit, with its bounds if it has some."""
    plain = quantity(metric, interval.estimate)
    if not math.isfinite(interval.low + interval.high) or interval.low == interval.high:
        return plain
    has_a_unit = plain != figure(interval.estimate)
    if has_a_unit or max(abs(interval.low), abs(interval.high)) < SMALL:
        return f"{plain} ({quantity(metric, interval.low)} … {quantity(metric, interval.high)})"
    return with_bounds(interval)
