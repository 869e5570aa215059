"""The answers of a comparison, in sentences."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.comparison.analysis import analyse
from parallel_core.comparison.answers import READINGS
from parallel_core.comparison.cells import Cell, CellResults, Comparison
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import Interval
from tests.parallel_core.comparison.made_up import comparison, failed, measured, parallel
from tests.parallel_core.comparison.test_factors import scaled, with_bare

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
    assert answer_to(found).endswith(
        " Against mxnet on the async engine, torch was faster in parallel (0.50 × the time); "
        "no difference was shown in overlap."
    )
    sentences = analyse(found).experiments[0].sentences
    assert sentences[0] == (
        "mxnet async and both sync engines let two devices take turns (1.00 ×, 0.50 × and 0.50 ×); "
        "torch async kept two devices busy (2.00 ×)."
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
    assert answer_to(found).endswith(
        " Against mxnet on the async engine, numpy was slower in parallel (2.00 × the time). "
        "Against mxnet on the async engine, torch was faster in parallel (0.50 × the time). "
        "Against numpy on the async engine, torch was slower in overlap (3.00 × the time)."
    )


def test_the_first_engine_counts_also_where_the_first_experiment_could_not_be_compared_on_it() -> None:
    sides = [(name, engine) for name in ("mxnet", "torch") for engine in ("async", "sync")]
    first = [measured(parallel(*side), ONE) for side in sides]
    first[2] = failed(first[2].cell)
    second = [
        measured(replace(parallel(*side), experiment="overlap"), times(1 + (side[0] == "torch"))) for side in sides
    ]
    assert answer_to(comparison(*first, *second)).endswith(
        " Against mxnet on the async engine, torch was slower in overlap (2.00 × the time)."
    )


def test_the_answer_when_nothing_can_be_compared() -> None:
    assert answer_to(comparison(failed(parallel("mxnet")))) == "Nothing could be measured; every cell says why."
    alone = comparison(failed(parallel("mxnet")), measured(parallel("torch"), ONE))
    assert answer_to(alone).endswith("Only torch was measured, so there is no other framework to compare it with.")
    apart = comparison(
        measured(parallel("mxnet"), ONE),
        failed(parallel("mxnet", "sync")),
        failed(parallel("torch")),
        measured(parallel("torch", "sync"), ONE),
    )
    assert answer_to(apart).endswith("No two frameworks were measured in the same experiment on the same engine.")
    few = [measured(parallel(name), ONE[:2]) for name in ("mxnet", "torch")]
    for cells in (few, [with_bare(one.cell, [(2.0, 1.0)] * 2) for one in few]):
        answer = answer_to(comparison(*cells))
        assert answer.endswith(
            " Against mxnet on the async engine, there are too few runs to tell for torch in parallel."
        )


@pytest.mark.parametrize("names", [("torch", "mxnet", "numpy"), ("numpy", "torch", "mxnet")])
def test_a_framework_with_another_engine_than_all_others_is_held_against_them(names: tuple[str, ...]) -> None:
    seconds = {"torch": 1.0, "mxnet": 2.0, "numpy": 4.0}
    cells = [parallel(name, "sync" if name == "numpy" else "async") for name in names]
    answer = answer_to(comparison(*(measured(cell, times(seconds[cell.backend])) for cell in cells)))
    assert " Against torch on the async engine, mxnet was slower in parallel (2.00 × the time)." in answer
    across = {
        "torch": " Against torch async, numpy sync was slower in parallel (4.00 × the time).",
        "numpy": " Against numpy sync, torch async was faster in parallel (0.25 × the time).",
    }
    assert across[names[0]] in answer
    assert answer.count("Against") == 2


def with_metric(one: CellResults, metric: float, noise: float = 0.01, **backend: Any) -> CellResults:
    """Return a cell's results with its experiment's metric, off by some noise, and more said of its backend."""
    name = EXPERIMENTS[one.cell.experiment].metric
    drift = (1, 1 + noise, 1 - noise, 1 + noise / 2, 1 - noise / 2)
    results = (
        replace(result, metrics={name: metric * off}, backend={**result.backend, **backend})
        for result, off in zip(one.results, drift, strict=False)
    )
    return replace(one, results=tuple(results))


def multiplies(library: str, instruction_set: str, rate: float) -> Mapping[str, Any]:
    kernels = {"library": library, "version": "1.0", "instruction_set": instruction_set, "threads": 1}
    return {"kernels": [kernels], "product": {"size": 400, "gflop_per_s": rate}}


def test_the_answer_is_about_scheduling_first_and_then_about_kernels() -> None:
    openblas, mkl = multiplies("OpenBLAS", "Haswell", 48.7), multiplies("oneMKL", "AVX-512", 101)
    sides: Mapping[tuple[str, str], tuple[float, float, float, Mapping[str, Any]]] = {
        ("mxnet", "async"): (2.0, 1.9, 1.96, openblas),
        ("mxnet", "sync"): (4.0, 1.9, 1.0, openblas),
        ("torch", "async"): (1.0, 0.95, 1.97, mkl),
        ("torch", "sync"): (2.0, 0.95, 1.0, mkl),
    }
    cells = [
        with_metric(scaled(parallel(*side), whole, bare), speedup, **backend)
        for side, (whole, bare, speedup, backend) in sides.items()
    ]
    assert answer_to(comparison(*cells)) == (
        "Both async engines kept two devices busy (1.96 × and 1.97 ×); both sync engines let two devices take turns "
        "(1.00 × and 1.00 ×). "
        "Against mxnet on the async engine, no difference in scheduling was shown for torch in parallel. "
        "It computes faster in parallel (0.50 × the time). "
        "Products: torch by oneMKL 1.0, AVX-512 kernels: 101 GFLOP/s on one core; "
        "mxnet by OpenBLAS 1.0, Haswell kernels: 48.7 GFLOP/s on one core."
    )
    ratio = analyse(comparison(*cells)).experiments[0].sentences[1]
    assert ratio.startswith("For “on all together” torch async took 0.50 (")
    assert " by kernels (computes faster) × 1.00 (" in ratio
    assert ratio.endswith(") by scheduling (no difference shown).")


def test_of_three_frameworks_each_sentence_names_its_own_and_libraries_are_named_once() -> None:
    openblas, mkl = multiplies("OpenBLAS", "Haswell", 48.7), multiplies("oneMKL", "AVX-512", 101)
    sides: Mapping[str, tuple[float, float, Mapping[str, Any]]] = {
        "mxnet": (2.0, 1.9, openblas),
        "torch": (1.0, 0.95, mkl),
        "third": (4.0, 0.95, multiplies("Eigen", "AVX2", 90)),
    }
    cells = [
        with_metric(scaled(parallel(name), whole, bare), 1.96, **backend)
        for name, (whole, bare, backend) in sides.items()
    ]
    assert answer_to(comparison(*cells)) == (
        "All three async engines kept two devices busy (1.96 ×, 1.96 × and 1.96 ×). "
        "Against mxnet on the async engine, no difference in scheduling was shown for torch in parallel. "
        "It computes faster in parallel (0.50 × the time). "
        "Against mxnet on the async engine, third schedules worse in parallel (× 4.00). "
        "It computes faster in parallel (0.50 × the time). "
        "Products: torch by oneMKL 1.0, AVX-512 kernels: 101 GFLOP/s on one core; "
        "third by Eigen 1.0, AVX2 kernels: 90 GFLOP/s on one core; "
        "mxnet by OpenBLAS 1.0, Haswell kernels: 48.7 GFLOP/s on one core."
    )
    unknown = [cells[0], cells[1], scaled(parallel("third"), 4.0, 0.95)]
    products = answer_to(comparison(*unknown)).partition("Products: ")[2]
    assert "mxnet by OpenBLAS" in products
    assert "third" not in products


def test_who_schedules_worse_is_said_though_it_takes_less_time() -> None:
    cells = (scaled(parallel("mxnet"), 2.0, 1.9), scaled(parallel("torch"), 1.0, 0.7))
    answer = answer_to(comparison(*cells))
    assert "torch schedules worse in parallel (× 1.36). It computes faster in parallel (0.37 × the time)." in answer
    assert "Products" not in answer


def test_an_interval_that_allows_several_answers_is_shown_in_place_of_one() -> None:
    cells = [with_metric(measured(parallel(name), ONE), 1.7, noise=0.3) for name in ("mxnet", "torch")]
    (experiment,) = analyse(comparison(*cells)).experiments
    assert experiment.answer.startswith("parallel_speedup was 1.70 (")
    few = [with_metric(measured(parallel(name), ONE[:1]), 1.96) for name in ("mxnet", "torch")]
    assert analyse(comparison(*few)).experiments[0].answer == (
        "parallel_speedup was 1.96 on mxnet async and 1.96 on torch async."
    )
    # The bounds of two processes would reach farther than is possible.
    two = with_metric(measured(parallel("torch"), ONE[:2]), 1.6, noise=0.2)
    assert analyse(comparison(two)).experiments[0].answer == "parallel_speedup was 1.75 on torch async."


@pytest.mark.parametrize(("experiment", "estimate"), [("overlap", 0.69), ("overlap", 0.97), ("parallel", 1.7)])
def test_an_engine_without_a_queue_is_never_said_to_have_done_two_things_at_once(
    experiment: str, estimate: float
) -> None:
    cells = [
        with_metric(measured(Cell(experiment, "torch", engine), ONE), estimate, noise=0.001)
        for engine in ("async", "sync")
    ]
    asynchronous, synchronous = analyse(comparison(*cells)).experiments[0].answer.split("; ")
    assert synchronous.startswith("torch sync had no queue, so the figure tells of parts that were slower alone (")
    assert "no queue" not in asynchronous


def test_a_metric_that_is_not_of_scheduling_alone_is_only_named() -> None:
    cell = Cell("data-parallel", "torch", "async")
    analysed = analyse(comparison(with_metric(measured(cell, ONE), 5000.0)))
    assert analysed.experiments[0].answer == "images_per_second was 5,000 on torch async."
    assert "images_per_second" not in analysed.answer


@given(
    st.sampled_from(sorted(READINGS)), st.lists(st.floats(-1, 6), min_size=3, max_size=3).map(sorted), st.integers(2, 4)
)
def test_what_is_said_holds_for_the_whole_interval(experiment: str, bounds: list[float], devices: int) -> None:
    reading, (low, estimate, high) = READINGS[experiment], bounds
    said = reading.of(Interval(estimate, low, high), devices, "async")
    if said:
        assert {said} == {reading.of(Interval(value, value, value), devices, "async") for value in bounds}
    else:
        ends = {reading.of(Interval(value, value, value), devices, "async") for value in (low, high)}
        assert len(ends) == 2 or ends == {""}
    assert reading.of(Interval(estimate, -math.inf, math.inf), devices, "async") == ""


@pytest.mark.parametrize(
    ("experiment", "metric", "said"),
    [
        ("async", 0.001, "torch async gave control back long before the work was done (after 0.1% of its time)."),
        ("async", 1.0, "torch async gave control back when the work was done (after 100% of its time)."),
        ("parallel", 1.5, "torch async kept two devices busy for a part of the time (1.50 ×)."),
        ("overlap", 0.93, "torch async copied results while the next ones were computed (93% of what is possible)."),
        ("overlap", 0.05, "torch async copied and computed by turns (5% of what is possible)."),
    ],
)
def test_what_a_metric_says_of_an_engine(experiment: str, metric: float, said: str) -> None:
    cell = with_metric(measured(Cell(experiment, "torch", "async"), ONE), metric, noise=0.001)
    assert analyse(comparison(cell)).experiments[0].answer == said
