"""What is concluded of each cell, drawn once for all that show it, and what a comparison answers.

Bands come first, with their cells, then differences. No more is said than intervals show; unstable
times are named.
"""

import math
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyperf
import pytest
from pyperf._cli import format_checks

from parallel_core.compare.analysis import (
    NO_PAIR,
    NOTHING_MEASURED,
    ONE_FRAMEWORK,
    CellAnalysis,
    analyse,
)
from parallel_core.compare.assessed import assess, instabilities
from parallel_core.compare.cell_changes import compare_with_old
from parallel_core.compare.results import Cell, CellResults, Comparison
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.metrics import WITHOUT_QUEUE
from parallel_core.measurement import confidence_intervals, differences
from parallel_core.measurement.result import Answer, Note
from parallel_core.report import write_report
from parallel_core.terminal.comparison import show_comparison
from parallel_core.terminal.console import terminal_console
from tests.parallel_core.compare.made_up import (
    ONE,
    TOGETHER,
    changed,
    comparison,
    every_chart,
    failed,
    measured,
    parallel,
    result,
    times,
    with_figures,
    with_parts,
)
from tests.parallel_core.compare.test_time_differences import scaled

NO_BARRIER, FEWER_BARRIERS = (
    EXPERIMENTS["barriers"].case.replace("64", count) for count in ("0", "32")
)
SAYS = {band.code: band.says for band in EXPERIMENTS["parallel"].metrics[0].bands}


def cells_of(*cells: CellResults) -> tuple[CellAnalysis, ...]:
    (experiment,) = analyse(comparison(*cells)).experiments
    return experiment.cells


def answer(*cells: CellResults) -> str:
    return analyse(comparison(*cells)).experiments[0].answer


def conclusions(*cells: CellResults) -> tuple[str, ...]:
    return analyse(comparison(*cells)).conclusions


def test_cells_are_compared_with_the_first_one_and_a_missing_framework_has_its_reason() -> None:
    factors = {"torch": 1.0, "numpy": 1.2, "jax": 0.8, "later": 1.0005}
    several = (measured(parallel(name), times(factor)) for name, factor in factors.items())
    missing, first, *others = cells_of(failed(parallel("mxnet")), *several)
    assert (missing.state, missing.reason) == ("failed", "torch is not installed")
    assert missing.time is None
    assert (first.state, first.difference) == ("measured", None)
    differences = [cell.difference for cell in others if cell.difference]
    verdicts = [difference.verdict for difference in differences]
    assert verdicts == ["slower", "faster", "no difference shown"]
    assert {difference.against for difference in differences} == {first.cell}
    assert 1.19 < differences[0].ratio.low < 1.2 < differences[0].ratio.high < 1.21


@pytest.mark.parametrize(
    ("wrong", "valid", "state", "reason"),
    [
        (1, 5, "measured", "1 invalid: too fast"),
        (1, 0, "invalid", "0 of 1 runs are valid: too fast"),
        # One of which half is invalid is not judged by the rest.
        (5, 5, "invalid", "5 of 10 runs are valid: too fast"),
    ],
)
def test_too_many_invalid_results_make_a_cell_invalid(
    wrong: int, valid: int, state: str, reason: str
) -> None:
    torch, problem = parallel("torch"), Note(None, "too fast")
    invalid = changed(measured(torch, (0.001,) * wrong), problems=(problem,))
    results = invalid.results + measured(torch, ONE[:valid]).results
    (cell,) = cells_of(CellResults(torch, results))
    assert (cell.state, cell.reason, len(cell.results.valid)) == (state, reason, valid)
    assert (cell.time and cell.time.estimate) == (1.0 if state == "measured" else None)


@pytest.mark.parametrize(
    ("experiment", "names", "case"),
    [
        (
            "small-ops",
            [("all devices, size 2", "one device, size 8", "all devices, size 8")] * 2,
            "all devices, size 8",
        ),
        ("small-ops", [("one device, size 8", "one device, size 64")] * 2, "one device, size 64"),
        ("barriers", [(NO_BARRIER, FEWER_BARRIERS, "other")] * 2, FEWER_BARRIERS),
        ("allreduce", [("native, 64 KiB", "native, 1 MiB", "star, 1 MiB")] * 2, "native, 1 MiB"),
        ("allreduce", [("star, 1 MiB", "sharded, 1 MiB")] * 2, "sharded, 1 MiB"),
        (
            "independent-ops",
            [("independent, 2 workers", "chain, 2 workers")] * 2,
            "independent, 2 workers",
        ),
        # The declared one, wherever it stands.
        (
            "small-ops",
            [("all devices, size 128", "all devices, size 256")] * 2,
            "all devices, size 128",
        ),
        ("parallel", [(TOGETHER,), (TOGETHER,), ("other",)], TOGETHER),
        ("parallel", [("other",), (TOGETHER,)], TOGETHER),
        ("parallel", [("one",), ("other",)], "none that both have"),
    ],
)
def test_cells_that_have_it_are_compared_by_the_usual_case_or_the_largest_of_its_kind(
    experiment: str, names: list[tuple[str, ...]], case: str
) -> None:
    cells = []
    for backend, cases in zip(("mxnet", "torch", "jax"), names, strict=False):
        cell = Cell(experiment, backend, "async")
        cells.append(CellResults(cell, (result(cell, dict.fromkeys(cases, 1.0)),) * 3))
    analysed = analyse(comparison(*cells))
    (compared,) = analysed.experiments
    states = ["measured" if case in cases else "failed" for cases in names]
    assert [cell.state for cell in compared.cells] == states
    common_cases = [pair.case for pair in compared.between_frameworks]
    assert common_cases == [case] * (states.count("measured") - 1)
    show_comparison(analysed, terminal_console(file=StringIO()))


@pytest.mark.parametrize(
    "values",
    [
        (0.1, 0.1001, 0.0999, 0.1002),
        (0.1, 0.13, 0.1, 0.13),
        (*(0.1,) * 50, 0.151),
        (*(0.1,) * 50, 0.049),
        (0.0009, 0.0009, 0.0009001),
        (*(0.1,) * 5, 0.2),
    ],
    ids=["stable", "noisy", "a long one", "a short one", "all short", "few and a long one"],
)
def test_the_warnings_are_those_of_pyperf(values: tuple[float, ...]) -> None:
    run = pyperf.Run(values, metadata={"name": "a case"}, collect_metadata=False)
    found = " ".join(instabilities(values, values))
    told = " ".join(format_checks(pyperf.Benchmark([run])))
    for sign in ("standard deviation", "the minimum", "the maximum", "the shortest"):
        assert (sign in found) == (sign in told), told


def test_short_times_that_were_timed_together_are_long_enough() -> None:
    short = (1e-5, 1.01e-5)
    assert [*instabilities(short, short)] == ["the shortest time is only 10.0 μs"]
    assert not [*instabilities(short, [200 * seconds for seconds in short])]


@pytest.mark.parametrize(
    ("seconds", "state"), [(1.02, "measured"), (0.97, "measured"), (0.8, "invalid")]
)
def test_a_whole_that_is_faster_than_its_slowest_part_is_invalid(
    seconds: float, state: str
) -> None:
    torch = parallel("torch")
    runs = tuple(
        result(torch, {"alone": drift, "other": drift / 2, TOGETHER: seconds * drift})
        for drift in ONE
    )
    assert assess(CellResults(torch, runs)).state == state


def test_nothing_is_drawn_again_when_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = every_chart()
    doubtful = with_parts(compared.cells[0], {"bare": 1.3})
    analysed = analyse(replace(compared, cells=(doubtful, *compared.cells[1:])))
    # All intervals come from these two.
    forbidden = Mock(side_effect=AssertionError("drawn after the analysis"))
    monkeypatch.setattr(confidence_intervals, "_interval_of_median", forbidden)
    monkeypatch.setattr(differences, "difference_interval", forbidden)
    with pytest.raises(AssertionError, match="drawn after the analysis"):
        analyse(every_chart())
    show_comparison(analysed, terminal_console(file=StringIO()))
    assert "table-times-" in write_report(analysed, tmp_path).read_text()


@pytest.mark.parametrize("points", [(math.nan, 2.0, 3.0, 4.0), (2.0, math.nan, 3.0, 4.0)])
def test_a_point_of_a_curve_is_of_the_processes_that_have_it_as_a_number(
    points: tuple[float, ...],
) -> None:
    cell = Cell("allreduce", "torch", "async")
    results = []
    for value in points:
        series = {"bytes": (4096.0, 8192.0), "algbw_gb_per_s star": (value, math.nan)}
        results.append(result(cell, {"star": 1.0}, series=series))
    (analysed,) = cells_of(CellResults(cell, tuple(results)))
    known, unknown = analysed.curves["star"]
    assert known.estimate == pytest.approx(3)
    # No infinity, which a reader would take for a value.
    assert math.isnan(unknown.estimate)


def test_side_by_side_each_side_answers_and_once_it_is_said_what_would_change_it() -> None:
    def answered(name: str, change: str) -> CellResults:
        answer = Answer((f"It ran on {name}.",), change)
        return changed(measured(parallel(name), ONE), answer=answer)

    mxnet = answered("mxnet", "More cores.")
    assert analyse(comparison(changed(mxnet, answer=None))).side_by_side is None
    alike = analyse(comparison(mxnet, answered("torch", "More cores.")))
    assert alike.side_by_side == Answer(
        (*alike.conclusions, "MXNet: It ran on mxnet.", "PyTorch: It ran on torch."),
        "More cores.",
    )
    unlike = analyse(comparison(mxnet, answered("torch", "More rounds."))).side_by_side
    assert unlike is not None
    assert unlike.would_change == "MXNet: More cores. PyTorch: More rounds."


def with_metric(cell: CellResults, metric: float, noise: float = 0.01) -> CellResults:
    """Return a cell's results with its experiment's metric, off by some noise."""
    return with_figures(cell, (metric * (1 + noise * off) for off in (0, 1, -1, 0.5, -0.5)))


def sides(speedups: dict[str, float], **kept: Any) -> list[CellResults]:
    return [
        with_metric(measured(parallel(*side.split()), ONE), value, **kept)
        for side, value in speedups.items()
    ]


def test_each_band_has_one_sentence_with_its_cells() -> None:
    cells = sides({"mxnet async": 1.96, "mxnet sync": 1.0, "torch async": 1.97, "torch sync": 1.01})
    sentences = (
        f"{SAYS['parallel']}: MXNet (1.96 of 2), PyTorch (1.97 of 2). "
        f"{SAYS['serial']}: MXNet without queues (1 of 2), PyTorch without queues (1.01 of 2)."
    )
    assert answer(*cells) == conclusions(*cells)[0] == sentences


def test_two_neighbouring_bands_are_both_said_and_no_effect_or_few_processes_are_inconclusive() -> (
    None
):
    both = answer(*sides({"torch async": 1.7}, noise=0.3))
    assert both.startswith(f"{SAYS['partly']}, or ")
    assert SAYS["parallel"].lower() in both.lower()
    assert "–" in both
    wide = answer(*sides({"torch async": 1.1}, noise=0.3))
    assert wide.startswith("Inconclusive: PyTorch (1.1")
    assert "–" in wide
    # The bounds of two processes would reach farther than is possible.
    few = answer(with_metric(measured(parallel("torch"), ONE[:2]), 1.96))
    assert few.startswith("Inconclusive: PyTorch (1.9")
    assert "–" not in few


@pytest.mark.parametrize("estimate", [0.69, 0.97])
def test_an_engine_without_a_queue_is_never_said_to_have_hidden_copies(estimate: float) -> None:
    engines = (Cell("overlap", "torch", engine) for engine in ("async", "sync"))
    cells = (with_metric(measured(cell, ONE), estimate, noise=0.001) for cell in engines)
    asynchronous, synchronous = answer(*cells).split(". ")
    assert synchronous.startswith(f"{WITHOUT_QUEUE.says}: PyTorch without queues (")
    assert WITHOUT_QUEUE.says not in asynchronous


def test_a_figure_without_bands_is_only_named_and_no_conclusion() -> None:
    cell = with_metric(measured(Cell("data-parallel", "torch", "async"), ONE), 5000.0)
    assert answer(cell) == "images_per_second: PyTorch (5,000)."
    assert "images_per_second" not in " ".join(conclusions(cell))


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
    first, second = (conclusion for conclusion in found if " against " in conclusion)
    # Those on the first engine count.
    assert first.startswith("parallel: PyTorch against MXNet: 500 ms (")
    assert " faster" in first
    assert second.startswith("overlap: PyTorch against NumPy: 2.00 s (")


def test_no_difference_and_too_few_runs_are_verdicts_and_a_difference_has_its_reason() -> None:
    mxnet, torch = parallel("mxnet"), parallel("torch")
    for cells, end in (
        ((measured(mxnet, ONE), measured(torch, times(1.0005))), ": no significant difference."),
        ((measured(mxnet, ONE[:1]), measured(torch, times(2)[:1])), ": too few runs to decide."),
        ((measured(mxnet, ONE[:2]), measured(torch, times(2)[:2])), " slower than 1.00 s."),
        (
            (scaled(mxnet, 2.0, 1.9), scaled(torch, 1.0, 0.7)),
            " faster; operations 1.20 s.",
        ),
    ):
        assert conclusions(*cells)[-1].endswith(end)


@pytest.mark.parametrize(
    ("names", "pair", "difference"),
    [
        (("torch", "mxnet", "numpy"), ("numpy", "torch"), 3.0),
        (("numpy", "torch", "mxnet"), ("torch", "numpy"), -3.0),
    ],
)
def test_a_framework_with_another_engine_than_all_others_is_compared_with_them(
    names: tuple[str, ...], pair: tuple[str, str], difference: float
) -> None:
    cells = {
        "torch": measured(parallel("torch"), times(1.0)),
        "mxnet": measured(parallel("mxnet"), times(2.0)),
        "numpy": measured(parallel("numpy", "sync"), times(4.0)),
    }
    (experiment,) = analyse(comparison(*(cells[name] for name in names))).experiments
    differences = {
        (compared.cell.backend, compared.against.backend): compared.seconds.estimate
        for compared in experiment.between_frameworks
    }
    assert differences == {("mxnet", "torch"): pytest.approx(1.0), pair: pytest.approx(difference)}


def test_where_nothing_can_be_compared_that_is_said() -> None:
    missing, torch = failed(parallel("mxnet")), measured(parallel("torch"), ONE)
    assert conclusions(missing) == (NOTHING_MEASURED,)
    assert conclusions(missing, torch)[-1] == ONE_FRAMEWORK
    other_sides = measured(parallel("mxnet", "sync"), ONE), failed(parallel("torch", "sync"))
    assert conclusions(missing, torch, *other_sides)[-1] == NO_PAIR


def test_a_difference_names_the_cells_whose_figure_means_something_else() -> None:
    def with_speedup(speedup: float, noise: float) -> Comparison:
        return comparison(*sides({"torch async": speedup}, noise=noise))

    def bands_after(speedup: float, noise: float = 0.001) -> list[dict[str, Any]]:
        """Return whose figure means something else than it did as 1.97."""
        change = compare_with_old(with_speedup(1.97, 0.001), with_speedup(speedup, noise))
        bands: list[dict[str, Any]] = change.as_json()["bands"]
        return bands

    (change,) = bands_after(1.3)
    cell = {"experiment": "parallel", "backend": "torch", "engine": "async"}
    assert change == {**cell, "metric": "parallel_speedup", "old": "parallel", "new": "partly"}
    assert bands_after(1.95) == []
    (unclear,) = bands_after(1.6, noise=0.4)
    assert (unclear["old"], unclear["new"]) == ("parallel", None)
