"""The answers of a comparison, in sentences."""

from dataclasses import replace

from parallel_core.comparison.analysis import analyse
from parallel_core.comparison.cells import Comparison
from tests.parallel_core.comparison.made_up import comparison, failed, measured, parallel

ONE = (1.0, 1.002, 0.998, 1.001, 0.999)


def times(factor: float) -> tuple[float, ...]:
    return tuple(factor * seconds for seconds in ONE)


def answer_to(compared: Comparison) -> str:
    return analyse(compared).answer


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
    assert answer_to(found) == (
        "Against mxnet on the async engine, torch was faster in parallel (0.50 × the time); "
        "no difference was shown in overlap."
    )
    sentences = analyse(found).experiments[0].sentences
    assert (
        sentences[0]
        == "parallel_speedup was 1 on mxnet async, 0.5 on mxnet sync, 2 on torch async and 0.5 on torch sync."
    )
    assert sentences[1].startswith(
        "For “on all together” torch async took 0.50 (0.50–0.50) times as long as mxnet async: "
    )
    assert len(sentences) == 5


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
    assert answer_to(found) == (
        "Against mxnet on the async engine, numpy was slower in parallel (2.00 × the time). "
        "Against mxnet on the async engine, torch was faster in parallel (0.50 × the time). "
        "Against numpy on the async engine, torch was slower in overlap (3.00 × the time)."
    )


def test_the_answer_when_nothing_can_be_compared() -> None:
    assert answer_to(comparison(failed(parallel("mxnet")))) == "Nothing could be measured; every cell says why."
    alone = comparison(failed(parallel("mxnet")), measured(parallel("torch"), ONE))
    assert answer_to(alone) == "Only torch was measured, so there is no other framework to compare it with."
    apart = comparison(measured(parallel("mxnet"), ONE), measured(parallel("torch", "sync"), ONE))
    assert answer_to(apart) == "No two frameworks were measured in the same experiment on the same engine."
    few = comparison(measured(parallel("mxnet"), ONE[:2]), measured(parallel("torch"), ONE[:2]))
    assert answer_to(few) == "Against mxnet on the async engine, there are too few runs to tell in parallel."
