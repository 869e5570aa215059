"""Differences between cells: how well few processes know them, and what the cells of a comparison
say together of a machine.
"""

import math
from collections import Counter
from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.measurement.differences import (
    FREEDOM_IN_EXPERIMENT,
    USUAL_DEVIATION,
    USUAL_FREEDOM,
    Noise,
    Sample,
    difference_interval,
    loudness,
    noise_of_experiment,
    ratio_interval,
    unpaired_interval,
    verdict_on,
)

CELLS = 8
DRAWS = 250
PAIRS = DRAWS * CELLS // 2


def drawn_cells(generator: np.random.Generator, deviation: float, count: int) -> list[list[float]]:
    """Draw the times of the processes of equal cells, which vary unequally, around a deviation."""
    deviations = deviation * np.sqrt(USUAL_FREEDOM / generator.chisquare(USUAL_FREEDOM, CELLS))
    return [np.exp(generator.normal(0, of_cell, count)).tolist() for of_cell in deviations]


def most_called(judged: int) -> float:
    """Return which share of so many equal pairs may be called different: 5 %, and three standard
    deviations more.
    """
    return 0.05 + 3 * math.sqrt(0.05 * 0.95 / judged)


def shares_of_verdicts(
    processes: int, times_as_loud: float, planted: float = 1.0
) -> Mapping[str, float]:
    """Compare pairs of cells on a loud machine, of which one takes so many times as long, and
    return how often each verdict is given.
    """
    generator = np.random.default_rng(processes)
    verdicts: Counter[str] = Counter()
    for _ in range(DRAWS):
        cells = drawn_cells(generator, times_as_loud * USUAL_DEVIATION, processes)
        factor = loudness((times, USUAL_DEVIATION) for times in cells)
        noise = Noise(factor * USUAL_DEVIATION)
        for times, others in zip(cells[::2], cells[1::2], strict=True):
            slower = [planted * seconds for seconds in times]
            verdicts[verdict_on(ratio_interval(slower, others, noise), processes)] += 1
    return {verdict: count / PAIRS for verdict, count in verdicts.items()}


@pytest.mark.parametrize("processes", [2, 3, 5])
@pytest.mark.parametrize("times_as_loud", [0.3, 1.0, 3.0, 10.0])
def test_equal_cells_are_seldom_called_different_however_loud_the_machine_is(
    processes: int, times_as_loud: float
) -> None:
    shares = shares_of_verdicts(processes, times_as_loud)
    assert 1 - shares["no difference shown"] < most_called(PAIRS)


def test_two_processes_tell_a_half_more_on_a_usual_machine() -> None:
    assert shares_of_verdicts(2, times_as_loud=1.0, planted=1.5)["slower"] > 0.9


def share_called_slower(
    processes: int, deviations: list[float], judged: int, planted: float = 1.0
) -> float:
    """Compare four cells in each of several experiments, of such deviations, and return how often
    one of the experiment `judged` is called different from its first one, or slower if a factor is
    planted.
    """
    generator = np.random.default_rng(processes)
    wanted = {"slower"} if planted > 1 else {"slower", "faster"}
    called = 0
    for _ in range(DRAWS):
        ratios_by_experiment = []
        from_first = []
        for deviation in deviations:
            times_of_cells = np.exp(generator.normal(0, deviation, (4, processes)))
            ratios = [(other / cell).tolist() for cell, other in combinations(times_of_cells, 2)]
            ratios_by_experiment.append(ratios)
            from_first += ratios[:3]
        factor = loudness((ratios, math.sqrt(2) * USUAL_DEVIATION) for ratios in from_first)
        ratios_of_judged = ratios_by_experiment[judged]
        noise = noise_of_experiment(ratios_of_judged, 4, factor * USUAL_DEVIATION)
        for ratios in ratios_of_judged[:3]:
            times = [planted * ratio for ratio in ratios]
            ratio_of_times = ratio_interval(times, [1.0] * processes, noise)
            called += verdict_on(ratio_of_times, processes) in wanted
    return called / (3 * DRAWS)


@pytest.mark.parametrize("processes", [2, 3, 5])
@pytest.mark.parametrize("usual", [0.01, USUAL_DEVIATION])
def test_equal_cells_of_an_experiment_ten_times_as_noisy_are_seldom_called_different(
    processes: int, usual: float
) -> None:
    # By the noise of all experiments together it was 23, 15 and 14 %.
    share = share_called_slower(processes, [usual] * 4 + [10 * usual], judged=4)
    assert share < most_called(3 * DRAWS)


def test_a_tenth_more_is_still_found_where_experiments_are_equally_noisy() -> None:
    assert share_called_slower(2, [0.01] * 5, judged=0, planted=1.1) > 0.97
    assert share_called_slower(2, [0.03] * 5, judged=0, planted=1.1) > 0.4


def test_an_experiment_is_judged_by_its_own_cells_only_if_they_lie_clearly_farther_apart() -> None:
    # Logarithms of ratios that lie 0.1 to both sides have the variance 0.02, and a cell half of it.
    pairs = [[math.exp(0.1), math.exp(-0.1)]] * 6
    assert noise_of_experiment(pairs, 4, 0.08) == Noise(0.08, FREEDOM_IN_EXPERIMENT)
    own = noise_of_experiment(pairs, 4, 0.05)
    assert own.deviation == pytest.approx(0.1)
    # The other two cells add 0.75 degrees of freedom each, and none where there are no others.
    assert own.freedom == 1.5
    assert noise_of_experiment(pairs[:1], 2, 0.05).freedom == 0
    assert noise_of_experiment([[2.0]], 2, 0.05) == Noise(0.05, FREEDOM_IN_EXPERIMENT)


TIMES = st.lists(st.floats(0.1, 10), min_size=2, max_size=8)


@given(TIMES, st.floats(0.1, 10), st.integers(1, 5))
def test_loudness_knows_neither_units_nor_the_order_of_processes(
    times: list[float], unit: float, turn: int
) -> None:
    turned = [unit * seconds for seconds in times[turn:] + times[:turn]]
    usual = loudness([(times, USUAL_DEVIATION)])
    assert loudness([(turned, USUAL_DEVIATION)]) == pytest.approx(usual)


def test_cells_of_one_process_say_nothing_of_the_machine() -> None:
    assert loudness([]) == loudness([([1.0], USUAL_DEVIATION)]) == 1.0
    steady = [1.0, 1.0], USUAL_DEVIATION
    assert loudness([steady]) == loudness([steady, ([3.0], USUAL_DEVIATION)])


@pytest.mark.parametrize("count", [4, 5, 9, 12])
def test_one_process_far_off_widens_an_interval_as_if_it_were_as_far_as_the_next(
    count: int,
) -> None:
    values = [1.0 + 0.01 * place for place in range(count)]
    *first_values, last_value = values

    def bounds(value: float) -> tuple[float, float]:
        """Return the bounds of the difference if the last process has another value."""
        sample = Sample([*first_values, value], 0.01)
        interval = difference_interval(sample, Sample(values, 0.01))
        return interval.low, interval.high

    assert bounds(100.0) == pytest.approx(bounds(last_value + 0.01))


@pytest.mark.parametrize("counts", [(1, 1), (2, 2), (3, 3), (2, 5)])
@pytest.mark.parametrize("times_as_loud", [0.3, 1.0, 3.0, 10.0])
def test_equal_sides_without_pairs_are_seldom_called_different(
    counts: tuple[int, int], times_as_loud: float
) -> None:
    generator = np.random.default_rng(counts)
    deviation = times_as_loud * USUAL_DEVIATION
    # Of a single value the usual deviation is all that is known: it must be the true one.
    usual = deviation if min(counts) == 1 else USUAL_DEVIATION
    called = 0
    for _ in range(1000):
        side, other = (
            Sample(generator.normal(0, deviation, count).tolist(), usual) for count in counts
        )
        interval = unpaired_interval(side, other)
        called += interval.low > 0 or interval.high < 0
    assert called / 1000 < most_called(1000)


def test_a_difference_of_means_is_told_with_its_sign_and_no_wider_than_is_needed() -> None:
    side, other = Sample([1.0, 1.02, 0.98], 0.03), Sample([1.20, 1.22, 1.18], 0.03)
    interval = unpaired_interval(side, other)
    assert interval.estimate == pytest.approx(-0.2)
    assert -0.26 < interval.low < interval.high < -0.14
    reverse = unpaired_interval(other, side)
    assert (reverse.low, reverse.high) == pytest.approx((-interval.high, -interval.low))
    among_ten = unpaired_interval(side, other, among=10)
    assert among_ten.low < interval.low < interval.high < among_ten.high


def test_what_other_work_took_of_a_side_widens_a_difference_to_that_side_in_either_unit() -> None:
    side, other = Sample([1.2, 1.3], 0.03), Sample([1.0, 1.1], 0.02)
    disturbed = side._replace(lost=0.25)
    for interval_of in (difference_interval, unpaired_interval):
        quiet, loaded = interval_of(side, other), interval_of(disturbed, other)
        assert (loaded.low, loaded.high) == pytest.approx((quiet.low - 0.25, quiet.high))
        assert interval_of(other, disturbed).high == pytest.approx(-loaded.low)
        # Of a side with a median of 1.25, a fifth is lost.
        quiet = interval_of(side.logarithms, other.logarithms)
        loaded = interval_of(disturbed.logarithms, other.logarithms)
        assert math.exp(loaded.low) == pytest.approx(0.8 * math.exp(quiet.low))
        assert loaded.high == quiet.high


def test_sides_that_never_vary_differ_by_exactly_their_means() -> None:
    interval = unpaired_interval(Sample([2.0, 2.0], 0.0), Sample([0.0], 0.0))
    assert (interval.low, interval.estimate, interval.high) == (2, 2, 2)
    slowed_down = unpaired_interval(Sample([2.0, 2.0], 0.0, 0.5), Sample([0.0], 0.0, 0.25))
    assert (slowed_down.low, slowed_down.high) == (1.5, 2.25)
