"""Differences between cells: how well few processes know them, and what the cells of a comparison
say together of a machine.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.measurement.differences import (
    USUAL_DEVIATION,
    USUAL_FREEDOM,
    difference_interval,
    loudness,
    ratio_interval,
    verdict_on,
)

CELLS = 8
DRAWS = 250


def drawn_cells(generator: np.random.Generator, deviation: float, count: int) -> list[list[float]]:
    """Draw the times of the processes of equal cells, which vary unequally, around a deviation."""
    deviations = deviation * np.sqrt(USUAL_FREEDOM / generator.chisquare(USUAL_FREEDOM, CELLS))
    return [np.exp(generator.normal(0, of_cell, count)).tolist() for of_cell in deviations]


@pytest.mark.parametrize("processes", [2, 3, 5])
@pytest.mark.parametrize("times_as_loud", [0.3, 1.0, 3.0, 10.0])
def test_equal_cells_are_seldom_called_different_however_loud_the_machine_is(
    processes: int, times_as_loud: float
) -> None:
    generator = np.random.default_rng(processes)
    called, judged = 0, 0
    for _ in range(DRAWS):
        cells = drawn_cells(generator, times_as_loud * USUAL_DEVIATION, processes)
        factor = loudness((times, USUAL_DEVIATION) for times in cells)
        for times, others in zip(cells[::2], cells[1::2], strict=True):
            ratio = ratio_interval(times, others, factor * USUAL_DEVIATION)
            called += verdict_on(ratio, processes) != "no difference shown"
            judged += 1
    # Three standard deviations of the share above 5 %.
    assert called / judged < 0.05 + 3 * math.sqrt(0.05 * 0.95 / judged)


def test_two_processes_tell_a_half_more_on_a_usual_machine() -> None:
    generator = np.random.default_rng(0)
    called, judged = 0, 0
    for _ in range(DRAWS):
        cells = drawn_cells(generator, USUAL_DEVIATION, 2)
        factor = loudness((times, USUAL_DEVIATION) for times in cells)
        for times, others in zip(cells[::2], cells[1::2], strict=True):
            slower = [1.5 * seconds for seconds in times]
            verdict = verdict_on(ratio_interval(slower, others, factor * USUAL_DEVIATION), 2)
            called += verdict == "slower"
            judged += 1
    assert called / judged > 0.9


TIMES = st.lists(st.floats(0.1, 10), min_size=2, max_size=8)


@given(TIMES, st.floats(0.1, 10), st.integers(1, 5))
def test_loudness_knows_neither_units_nor_the_order_of_processes(
    times: list[float], unit: float, turn: int
) -> None:
    usual = loudness([(times, USUAL_DEVIATION)])
    turned = times[turn:] + times[:turn]
    scaled = loudness([([unit * seconds for seconds in turned], USUAL_DEVIATION)])
    assert scaled == pytest.approx(usual)


def test_cells_of_one_process_say_nothing_of_the_machine() -> None:
    assert loudness([]) == loudness([([1.0], USUAL_DEVIATION)]) == 1.0
    steady = [1.0, 1.0], USUAL_DEVIATION
    assert loudness([steady]) == loudness([steady, ([3.0], USUAL_DEVIATION)])


@pytest.mark.parametrize("count", [4, 5, 9, 12])
def test_one_process_far_off_widens_an_interval_as_if_it_were_as_far_as_the_next(
    count: int,
) -> None:
    values = [1.0 + 0.01 * place for place in range(count)]
    deviations = 0.01, 0.01
    near = difference_interval([*values[:-1], values[-1] + 0.01], values, deviations)
    far = difference_interval([*values[:-1], 100.0], values, deviations)
    assert (far.low, far.high) == pytest.approx((near.low, near.high))
