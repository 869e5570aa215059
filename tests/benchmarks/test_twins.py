"""How often twins are called different: what is counted, with synthetic times."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.trust.twins import beside_others, false_differences, twins_of
from parallel_core.compare.results import Cell
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.result import Result
from tests.parallel_core.compare.made_up import result

NAME = "async"
# How far rounds are from their usual time: all twins of a round alike.
DRIFT = (1.0, 1.03, 0.98)


def measured(times: Sequence[float]) -> list[list[list[Result]]]:
    """Return for each round and process the result, which takes as long as the process does."""
    cell = Cell(NAME, "twin", "async")
    case = EXPERIMENTS[NAME].case

    def measured_in(number: int, process: int) -> list[Result]:
        # No two times are the same.
        off = 1 + 0.001 * ((number + process) % 3)
        return [result(cell, {case: times[process] * DRIFT[number] * off})]

    processes = range(len(times))
    return [[measured_in(number, process) for process in processes] for number in range(len(DRIFT))]


@pytest.mark.parametrize(("last", "pairs"), [(1.0, 0), (2.0, 2)])
def test_twins_are_the_same_and_what_takes_twice_as_long_differs_from_all(
    last: float, pairs: int
) -> None:
    twins = twins_of(measured((1.0, 1.0, last)), 0)
    of_two, of_three = false_differences(twins, [twins])
    assert of_two.name == "async, 2 processes: of 9 pairs called different"
    assert of_two.interval.estimate == pytest.approx(100 * 3 * pairs / 9)
    assert of_three.name == "async, 3 processes: of 3 pairs called different"
    assert of_three.interval.estimate == pytest.approx(100 * pairs / 3)


def test_a_round_with_an_invalid_result_is_left_out_of_all_twins() -> None:
    rounds = measured((1.0, 1.0))
    (valid,) = rounds[1][0]
    rounds[1][0] = [replace(valid, problems=("it is wrong",))]
    twins = twins_of(rounds, 0)
    assert [len(twin.results) for twin in twins] == [2, 2]


def test_what_takes_longer_beside_others_is_held_against_one_that_lives_alone() -> None:
    *twins, alone = twins_of(measured((1.2, 1.2, 1.2, 1.0)), 0)
    ratio = beside_others(twins, alone).interval
    assert ratio.low < ratio.estimate < ratio.high
    assert ratio.estimate == pytest.approx(1.2, rel=0.01)
