"""How often twins are called different: what is counted, with synthetic times."""

from benchmarks.experiments.twins import false_differences, table, twins_of
from parallel_core.comparison.cells import Cell
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.result import Result
from tests.parallel_core.comparison.made_up import result

NAMES = ("async", "parallel")
# How far rounds are from their usual time: all twins of a round alike.
DRIFT = (1.0, 1.03, 0.98)


def measured(times: tuple[float, ...]) -> list[list[list[Result]]]:
    """Return for each round and process the results of both experiments, of which each takes as
    long as the process does.
    """
    rounds = []
    for number, drift in enumerate(DRIFT):
        processes = []
        for place, seconds in enumerate(times):
            # No two times are the same.
            off = 1 + 0.001 * ((number + place) % 3)
            processes.append(
                [
                    result(
                        Cell(name, "twin", "async"),
                        {EXPERIMENTS[name].case: seconds * drift * off},
                    )
                    for name in NAMES
                ]
            )
        rounds.append(processes)
    return rounds


def test_twins_are_the_same_and_what_takes_twice_as_long_is_called_different_from_all() -> None:
    for times, different in (((1.0, 1.0, 1.0), 0), ((1.0, 1.0, 2.0), 2)):
        rounds = measured(times)
        counts = list(false_differences([twins_of(rounds, place) for place in range(2)]))
        assert [(one["experiment"], one["processes"]) for one in counts] == [
            *((name, 2) for name in NAMES),
            *((name, 3) for name in NAMES),
        ]
        for one in counts:
            choices = 3 if one["processes"] == 2 else 1
            assert (one["pairs"], one["different"]) == (3 * choices, different * choices)


def test_a_row_shows_what_was_not_measured_as_missing() -> None:
    counts = [{"experiment": "async", "processes": 2, "pairs": 6, "different": 1}]
    assert table({"mxnet": counts}).splitlines()[-1] == "| mxnet | async | 1 of 6 | – | – |"
