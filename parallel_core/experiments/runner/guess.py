"""A reader's guess of a figure or of a count, compared with the result.

A guess of a figure is too low, too high or within the measured interval. A guess of a count is
right if it lies in the same band as the count. A count is exact, so a guess of it is judged even if
the clock gives no verdict.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

from backends.errors import unknown
from parallel_core.experiments.runner.counts import Count, write
from parallel_core.experiments.runner.declaration import Experiment
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.experiments.runner.tallies import Tally
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Result
from parallel_core.system.errors import RequestError

Judgement = Literal["within", "too low", "too high", "open"]
Guessed = float | Tally
"""A guessed figure, or a guessed count."""

REASONS: Mapping[Judgement, str] = {
    "within": "your guess is within what was measured",
    "too low": "your guess is too low",
    "too high": "your guess is too high",
    "open": "all that is possible was measured, so whether your guess is right stays open",
}
RIGHT = "your guess is right"
SAME_ANSWER = "{}, but means the same"
INVALID = "the result is invalid, so nothing is said of your guess ({})"
COUNT = re.compile(r"\s*(\d+)\s*(?:/|of)\s*(\d+)\s*")
"""A count as it is written: `10/10`, or `10 of 10`."""


@dataclass(frozen=True)
class Guess:
    """A guess of a figure or a count, beside the result's, and how the two compare."""

    name: str
    """The name of the metric or of the count."""
    value: Guessed
    judgement: Judgement
    reason: str
    """How the guess compares with the result, or why that stays open, without a full stop."""
    guessed_in_words: str
    """The guess in the unit of its figure."""
    found_in_words: str
    """The result's figure with its bounds, `0.93 (0.90–0.96)`, or its count, `24 of 25`."""

    @property
    def found_by(self) -> str:
        """`measured` for a figure, `counted` for a count."""
        return "counted" if isinstance(self.value, Tally) else "measured"

    @property
    def sentence(self) -> str:
        """The guess, the result and the judgement in one sentence."""
        return (
            f"You guessed {self.guessed_in_words}; {self.found_by} {self.found_in_words}: "
            f"{self.reason}."
        )

    def as_json(self) -> dict[str, Any]:
        """Return the object that stands under `guess` in a run's JSON."""
        guessed: dict[str, Any] = {"metric": self.name, "value": self.value}
        if isinstance(self.value, Tally):
            guessed = {"count": self.name, "value": self.value.seen, "of": self.value.of}
        return {**guessed, "judgement": self.judgement, "reason": self.reason}


def read_guess(text: str) -> Guessed:
    """Return the number or the count that a text is; raises RequestError if it is neither."""
    if written := COUNT.fullmatch(text):
        return Tally(int(written[1]), int(written[2]))
    try:
        return float(text)
    except ValueError:
        raise RequestError(
            f"a guess is a number, or a count such as 10/10, and not {text!r}"
        ) from None


def what_is_guessed(guess: object, experiment: Experiment, name: str = "") -> Metric | Count:
    """Return the metric that a guessed number is of, or the count that a guessed count is of.

    It has the given name, or is the experiment's first one without a name. Raises RequestError for
    a count that the experiment does not have. Whether it has a metric, only the result can tell.
    """
    if not isinstance(guess, Tally):
        return experiment.metric_named(name) if name else experiment.main
    if not experiment.counts:
        raise RequestError(
            f"{experiment.name} counts nothing: guess {experiment.main.name}, a number"
        )
    counts = {count.name: count for count in experiment.counts}
    if name and name not in counts:
        raise RequestError(unknown(f"count of {experiment.name}", name, counts))
    return counts[name] if name else experiment.counts[0]


def check_guess(guess: object, asked: Metric | Count) -> Guessed:
    """Return a guess as a float or a Tally.

    Raises RequestError for anything else, and for a value that is impossible.
    """
    if isinstance(guess, Tally):
        is_possible = guess.of > 0 and 0 <= guess.seen <= guess.of
        if not is_possible:
            raise RequestError(
                f"{asked.name} cannot be {guess.seen} of {guess.of}: guess a part of all"
            )
        return guess
    number = math.nan
    if not isinstance(guess, bool) and isinstance(guess, Real):
        number = float(guess)
    if not math.isfinite(number):
        raise RequestError(f"a guess of {asked.name} is a number, and not {guess!r}")
    assert isinstance(asked, Metric)
    least, most = asked.limits
    if not least <= number <= most:
        possible = f"of at least {least:g}"
        if math.isfinite(most):
            possible = f"between {least:g} and {most:g}"
        raise RequestError(f"{asked.name} cannot be {number:g}: guess a number {possible}")
    return number


def asked_for(
    guess: object, experiment: Experiment, name: str = ""
) -> tuple[Guessed, Metric | Count]:
    """Return a guess as a float or a Tally, and the metric or the count that it is of.

    A text is read first. Raises RequestError as `read_guess`, `what_is_guessed` and `check_guess`.
    """
    value = read_guess(guess) if isinstance(guess, str) else guess
    asked = what_is_guessed(value, experiment, name)
    return check_guess(value, asked), asked


def judge(guess: Guessed, asked: Metric | Count, result: Result) -> Guess:
    """Compare a guess with a result; raises RequestError for a metric that it does not have."""
    if isinstance(guess, Tally):
        assert isinstance(asked, Count)
        return _judge_count(guess, asked, result)
    assert isinstance(asked, Metric)
    return _judge_figure(guess, asked, result)


def _judge_count(guess: Tally, count: Count, result: Result) -> Guess:
    """Compare a guessed count with a result's.

    Shares are compared, because a run may have counted another number of things.
    """
    counted = result.counts.get(count.name)
    judgement: Judgement = "open"
    if result.errors:
        reason = INVALID.format(result.errors[0])
    elif counted is None:
        reason = "whether your guess is right stays open"
    elif count.band(guess.seen, guess.of) == count.band_of(result):
        judgement, reason = "within", RIGHT
    else:
        is_low = guess.seen / guess.of < counted.count / counted.of
        judgement = "too low" if is_low else "too high"
        reason = REASONS[judgement]
    found = "nothing" if counted is None else write(counted)
    return Guess(count.name, guess, judgement, reason, f"{guess.seen} of {guess.of}", found)


def _judge_figure(value: float, metric: Metric, result: Result) -> Guess:
    """Compare a guessed value with the metric's interval.

    The judgement is open if the result lacks the figure or its bounds. Raises RequestError for a
    metric that is neither declared nor in the result.
    """
    interval = result.interval(metric.name)
    if interval is None and not metric.bands:
        raise RequestError(unknown(f"metric of {result.experiment}", metric.name, result.metrics))
    # A run may lack the cases of a metric.
    interval = interval or Interval(math.nan, math.nan, math.nan)
    is_missing = math.isnan(interval.estimate)
    judgement: Judgement = "open"
    if result.problems:
        reason = INVALID.format(result.problems[0])
    elif is_missing:
        reason = "the run did not find this figure, so whether your guess is right stays open"
    elif not math.isfinite(interval.low + interval.high):
        reason = (
            "one run does not say how well this is known, so whether your guess is right stays open"
        )
    else:
        judgement = _compared(value, metric, interval, result)
        reason = _reason(judgement, value, metric, interval, result)
    measured = "nothing" if is_missing else metric.write(interval, result)
    return Guess(metric.name, value, judgement, reason, metric.brief(value), measured)


def _compared(value: float, metric: Metric, interval: Interval, result: Result) -> Judgement:
    """Return where a value lies relative to an interval.

    It is open if the interval contains every possible value.
    """
    if value < interval.low:
        return "too low"
    if value > interval.high:
        return "too high"
    least, most = metric.limits
    most = min(most, metric.at_most(result))
    contains_all = interval.low <= least and interval.high >= most
    return "open" if contains_all else "within"


def _reason(
    judgement: Judgement, value: float, metric: Metric, interval: Interval, result: Result
) -> str:
    """Say how a guess compares; outside the interval it may still lie in the same band."""
    is_exact = interval.low == interval.high
    if judgement == "within" and is_exact:
        return RIGHT
    reason = REASONS[judgement]
    band = metric.place(interval, result)
    guessed_band = metric.place(Interval(value, value, value), result)
    means_the_same = band is not None and band == guessed_band
    if judgement in ("too low", "too high") and means_the_same:
        return SAME_ANSWER.format(reason)
    return reason
