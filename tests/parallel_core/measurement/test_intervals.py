"""Intervals and verdicts: what they always are, how rarely wrong, how seldom they miss, and what
exceeds a limit.
"""

import math
from dataclasses import astuple
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.measurement.checks import (
    about_excess,
    largest_of,
    relative_error,
    why_impossible,
)
from parallel_core.measurement.confidence_intervals import (
    Interval,
    decide,
    exponential,
    median_interval,
    student_t,
)
from parallel_core.measurement.differences import Noise, ratio_interval, verdict_on
from parallel_core.measurement.over_rounds import (
    BETWEEN_PROCESSES,
    in_percent,
    over_rounds,
    times_as_long,
)
from parallel_core.measurement.result import Case
from parallel_core.measurement.sweep import labelled

SECONDS = st.lists(st.floats(1e-6, 1e3), min_size=3, max_size=8)
PAIRS = st.lists(st.tuples(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3)), min_size=3, max_size=8)
TIMES = st.lists(st.floats(0.01, 100), min_size=2, max_size=9)


def case(*seconds: float, name: str = "any") -> Case:
    return Case(name, seconds, seconds)


@given(SECONDS)
def test_an_interval_holds_its_estimate_and_a_cell_does_not_differ_from_itself(
    values: list[float],
) -> None:
    interval = median_interval(values)
    rounding = 1 + 1e-9
    assert 0 < interval.low <= interval.estimate * rounding
    assert interval.estimate <= interval.high * rounding
    assert min(values) / rounding <= interval.estimate <= max(values) * rounding

    ratio_to_itself = ratio_interval(values, values)
    assert ratio_to_itself.low <= 1 <= ratio_to_itself.high
    assert verdict_on(ratio_to_itself, len(values)) == "no difference shown"


def test_a_median_s_interval_lies_between_values_that_hold_it_in_95_percent() -> None:
    count = 1501
    interval = median_interval([float(value) for value in range(1, count + 1)])
    below, above = math.floor(interval.low), count - math.ceil(interval.high)
    assert below == pytest.approx(above, abs=3)

    def chance_of_fewer(most: int) -> float:
        """Return how likely fewer than so many values fall on one side of the median."""
        ways = sum(math.comb(count, number) for number in range(most))
        return ways / 2**count

    assert chance_of_fewer(below) <= 0.025 <= chance_of_fewer(below + 1)


def test_thousands_of_rounds_give_an_interval_about_the_median_of_all() -> None:
    generator = np.random.default_rng(1)
    whole = generator.uniform(9, 11, 5000)
    part = whole * generator.uniform(0.45, 0.55, 5000)
    share = over_rounds(lambda part, whole: part / whole, part.tolist(), whole.tolist())
    assert share.estimate == float(np.median(part) / np.median(whole))
    assert share.low < 0.5 < share.high


@given(PAIRS)
def test_a_ratio_and_its_inverse_are_judged_alike(pairs: list[tuple[float, float]]) -> None:
    mine = [value for value, _ in pairs]
    theirs = [value for _, value in pairs]
    there, back = ratio_interval(mine, theirs), ratio_interval(theirs, mine)
    inverse = (1 / back.estimate, 1 / back.high, 1 / back.low)
    assert astuple(there) == pytest.approx(inverse)
    mirrored = {"faster": "slower", "slower": "faster"}
    assert verdict_on(there, 3) == mirrored.get(verdict_on(back, 3), "no difference shown")


@given(PAIRS, st.randoms(), st.data())
def test_neither_the_order_of_the_rounds_matters_nor_what_the_machine_did_to_all_of_a_round(
    pairs: list[tuple[float, float]], random: Random, data: st.DataObject
) -> None:
    before = ratio_interval([value for value, _ in pairs], [value for _, value in pairs])
    shuffled = random.sample(pairs, len(pairs))
    speeds = data.draw(st.lists(st.floats(0.1, 10), min_size=len(pairs), max_size=len(pairs)))
    mine = [speed * value for speed, (value, _) in zip(speeds, shuffled, strict=True)]
    theirs = [speed * value for speed, (_, value) in zip(speeds, shuffled, strict=True)]
    assert astuple(ratio_interval(mine, theirs)) == pytest.approx(astuple(before))


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [
        (1.005, "no difference shown"),
        (0.995, "no difference shown"),
        (1.02, "slower"),
        (0.98, "faster"),
    ],
)
def test_what_is_closer_than_a_hundredth_is_not_called_a_difference(
    factor: float, verdict: str
) -> None:
    precise = [1.0, 1.0001, 0.9999, 1.0002, 0.9998]
    ratio = ratio_interval([factor * seconds for seconds in precise], precise, Noise(0.001))
    assert ratio.low > 1 or ratio.high < 1
    assert verdict_on(ratio, 5) == verdict


def test_one_process_allows_no_verdict_and_has_an_interval_without_ends() -> None:
    assert verdict_on(ratio_interval([2.0], [1.0]), 1) == "too few runs"
    assert verdict_on(ratio_interval([2.0, 2.0], [1.0, 1.0]), 2) == "slower"
    assert median_interval([3.0]).high == math.inf
    assert ratio_interval([3.0], [2.0]).low == 0


DRAWS = 2000
DISTRIBUTIONS = {
    "normal": lambda generator, count: generator.normal(0, 0.03, (DRAWS, count)),
    "heavy tails": lambda generator, count: 0.02 * generator.standard_t(3, (DRAWS, count)),
}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("processes", range(2, 13))
def test_the_interval_of_one_cell_holds_the_true_median_and_misses_it_alike_on_both_sides(
    processes: int, distribution: str
) -> None:
    # The true median is 1.
    logarithms = DISTRIBUTIONS[distribution](np.random.default_rng(processes), processes)
    intervals = [median_interval(values) for values in np.exp(logarithms)]
    below = sum(interval.high < 1 for interval in intervals) / DRAWS
    above = sum(interval.low > 1 for interval in intervals) / DRAWS
    # Three standard deviations of 2,000 draws are 0.015 about 0.05, and 0.01 about 0.025.
    assert below + above <= 0.065
    assert abs(below - above) <= 0.02


def test_a_quantity_of_one_time_over_rounds_has_the_interval_of_its_median() -> None:
    # Far more noise than is assumed at least, so that the rounds decide.
    seconds = np.exp(np.random.default_rng(0).normal(0, 0.5, 5))
    rate, median = over_rounds(lambda seconds: 1 / seconds, seconds), median_interval(seconds)
    # The larger half of an interval is as long as by the ends of the median's.
    half = max(rate.estimate - rate.low, rate.high - rate.estimate)
    half_by_median = max(rate.estimate - 1 / median.high, 1 / median.low - rate.estimate)
    assert half == pytest.approx(half_by_median)


# Of six values the outermost ones enclose the median in 31 of 32 cases, and the next ones in 25 of
# 32. The interval's ends lie between the two, weighted so that it holds the median in 95 %.
SURPLUS = (31 / 32 - 0.95) / (31 / 32 - 25 / 32)
END_OF_SIX = 30 - (30 - 2) * 5 * SURPLUS / (1 + 4 * SURPLUS)


@pytest.mark.parametrize(
    ("values", "end"),
    [([-30.0, -2.0, -1.0, 1.0, 2.0, 30.0], END_OF_SIX), ([-1.0, 0.0, 2.0], 4.02)],
    ids=["between-two-values", "from-the-range"],
)
def test_the_interval_of_a_median_by_hand(values: list[float], end: float) -> None:
    interval = median_interval(values)
    assert interval.estimate == pytest.approx(0)
    assert (interval.low, interval.high) == pytest.approx((-end, end))


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (1.5, 6.017), (2, 4.303), (2.5, 3.575), (4, 2.776)]
)
def test_a_quantile_of_student_s_t(freedom: float, quantile: float) -> None:
    assert student_t(freedom) == pytest.approx(quantile, rel=0.03)


@given(
    st.floats(-5, 5),
    st.floats(0, 3),
    st.floats(0, 3),
    st.lists(st.floats(-4, 4), min_size=1, max_size=3),
)
def test_a_verdict_holds_for_every_value_of_the_interval(
    value: float, below: float, above: float, bounds: list[float]
) -> None:
    ascending = sorted(bounds)

    def band_of(number: float) -> int | None:
        return decide(Interval(number, number, number), *ascending)

    low, high = value - below, value + above
    bands = {band_of(low), band_of(value), band_of(high)}
    expected = bands.pop() if len(bands) == 1 else None
    assert decide(Interval(value, low, high), *ascending) == expected


def test_nothing_follows_from_one_round_or_from_no_number() -> None:
    of_one_round = times_as_long(case(1.0), case(9.0))
    assert of_one_round.estimate == pytest.approx(1 / 9)
    assert of_one_round.low == 0
    assert of_one_round.high == math.inf
    assert decide(of_one_round, 1.0) is None

    assert decide(Interval(math.nan, math.nan, math.nan), 1.0) is None

    power = exponential(Interval(math.nan, -1.0, 1e9))
    assert math.isnan(power.estimate)
    assert power.low == math.exp(-1)
    assert power.high == math.inf


@given(TIMES, TIMES)
def test_a_ratio_of_cases_is_that_of_their_medians(first: list[float], second: list[float]) -> None:
    ratio = times_as_long(case(*first), case(*second))
    inverse = times_as_long(case(*second), case(*first))
    assert ratio.low <= ratio.estimate <= ratio.high
    assert ratio.estimate == pytest.approx(np.median(first) / np.median(second))
    assert ratio.estimate == pytest.approx(1 / inverse.estimate)


def test_no_ratio_is_known_better_than_the_noise_of_a_quiet_machine() -> None:
    noiseless = case(1.0, 1.0, 1.0)
    of_one_process = times_as_long(noiseless, noiseless)
    assert of_one_process.low == pytest.approx(0.953, abs=0.01)
    assert of_one_process.high == pytest.approx(1.05, abs=0.01)
    of_two_processes = over_rounds(
        lambda a, b: a / b, noiseless.seconds, noiseless.seconds, noise=BETWEEN_PROCESSES
    )
    assert of_two_processes.high / of_two_processes.low == pytest.approx(1.21, abs=0.03)


def test_times_of_unlike_numbers_of_rounds_are_compared() -> None:
    ratio = times_as_long(case(2.0, 2.01, 1.99), case(1.0, 1.01, 0.99, 1.0))
    assert ratio.low < 2.0 < ratio.high < 2.3


def test_a_share_in_percent_has_its_bounds() -> None:
    assert in_percent(Interval(0.1, 0.095, 0.104)) == "10 % (9.5–10 %)"
    assert in_percent(Interval(0.1, -math.inf, math.inf)) == "10 %"


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=4), st.floats(0.01, 100))
def test_a_speedup_beyond_its_limit_is_never_silent(parts: list[float], together: float) -> None:
    # Three rounds that take the same time each.
    rounds = [[seconds] * 3 for seconds in (together, *parts)]
    speedup = over_rounds(lambda together, *parts: sum(parts) / together, *rounds)
    limit = len(parts)
    excess = about_excess("parallel_speedup", speedup, limit)
    if speedup.estimate <= 1.01 * limit:
        assert excess is None
    else:
        assert excess is not None
        is_beyond_noise = decide(speedup, limit) == 1
        assert excess.code == ("impossible-figure" if is_beyond_noise else "above-possible")


SHORT_PART, LONG_PART = case(0.3, 0.3, name="short"), case(1.0, 1.01, name="long")


@pytest.mark.parametrize(
    ("together", "is_impossible"),
    [((1.0, 1.01), False), ((0.97, 0.98), False), ((0.5, 1.2), False), ((0.5, 0.51), True)],
)
def test_faster_than_the_slowest_part_is_impossible_beyond_noise(
    together: tuple[float, ...], is_impossible: bool
) -> None:
    problem = why_impossible(case(*together), [SHORT_PART, LONG_PART])
    assert (problem is not None) == is_impossible
    assert problem == why_impossible(case(*together), [LONG_PART])


def test_the_largest_relative_error() -> None:
    expected = np.array([1.0, -4.0])
    assert relative_error(expected, expected) == 0
    assert relative_error(np.array([1.0, -3.0]), expected) == 0.25
    assert relative_error(np.array([1.0]), expected) == math.inf
    assert not relative_error(np.array([np.nan, 1]), expected) < 1
    assert largest_of(iter((1.0, 3.0, 2.0))) == 3.0
    # A NaN is not passed over.
    for errors in ((math.nan, 1.0), (1.0, 2.0, math.nan)):
        assert math.isnan(largest_of(errors))


def test_curves_stand_by_label() -> None:
    names = ("bytes", "algbw_gb star", "algbw_gb plain copy", "speedup", "speedup wide")
    series = dict.fromkeys(names, (1.0,))
    assert set(labelled(series, "algbw_gb")) == {"star", "plain copy"}
    assert set(labelled(series, "speedup")) == {"", "wide"}
    assert labelled(series, "algbw") == {}
