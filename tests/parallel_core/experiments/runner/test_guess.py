"""A guess of a figure or of a count is judged, or left open; a golden file has its words."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core import RequestError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.guess import (
    Guess,
    check_guess,
    judge,
    read_guess,
    what_is_guessed,
)
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.experiments.runner.tallies import Tally
from parallel_core.measurement.result import Counted, Note, Result
from parallel_core.system.machine import MachineWatch
from tests.parallel_core.report.plots.synthetic_results import TIMED

ANY = (-math.inf, math.inf)
NUMBERS = st.floats(-1e6, 1e6)
POSITIVE = st.floats(1e-6, 1e6)
SPEEDUP = EXPERIMENTS["parallel"].metrics[0]
WRONG = Note(None, "sums differ")


def measured(low: float, high: float, name: str = "speedup", **changes: Any) -> Result:
    """Return a result with a figure in the middle of its bounds."""
    figure = (low + high) / 2
    result = replace(TIMED, metrics={name: figure}, metric_intervals={name: (low, high)})
    return replace(result, **changes)


def metric(name: str = "speedup", limits: tuple[float, float] = ANY) -> Metric:
    """Return a metric whose values lie between limits."""
    return Metric(name, limits=limits)


def judged(guess: float, low: float, high: float, name: str = "speedup", **changes: Any) -> Guess:
    """Return the judgement of a guess where a figure between two bounds was measured."""
    return judge(guess, metric(name), measured(low, high, name, **changes))


@pytest.mark.parametrize(
    ("guessed_metric", "guess", "low", "high", "judgement"),
    [
        (SPEEDUP, 1.9, 1.95, 1.99, "too low"),
        (SPEEDUP, 2.0, 0.95, 1.05, "too high"),
        # A guess outside the interval is wrong, even if both mean the same.
        (SPEEDUP, 1.0, 1.1, 1.3, "too low"),
        (SPEEDUP, 1.7, 1.5, 1.9, "within"),
        # Every possible value lies in the interval, which therefore decides nothing.
        (metric("share", (-1.0, 1.0)), 0.5, -7.0, 13.0, "open"),
        (metric("share", (-1.0, 1.0)), 0.5, -0.9, 13.0, "within"),
        (SPEEDUP, 1.7, 0.0, 2.5, "open"),
        (SPEEDUP, 1.7, 0.0, 1.9, "within"),
    ],
)
def test_a_guess_of_a_figure_is_judged_by_the_interval(
    guessed_metric: Metric, guess: float, low: float, high: float, judgement: str
) -> None:
    result = measured(low, high, guessed_metric.name)
    assert judge(guess, guessed_metric, result).judgement == judgement


@given(
    bounds=st.lists(NUMBERS, min_size=2, max_size=2).map(sorted), guess=NUMBERS, distance=POSITIVE
)
def test_the_interval_decides_in_both_directions(
    bounds: list[float], guess: float, distance: float
) -> None:
    low, high = bounds
    judgement = judged(guess, low, high).judgement
    assert (judgement == "within") == (low <= guess <= high)
    mirrored = {"too low": "too high", "too high": "too low", "within": "within", "open": "open"}
    assert judged(-guess, -high, -low).judgement == mirrored[judgement]
    # A guess far outside is judged however wide the interval is.
    far = 1e-2 * max(1.0, abs(low) + high - low) + distance
    assert judged(low - far, low, high).judgement == "too low"
    assert judged(high + far, low, high).judgement == "too high"


BESIDE = EXPERIMENTS["parallel"].counts[0]


def counted(beside: int, of: int, **changes: Any) -> Result:
    """Return a result in which `beside` of `of` computations ran beside another device."""
    counts = {BESIDE.name: Counted(beside, of, "a test", (beside,))}
    return replace(TIMED, **{"counts": counts, "problems": (), **changes})


@pytest.mark.parametrize(
    ("guess", "counted_beside", "judgement"),
    [
        # A guess is right if it means the same, of however many things.
        (Tally(25, 25), 24, "within"),
        (Tally(10, 10), 24, "within"),
        (Tally(10, 10), 1, "too high"),
        (Tally(0, 10), 1, "within"),
        (Tally(0, 10), 10, "too low"),
        (Tally(5, 10), 24, "too low"),
    ],
)
def test_a_guess_of_a_count_is_judged_by_its_share(
    guess: Tally, counted_beside: int, judgement: str
) -> None:
    result = counted(counted_beside, 25)
    assert judge(guess, BESIDE, result).judgement == judgement
    # Times that cannot be true leave order as it is.
    impossible = replace(result, problems=(WRONG,), disturbances=(WRONG,))
    assert judge(guess, BESIDE, impossible).judgement == judgement


def test_a_guess_of_a_count_may_name_it() -> None:
    experiment = EXPERIMENTS["overlap"]
    for count in experiment.counts:
        assert what_is_guessed(Tally(1, 2), experiment, count.name) is count
    with pytest.raises(RequestError):
        what_is_guessed(Tally(1, 2), experiment, "speedup")


def test_a_guess_of_a_count_is_open_if_nothing_was_counted_or_values_are_wrong() -> None:
    uncounted = counted(24, 25, counts={})
    wrong = counted(24, 25, problems=(WRONG,))
    assert judge(Tally(10, 10), BESIDE, uncounted).judgement == "open"
    assert judge(Tally(10, 10), BESIDE, wrong).judgement == "open"


@pytest.mark.parametrize(
    ("text", "guess"),
    [("10/10", Tally(10, 10)), (" 9 of 10 ", Tally(9, 10)), ("0.5", 0.5), ("-1e3", -1000.0)],
)
def test_a_guess_is_read_as_a_number_or_a_count(text: str, guess: float | Tally) -> None:
    assert read_guess(text) == guess


@pytest.mark.parametrize("text", ["", "much", "1/2/3", "10 of", "1.5/2", "-1/2"])
def test_what_is_no_guess_gets_one_line(text: str) -> None:
    with pytest.raises(RequestError, match=r"^a guess is a number, or a count such as 10/10, "):
        read_guess(text)


def test_a_guess_is_judged_on_a_busy_machine_too() -> None:
    busy = MachineWatch(10.0, 2.0, 0.9, 0.0, 0.0, None, None)
    assert judged(5.0, 1.0, 1.2, machine_watch=busy).judgement == "too high"


@pytest.mark.parametrize("value", ["0.5", None, True, math.nan, math.inf, [1], 1j])
def test_a_guess_that_is_no_number_gets_one_line(value: object) -> None:
    with pytest.raises(RequestError, match=r"^a guess of speedup is a number, and not "):
        check_guess(value, metric())


def test_a_guess_of_a_metric_that_a_result_lacks_gets_one_line_that_says_what_it_has() -> None:
    unknown = r"^unknown metric of .+ 'share' \(known: speedup\)$"
    with pytest.raises(RequestError, match=unknown):
        judge(1.0, metric("share"), measured(1.0, 1.2))
