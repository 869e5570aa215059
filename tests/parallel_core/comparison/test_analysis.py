"""What is concluded of each cell, drawn once for all that show it."""

import math
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from parallel_core.comparison.analysis import CellAnalysis, analyse
from parallel_core.comparison.cells import Cell, CellResults, Comparison
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement import confidence_intervals
from parallel_core.measurement.result import Answer
from parallel_core.report import write_report
from parallel_core.terminal.comparison import show_comparison
from tests.parallel_core.comparison.made_up import (
    ONE,
    changed,
    comparison,
    every_chart,
    failed,
    measured,
    parallel,
    result,
    times,
    with_parts,
)


def cells_of(compared: Comparison) -> tuple[CellAnalysis, ...]:
    (experiment,) = analyse(compared).experiments
    return experiment.cells


def test_cells_are_held_against_the_first_one() -> None:
    found = comparison(
        measured(parallel("mxnet"), ONE),
        measured(parallel("torch"), times(1.2)),
        measured(parallel("numpy"), times(0.8)),
        measured(parallel("jax"), times(1.0005)),
    )
    first, *others = cells_of(found)
    assert (first.difference, first.state, len(first.results.valid)) == (None, "measured", 5)
    verdicts = [cell.difference.verdict for cell in others if cell.difference]
    assert verdicts == ["slower", "faster", "no difference shown"]
    assert others[0].difference is not None
    assert 1.19 < others[0].difference.ratio.low < 1.2 < others[0].difference.ratio.high < 1.21


def test_a_missing_framework_is_a_row_with_its_reason_and_the_next_one_is_held_against() -> None:
    found = comparison(failed(parallel("mxnet")), measured(parallel("torch"), ONE), measured(parallel("numpy"), ONE))
    missing, first, other = cells_of(found)
    assert (missing.state, missing.reason, missing.time) == ("failed", "torch is not installed", None)
    assert first.difference is None
    assert other.difference is not None
    assert other.difference.against == parallel("torch")


@pytest.mark.parametrize(
    ("wrong", "valid", "state", "reason"),
    [
        (1, 5, "measured", "1 invalid: too fast"),
        (1, 0, "invalid", "0 of 1 runs are valid: too fast"),
        # One of which half is invalid is not judged by the rest.
        (5, 5, "invalid", "5 of 10 runs are valid: too fast"),
    ],
)
def test_invalid_results_are_not_counted_and_too_many_make_a_cell_invalid(
    wrong: int, valid: int, state: str, reason: str
) -> None:
    first = changed(measured(parallel("torch"), (0.001,) * wrong), problems=("too fast",))
    (cell,) = cells_of(comparison(replace(first, results=first.results + measured(first.cell, ONE[:valid]).results)))
    assert (cell.state, cell.reason, len(cell.results.valid)) == (state, reason, valid)
    assert (cell.time and cell.time.estimate) == (1.0 if state == "measured" else None)


BARRIER = EXPERIMENTS["barriers"].case


@pytest.mark.parametrize(
    ("experiment", "names", "case"),
    [
        ("small-ops", ("all devices, size 2", "one device, size 8", "all devices, size 8"), "all devices, size 8"),
        ("small-ops", ("all devices, size 8", "all threads, size 8"), "all devices, size 8"),
        ("small-ops", ("one device, size 8", "one device, size 64"), "one device, size 64"),
        ("barriers", (BARRIER.replace("64", "0"), BARRIER.replace("64", "32"), "other"), BARRIER.replace("64", "32")),
        ("allreduce", ("native, 64 KiB", "native, 1 MiB", "star, 1 MiB"), "native, 1 MiB"),
        ("allreduce", ("star, 1 MiB", "sharded, 1 MiB"), "sharded, 1 MiB"),
        ("independent-ops", ("independent, 2 workers", "chain, 2 workers"), "independent, 2 workers"),
        # The declared one, wherever it stands.
        ("small-ops", ("all devices, size 128", "all devices, size 256"), "all devices, size 128"),
    ],
)
def test_cells_are_compared_by_the_usual_case_or_the_largest_of_its_kind(
    experiment: str, names: tuple[str, ...], case: str
) -> None:
    cells = [Cell(experiment, backend, "async") for backend in ("mxnet", "torch")]
    results = [CellResults(cell, (result(cell, dict.fromkeys(names, 1.0)),) * 3) for cell in cells]
    (found,) = analyse(comparison(*results)).experiments
    assert [(cell.state, cell.time and cell.time.estimate) for cell in found.cells] == [("measured", 1.0)] * 2
    assert [one.case for one in found.between_frameworks] == [case]


@pytest.mark.parametrize(
    ("cases", "states"),
    [
        (("on all together", "on all together", "other"), ["measured", "measured", "failed"]),
        (("other", "on all together"), ["failed", "measured"]),
        (("one", "other"), ["failed", "failed"]),
    ],
)
def test_a_cell_without_the_case_of_the_others_is_not_compared(cases: tuple[str, ...], states: list[str]) -> None:
    cells = [measured(parallel(name), ONE, case) for name, case in zip(("mxnet", "torch", "jax"), cases, strict=False)]
    analysed = analyse(comparison(*cells))
    (found,) = analysed.experiments
    assert [cell.state for cell in found.cells] == states
    assert len(found.between_frameworks) == max(0, states.count("measured") - 1)
    show_comparison(analysed, Console(file=StringIO()))


def test_nothing_is_drawn_again_when_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = every_chart()
    doubtful = with_parts(compared.cells[0], {"bare": 1.3})
    analysed = analyse(replace(compared, cells=(doubtful, *compared.cells[1:])))

    def drawn_again(*_: object) -> None:
        pytest.fail("an interval was drawn after the analysis")

    # All intervals come from these two.
    monkeypatch.setattr(confidence_intervals, "stretched", drawn_again)
    monkeypatch.setattr(confidence_intervals, "_median", drawn_again)
    with pytest.raises(pytest.fail.Exception, match="drawn after the analysis"):
        analyse(every_chart())
    show_comparison(analysed, Console(file=StringIO()))
    assert "chart-cost-model" in write_report(analysed, tmp_path).read_text()


def test_no_interval_is_drawn_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[object, object]] = []
    ratio_interval = confidence_intervals.ratio_interval

    def counted(values: object, others: object) -> confidence_intervals.Interval:
        drawn.append((values, others))
        return ratio_interval(values, others)  # type: ignore[arg-type]

    monkeypatch.setattr(confidence_intervals, "ratio_interval", counted)
    sides = [(backend, engine) for backend in ("mxnet", "torch") for engine in ("async", "sync")]
    cells = (measured(parallel(*side), times(factor)) for factor, side in enumerate(sides, start=1))
    (experiment,) = analyse(comparison(*cells)).experiments
    # Three cells against the first one; of the pairs of frameworks and of engines two are among them.
    assert len(experiment.between_frameworks) == len(experiment.between_engines) == 2
    assert len(drawn) == len(set(drawn)) == 5


def test_a_point_of_a_curve_is_of_the_processes_that_have_it_as_a_number() -> None:
    def with_curve(*points: float) -> Comparison:
        one = measured(Cell("allreduce", "torch", "async"), (1.0,) * len(points))
        series = ({"bytes": (4096.0, 8192.0), "algbw_gb_per_s star": (value, math.nan)} for value in points)
        results = zip(one.results, series, strict=True)
        return comparison(replace(one, results=tuple(replace(result, series=own) for result, own in results)))

    for points in ((math.nan, 2.0, 3.0, 4.0), (2.0, math.nan, 3.0, 4.0)):
        (cell,) = cells_of(with_curve(*points))
        known, unknown = cell.curves["star"]
        assert known.estimate == pytest.approx(3)
        # No infinity, which a reader would take for a value.
        assert math.isnan(unknown.estimate)


def test_side_by_side_each_side_answers_and_once_it_is_said_what_would_change_it() -> None:
    def answered(results: CellResults, change: str) -> CellResults:
        return changed(results, answer=Answer((f"It ran on {results.cell.backend}.",), change))

    mxnet, torch = (measured(Cell("parallel", name, "async"), [1.0, 1.1, 1.2]) for name in ("mxnet", "torch"))
    assert analyse(comparison(mxnet, torch)).side_by_side is None
    alike = analyse(comparison(answered(mxnet, "More cores."), answered(torch, "More cores.")))
    assert alike.side_by_side == Answer(
        (*alike.conclusions, "mxnet async: It ran on mxnet.", "torch async: It ran on torch."), "More cores."
    )
    unlike = analyse(comparison(answered(mxnet, "More cores."), answered(torch, "More rounds."))).side_by_side
    assert unlike is not None
    assert unlike.would_change == "mxnet async: More cores. torch async: More rounds."
