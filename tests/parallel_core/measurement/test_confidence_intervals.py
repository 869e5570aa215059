"""Intervals and verdicts: what they always are, how rarely they are wrong, how seldom they miss."""

import math
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from parallel_core.measurement.confidence_intervals import (
    Interval,
    exponential,
    median_interval,
    ratio_interval,
    student_t,
    verdict_on,
)

SECONDS = st.lists(st.floats(1e-6, 1e3), min_size=3, max_size=8)


@given(SECONDS)
def test_an_interval_holds_its_estimate_and_stays_positive_for_times(values: list[float]) -> None:
    found = median_interval(values)
    assert 0 < found.low <= found.estimate * (1 + 1e-9)
    assert found.estimate <= found.high * (1 + 1e-9)
    assert min(values) * (1 - 1e-9) <= found.estimate <= max(values) * (1 + 1e-9)


@given(SECONDS, SECONDS)
def test_a_ratio_and_its_inverse_are_judged_alike(mine: list[float], theirs: list[float]) -> None:
    assume(sorted(mine) != sorted(theirs))
    there, back = ratio_interval(mine, theirs), ratio_interval(theirs, mine)
    assert there.estimate == pytest.approx(1 / back.estimate)
    assert there.low == pytest.approx(1 / back.high)
    assert there.high == pytest.approx(1 / back.low)
    mirrored = {"faster": "slower", "slower": "faster"}
    assert verdict_on(there, 3) == mirrored.get(verdict_on(back, 3), "no difference shown")


@given(SECONDS, SECONDS, st.randoms(), st.floats(0.01, 100))
def test_neither_the_order_of_the_processes_nor_the_unit_matters(
    mine: list[float], theirs: list[float], random: Random, factor: float
) -> None:
    before, shuffled = ratio_interval(mine, theirs), list(mine)
    random.shuffle(shuffled)
    assert ratio_interval(shuffled, theirs) == before
    after = ratio_interval([factor * one for one in mine], [factor * one for one in theirs])
    assert (after.estimate, after.low, after.high) == pytest.approx((before.estimate, before.low, before.high))


@given(SECONDS)
def test_a_cell_is_not_different_from_itself(values: list[float]) -> None:
    found = ratio_interval(values, values)
    assert found.low <= 1 <= found.high
    assert verdict_on(found, len(values)) == "no difference shown"


def test_what_is_closer_than_a_hundredth_is_not_called_a_difference() -> None:
    exact = [1.0, 1.0001, 0.9999, 1.0002, 0.9998]
    ratios = {factor: ratio_interval([factor * one for one in exact], exact) for factor in (1.005, 0.995, 1.02, 0.98)}
    assert all(ratio.low > 1 or ratio.high < 1 for ratio in ratios.values())
    same = "no difference shown"
    assert [verdict_on(ratio, 5) for ratio in ratios.values()] == [same, same, "slower", "faster"]


def test_one_or_two_processes_allow_no_verdict_and_one_has_an_interval_without_ends() -> None:
    assert {verdict_on(ratio_interval([2.0] * count, [1.0] * count), count) for count in (1, 2)} == {"too few runs"}
    assert (median_interval([3.0]).high, ratio_interval([3.0], [2.0]).low) == (math.inf, 0)


def test_one_disturbed_process_of_five_does_not_hide_a_tenth() -> None:
    quiet, disturbed = [1.0, 1.003, 0.997, 1.001, 0.999], [1.0, 1.003, 0.997, 1.001, 1.3]
    slower = [1.1 * seconds for seconds in quiet]
    assert verdict_on(ratio_interval(slower, disturbed), 5) == "slower"


def noisy(generator: np.random.Generator, processes: int) -> list[float]:
    """Draw per-process medians: a hundredth of noise, and one process in fifty disturbed by up to a quarter."""
    disturbed = (generator.random(processes) < 0.02) * generator.uniform(0.03, 0.25, processes)
    return [float(value) for value in np.exp(generator.normal(0, 0.01, processes) + disturbed)]


@pytest.mark.parametrize(("processes", "share"), [(3, 0.92), (5, 0.95), (10, 0.95)])
def test_a_difference_that_is_not_there_is_seldom_called_and_a_tenth_seldom_missed(
    processes: int, share: float
) -> None:
    generator = np.random.default_rng(processes)
    pairs = [(noisy(generator, processes), noisy(generator, processes)) for _ in range(300)]
    alike, slower = (
        [verdict_on(ratio_interval([factor * one for one in mine], theirs), processes) for mine, theirs in pairs]
        for factor in (1, 1.1)
    )
    assert alike.count("no difference shown") >= 0.95 * len(pairs)
    assert slower.count("slower") >= share * len(pairs)


def test_the_interval_of_a_median_of_five() -> None:
    found = median_interval([1.0, 1.1, 1.2, 1.3, 1.5])
    assert (found.estimate, found.low, found.high) == pytest.approx((1.2, 0.994, 1.427), abs=0.01)


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (1.5, 6.017), (2, 4.303), (2.5, 3.575), (4, 2.776)])
def test_a_quantile_of_student_s_t(freedom: float, quantile: float) -> None:
    assert student_t(freedom) == pytest.approx(quantile, rel=0.03)


def test_what_is_no_number_does_not_become_infinite() -> None:
    found = exponential(Interval(math.nan, -1.0, 1e9))
    assert math.isnan(found.estimate)
    assert (found.low, found.high) == (math.exp(-1), math.inf)
