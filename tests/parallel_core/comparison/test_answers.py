"""What a comparison answers: bands with their cells, then differences; no more than intervals show."""

from dataclasses import replace
from typing import Any

import pytest

from parallel_core.comparison.analysis import NO_PAIR, NOTHING_MEASURED, ONE_FRAMEWORK, analyse
from parallel_core.comparison.cells import Cell, CellResults, Comparison
from parallel_core.comparison.difference import compare_with_old
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.metrics import WITHOUT_QUEUE
from tests.parallel_core.comparison.made_up import ONE, comparison, failed, measured, parallel, times, with_figures
from tests.parallel_core.comparison.test_account import scaled

SAYS = {band.code: band.says for band in EXPERIMENTS["parallel"].metrics[0].bands}


def conclusions(*cells: CellResults) -> tuple[str, ...]:
    return analyse(comparison(*cells)).conclusions


def with_metric(one: CellResults, metric: float, noise: float = 0.01) -> CellResults:
    """Return a cell's results with its experiment's metric, off by some noise."""
    return with_figures(one, (metric * (1 + noise * off) for off in (0, 1, -1, 0.5, -0.5)))


def sides(speedups: dict[str, float], **kept: Any) -> list[CellResults]:
    return [with_metric(measured(parallel(*side.split()), ONE), value, **kept) for side, value in speedups.items()]


def test_each_band_has_one_sentence_with_its_cells() -> None:
    cells = sides({"mxnet async": 1.96, "mxnet sync": 1.0, "torch async": 1.97, "torch sync": 1.01})
    answer = analyse(comparison(*cells)).experiments[0].answer
    assert answer == (
        f"{SAYS['parallel']}: mxnet async (1.96 of 2), torch async (1.97 of 2). "
        f"{SAYS['serial']}: mxnet sync (1.00 of 2), torch sync (1.01 of 2)."
    ).replace("1.00", "1")
    assert conclusions(*cells)[0] == answer


def test_an_interval_that_touches_two_bands_and_too_few_processes_are_inconclusive() -> None:
    (wide,) = sides({"torch async": 1.7}, noise=0.3)
    answer = analyse(comparison(wide)).experiments[0].answer
    assert answer.startswith("Inconclusive: torch async (1.7")
    assert "–" in answer
    few = with_metric(measured(parallel("torch"), ONE[:2]), 1.96)
    # The bounds of two processes would reach farther than is possible.
    assert analyse(comparison(few)).experiments[0].answer.startswith("Inconclusive: torch async (1.9")
    assert "–" not in analyse(comparison(few)).experiments[0].answer


@pytest.mark.parametrize("estimate", [0.69, 0.97])
def test_an_engine_without_a_queue_is_never_said_to_have_hidden_copies(estimate: float) -> None:
    cells = [
        with_metric(measured(Cell("overlap", "torch", engine), ONE), estimate, noise=0.001)
        for engine in ("async", "sync")
    ]
    asynchronous, synchronous = analyse(comparison(*cells)).experiments[0].answer.split(". ")
    assert synchronous.startswith(f"{WITHOUT_QUEUE.says}: torch sync (")
    assert WITHOUT_QUEUE.says not in asynchronous


def test_a_figure_without_bands_is_only_named_and_no_conclusion() -> None:
    cell = with_metric(measured(Cell("data-parallel", "torch", "async"), ONE), 5000.0)
    analysed = analyse(comparison(cell))
    assert analysed.experiments[0].answer == "images_per_second: torch async (5,000)."
    assert not any("images_per_second" in one for one in analysed.conclusions)


def test_frameworks_are_compared_with_the_first_that_was_measured() -> None:
    overlap = replace(parallel("mxnet"), experiment="overlap")
    found = conclusions(
        measured(parallel("mxnet"), ONE),
        measured(parallel("mxnet", "sync"), times(2)),
        measured(parallel("torch"), times(0.5)),
        measured(parallel("torch", "sync"), times(2)),
        failed(overlap),
        measured(replace(overlap, backend="numpy"), ONE),
        measured(replace(overlap, backend="torch"), times(3)),
    )
    first, second = (one for one in found if " against " in one)
    # Those on the first engine count.
    assert first.startswith("parallel: torch async against mxnet async: 500 ms (497–503) faster")
    assert second.startswith("overlap: torch async against numpy async: 2.00 s (")


def test_no_difference_and_too_few_runs_are_verdicts_and_the_reason_stands_behind_a_difference() -> None:
    same = conclusions(measured(parallel("mxnet"), ONE), measured(parallel("torch"), times(1.0005)))[-1]
    assert same.endswith(": no significant difference.")
    few = conclusions(*(measured(parallel(name), ONE[:2]) for name in ("mxnet", "torch")))[-1]
    assert few.endswith(": too few runs to decide.")
    cells = (scaled(parallel("mxnet"), 2.0, 1.9), scaled(parallel("torch"), 1.0, 0.7))
    assert conclusions(*cells)[-1].endswith(" faster; operations 1.20 s.")


@pytest.mark.parametrize("names", [("torch", "mxnet", "numpy"), ("numpy", "torch", "mxnet")])
def test_a_framework_with_another_engine_than_all_others_is_compared_with_them(names: tuple[str, ...]) -> None:
    seconds = {"torch": 1.0, "mxnet": 2.0, "numpy": 4.0}
    cells = [parallel(name, "sync" if name == "numpy" else "async") for name in names]
    measured_cells = (measured(cell, times(seconds[cell.backend])) for cell in cells)
    (experiment,) = analyse(comparison(*measured_cells)).experiments
    found = {(one.cell.backend, one.against.backend): one.seconds.estimate for one in experiment.between_frameworks}
    across = {"torch": ("numpy", "torch"), "numpy": ("torch", "numpy")}
    assert found == {
        ("mxnet", "torch"): pytest.approx(1.0),
        across[names[0]]: pytest.approx(3.0 if names[0] == "torch" else -3.0),
    }


def test_where_nothing_can_be_compared_that_is_said() -> None:
    assert conclusions(failed(parallel("mxnet"))) == (NOTHING_MEASURED,)
    assert conclusions(failed(parallel("mxnet")), measured(parallel("torch"), ONE))[-1] == ONE_FRAMEWORK
    apart = (measured(parallel("mxnet"), ONE), measured(parallel("torch", "sync"), ONE))
    others = (failed(parallel("mxnet", "sync")), failed(parallel("torch")))
    assert conclusions(apart[0], *others, apart[1])[-1] == NO_PAIR


def compared(speedup: float, noise: float = 0.001) -> Comparison:
    return comparison(*sides({"torch async": speedup}, noise=noise))


def test_a_difference_names_the_cells_whose_figure_means_something_else() -> None:
    (change,) = compare_with_old(compared(1.97), compared(1.3)).as_json()["bands"]
    assert change == {
        "experiment": "parallel",
        "backend": "torch",
        "engine": "async",
        "metric": "parallel_speedup",
        "old": "parallel",
        "new": "partly",
    }
    assert compare_with_old(compared(1.97), compared(1.95)).meanings == ()
    (unclear,) = compare_with_old(compared(1.97), compared(1.6, noise=0.4)).as_json()["bands"]
    assert (unclear["old"], unclear["new"]) == ("parallel", None)
