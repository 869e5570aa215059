"""Quantities over rounds have intervals, and no verdict goes beyond its interval."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.measurement.confidence_intervals import Interval, decide
from parallel_core.measurement.result import Case
from parallel_core.measurement.verdicts import (
    BETWEEN_PROCESSES,
    in_percent,
    over_rounds,
    times_as_long,
)

TIMES = st.lists(st.floats(0.01, 100), min_size=2, max_size=9)


def case(*seconds: float) -> Case:
    return Case("any", seconds, tuple(taken / 10 for taken in seconds))


@given(st.floats(-5, 5), st.floats(0, 3), st.floats(0, 3), st.lists(st.floats(-4, 4), min_size=1, max_size=3))
def test_a_verdict_holds_for_every_value_of_the_interval(
    value: float, below: float, above: float, bounds: list[float]
) -> None:
    interval, ascending = Interval(value, value - below, value + above), sorted(bounds)
    place = decide(interval, *ascending)
    places = {decide(Interval(one, one, one), *ascending) for one in (interval.low, value, interval.high)}
    assert places == {place} if place is not None else len(places) > 1


def test_nothing_follows_from_one_round_or_from_no_number() -> None:
    once = times_as_long(case(1.0), case(9.0))
    assert (once.estimate, once.low, once.high) == (pytest.approx(1 / 9), 0.0, math.inf)
    assert decide(times_as_long(case(1.0), case(9.0)), 1.0) is None
    assert decide(Interval(math.nan, math.nan, math.nan), 1.0) is None


@given(TIMES, TIMES)
def test_a_ratio_and_its_inverse_say_the_same(first: list[float], second: list[float]) -> None:
    ratio, inverse = times_as_long(case(*first), case(*second)), times_as_long(case(*second), case(*first))
    assert ratio.low <= ratio.estimate <= ratio.high
    assert ratio.estimate == pytest.approx(np.median(first) / np.median(second))
    assert ratio.estimate == pytest.approx(1 / inverse.estimate)


def test_no_ratio_is_known_better_than_the_noise_of_a_quiet_machine() -> None:
    same = case(1.0, 1.0, 1.0)
    within = times_as_long(same, same)
    assert (within.low, within.high) == pytest.approx((0.953, 1.05), abs=0.01)
    apart = over_rounds(lambda a, b: a / b, same.seconds, same.seconds, noise=BETWEEN_PROCESSES)
    assert apart.high / apart.low == pytest.approx(1.21, abs=0.03)


def test_what_drifts_in_all_times_of_a_round_is_no_noise() -> None:
    drifting = (1.0, 1.3, 1.7, 2.2, 2.9)
    slower = tuple(1.2 * seconds for seconds in drifting)
    assert decide(times_as_long(case(*slower), case(*drifting)), 1.0) is not None
    shuffled = (slower[3], slower[0], slower[4], slower[2], slower[1])
    assert decide(times_as_long(case(*shuffled), case(*drifting)), 1.0) is None


def test_times_of_unlike_numbers_of_rounds_are_compared() -> None:
    ratio = over_rounds(lambda a, b: a / b, (2.0, 2.01, 1.99), (1.0, 1.01, 0.99, 1.0))
    assert ratio.low < 2.0 < ratio.high < 2.3


def test_a_share_in_percent_has_its_bounds() -> None:
    def share(rounds: int) -> str:
        return in_percent(over_rounds(lambda sent, done: sent / done, (0.1,) * rounds, (1.0,) * rounds))

    assert (share(3), share(1)) == ("10 % (9.5–10 %)", "10 %")
