"""What is said of a comparison, in rows and in sentences."""

import json
from dataclasses import replace

from parallel_core.comparison.cells import Comparison, Measured
from parallel_core.comparison.summary import rows
from parallel_core.comparison.verdicts import answer, answers
from tests.parallel_core.comparison.made_up import comparison, failed, measured, parallel

ONE = (1.0, 1.002, 0.998, 1.001, 0.999)


def times(factor: float) -> tuple[float, ...]:
    return tuple(factor * seconds for seconds in ONE)


def test_rows_hold_cells_against_the_first_one() -> None:
    found = comparison(
        measured(parallel("mxnet"), ONE),
        measured(parallel("torch"), times(1.2)),
        measured(parallel("numpy"), times(0.8)),
        measured(parallel("jax"), times(1.0005)),
    )
    first, *others = rows(found, "parallel")
    assert (first.ratio, first.state, first.processes) == (None, "measured", 5)
    assert [row.ratio.verdict for row in others if row.ratio] == ["slower", "faster", "no difference shown"]
    assert others[0].ratio is not None
    assert 1.19 < others[0].ratio.interval.low < 1.2 < others[0].ratio.interval.high < 1.21


def test_a_missing_framework_is_a_row_with_its_reason_and_the_next_one_is_held_against() -> None:
    found = comparison(failed(parallel("mxnet")), measured(parallel("torch"), ONE), measured(parallel("numpy"), ONE))
    missing, first, other = rows(found, "parallel")
    assert (missing.state, missing.reason, missing.time) == ("failed", "torch is not installed", None)
    assert first.ratio is None
    assert other.ratio is not None
    assert other.ratio.against == "torch async"


def test_invalid_results_are_not_counted() -> None:
    good = measured(parallel("torch"), (*ONE, 0.001))
    wrong = replace(good.results[-1], problems=("differs from NumPy",))
    (row,) = rows(comparison(replace(good, results=(*good.results[:-1], wrong))), "parallel")
    assert row.time is not None
    assert (row.processes, row.time.estimate, row.reason) == (5, 1.0, "1 invalid: differs from NumPy")


def test_a_cell_of_which_nothing_is_valid_is_invalid() -> None:
    one = measured(parallel("torch"), ONE[:1])
    wrong = replace(one, results=(replace(one.results[0], problems=("differs from NumPy",)),))
    (row,) = rows(comparison(wrong), "parallel")
    assert (row.state, row.reason) == ("invalid", "0 of 1 runs are valid: differs from NumPy")


def test_the_answer_names_what_was_faster_slower_and_neither() -> None:
    overlap = replace(parallel("mxnet"), experiment="overlap")
    found = comparison(
        measured(parallel("mxnet"), ONE),
        measured(parallel("mxnet", "sync"), times(2)),
        measured(parallel("torch"), times(0.5)),
        measured(parallel("torch", "sync"), times(2)),
        measured(overlap, ONE),
        measured(replace(overlap, backend="torch"), times(1.0005)),
    )
    assert answer(found) == (
        "Against mxnet on the async engine, torch was faster in parallel (0.50 × the time); "
        "no difference was shown in overlap."
    )
    told = answers(found, "parallel")
    assert (
        told[0] == "parallel_speedup was 1 on mxnet async, 0.5 on mxnet sync, 2 on torch async and 0.5 on torch sync."
    )
    assert told[1].startswith("For “on all together” torch async took 0.50 (0.50–0.50) times as long as mxnet async: ")
    assert len(told) == 5


def test_frameworks_are_held_against_the_one_that_was_measured() -> None:
    overlap = replace(parallel("mxnet"), experiment="overlap")
    found = comparison(
        measured(parallel("mxnet"), ONE),
        measured(parallel("numpy"), times(2)),
        measured(parallel("torch"), times(0.5)),
        failed(overlap),
        measured(replace(overlap, backend="numpy"), ONE),
        measured(replace(overlap, backend="torch"), times(3)),
    )
    assert answer(found) == (
        "Against mxnet on the async engine, numpy was slower in parallel (2.00 × the time). "
        "Against mxnet on the async engine, torch was faster in parallel (0.50 × the time). "
        "Against numpy on the async engine, torch was slower in overlap (3.00 × the time)."
    )


def test_a_cell_of_which_half_is_invalid_is_not_judged_by_the_rest() -> None:
    good = measured(parallel("torch"), (*ONE, *ONE))
    wrong = tuple(replace(result, problems=("too fast",)) for result in good.results[:5])
    (row,) = rows(comparison(replace(good, results=(*wrong, *good.results[5:]))), "parallel")
    assert (row.state, row.reason) == ("invalid", "5 of 10 runs are valid: too fast")


def test_the_answer_when_nothing_can_be_compared() -> None:
    assert answer(comparison(failed(parallel("mxnet")))) == "Nothing could be measured; every cell says why."
    alone = comparison(failed(parallel("mxnet")), measured(parallel("torch"), ONE))
    assert answer(alone) == "Only torch was measured, so there is no other framework to compare it with."
    apart = comparison(measured(parallel("mxnet"), ONE), measured(parallel("torch", "sync"), ONE))
    assert answer(apart) == "No two frameworks were measured in the same experiment on the same engine."
    few = comparison(measured(parallel("mxnet"), ONE[:2]), measured(parallel("torch"), ONE[:2]))
    assert answer(few) == "Against mxnet on the async engine, there are too few runs to tell in parallel."


def test_a_comparison_survives_its_file() -> None:
    found = comparison(measured(parallel("mxnet"), ONE), failed(parallel("torch")), Measured(parallel("numpy")))
    assert Comparison.from_json(json.loads(json.dumps(found.as_json()))) == found
