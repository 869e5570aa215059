"""A result and a comparison in the terminal: the answer, on one screen or last; tables that fit;
and reasons.

How far a measurement is stands on a terminal alone, from two seconds on.
"""

import io
import re
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from parallel_core.comparison.analysis import analyse
from parallel_core.comparison.cells import Cell, CellResults
from parallel_core.comparison.runner import NextRun
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Answer
from parallel_core.terminal import progress
from parallel_core.terminal.comparison import comparison_progress, show_comparison, show_screen
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.result import show
from tests.parallel_core.comparison.made_up import (
    ONE,
    comparison,
    failed,
    measured,
    parallel,
    times,
    with_figures,
)
from tests.parallel_core.comparison.test_account import scaled
from tests.parallel_core.report.plots.synthetic_results import TIMED
from tests.parallel_core.terminal.printed import in_words, printed


def shown(
    *cells: CellResults, width: int = 100, show: Callable[..., None] = show_comparison
) -> list[str]:
    return printed(show, analyse(comparison(*cells)), width=width).splitlines()


@pytest.mark.parametrize("engines", [("async", "sync"), ("async",)])
def test_the_answer_fits_one_screen(engines: tuple[str, ...]) -> None:
    names = ("mxnet", "torch", "jax")[: 1 + len(engines)]
    cells = [
        measured(Cell(experiment, name, engine), times(seconds))
        for experiment in ("async", "parallel", "overlap", "data-parallel")
        for engine in engines
        for name, seconds in zip(names, (1.0, 2.0, 0.5), strict=False)
    ]
    lines = shown(*cells, width=80, show=show_screen)
    assert len(lines) <= 28
    assert all(len(line) <= 80 for line in lines)
    assert sum(" slower" in line for line in lines) == 4


@pytest.mark.parametrize("width", [60, 80])
def test_more_than_two_frameworks_are_a_row_each_and_each_pair_has_a_heading(width: int) -> None:
    cells = (
        measured(parallel(name), times(factor))
        for name, factor in {"mxnet": 1, "torch": 2, "jax": 4}.items()
    )
    lines = [line.strip() for line in shown(*cells, width=width, show=show_screen)]
    assert [line.split()[0] for line in lines if " of 2" in line] == ["MXNet", "PyTorch", "JAX"]
    assert [line for line in lines if " against " in line] == [
        "PyTorch against MXNet",
        "JAX against MXNet",
    ]


@pytest.mark.parametrize(
    ("speedups", "written", "note"),
    [
        ((1.9, 1.3, 1.8, 1.4, 1.6), "1.6 of 2 ?", "? touches two bands."),
        (
            (2.05, 1.95, 2.1, 2.2, 1.9),
            "2.05 of 2 !",
            "! is more than is possible, within the noise.",
        ),
        (
            (2.5, 2.51, 2.49, 2.5, 2.5),
            "impossible",
            "Impossible is more than is possible, beyond the noise:",
        ),
    ],
)
def test_a_doubtful_figure_is_marked_or_withheld(
    speedups: tuple[float, ...], written: str, note: str
) -> None:
    cells = (
        with_figures(measured(parallel("mxnet"), ONE), speedups),
        measured(parallel("torch"), ONE),
    )
    lines = shown(*cells, width=80, show=show_screen)
    (row,) = (line for line in lines if "Devices at once" in line)
    assert re.split(" {2,}", row.strip())[1] == written
    assert note in in_words(" ".join(lines))


def test_a_cell_that_failed_is_a_row() -> None:
    lines = shown(measured(parallel("mxnet"), ONE), failed(parallel("torch")))
    (row,) = (line for line in lines if line.strip().startswith("torch async"))
    assert "failed" in row


def test_a_unit_that_is_slower_than_its_case_is_pointed_out() -> None:
    doubtful = in_words(" ".join(shown(scaled(parallel("mxnet"), 1, 1.2))))
    assert "as one unit its operations took 1.20 × its time" in doubtful
    assert "as one unit" not in " ".join(shown(scaled(parallel("mxnet"), 1, 1.0)))


def test_the_answer_comes_last_and_says_nothing_twice() -> None:
    answer = Answer(("Verdict [1].", "It took 2 s."), "More cores than 2.")
    result = replace(
        TIMED, explanation="Verdict [1].", answer=answer, notes=("Noted.",), problems=("Wrong",)
    )
    told = printed(show, result)
    assert told.endswith(
        "\nAnswer\nVerdict [1].\nIt took 2 s.\nWhat would change it: More cores than 2.\n"
    )
    assert told.count("Verdict [1].") == 1
    assert told.index("Noted.") < told.index("INVALID: Wrong") < told.index("Answer")
    told = printed(show, replace(result, answer=None))
    assert "\nVerdict [1].\n· Noted.\n" in told
    assert "Answer" not in told


@pytest.mark.parametrize("terminal", [True, False])
def test_each_of_several_trainings_has_a_line_where_there_is_no_bar(terminal: bool) -> None:
    stream = io.StringIO()
    console = terminal_console(
        file=stream, force_terminal=terminal, force_interactive=terminal, width=80
    )
    with progress.training_progress(console, epochs=2, images=8) as shown:
        for name in ("training 1 of 2", "training 2 of 2"):
            shown.on_training(name)
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("training ")]
    assert lines == ([] if terminal else ["training 1 of 2", "training 2 of 2"])


def test_a_comparison_tells_each_round_once_and_the_time_that_is_left_when_it_is_known() -> None:
    stream = io.StringIO()
    cells = comparison(measured(parallel("torch"), (1.0,))).cells
    with comparison_progress(terminal_console(file=stream, width=80)) as on_run:
        for number, left in ((1, None), (1, 120.0), (2, 60.0)):
            on_run(NextRun((cells[0].cell,), number, 2, 3, left))
    assert stream.getvalue().splitlines() == [
        "round 1 of 2: 0 of 3 runs done",
        "round 2 of 2: 2 of 5 runs done, about a minute left",
    ]


@pytest.mark.parametrize(
    ("terminal", "from_second", "seen"), [(True, 0, True), (False, 0, False), (True, 60, False)]
)
def test_long_work_is_shown(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, from_second: float, seen: bool
) -> None:
    monkeypatch.setattr(progress, "SHOWN_FROM", from_second)
    stream = io.StringIO()
    console = terminal_console(
        file=stream, force_terminal=terminal, force_interactive=terminal, width=80
    )
    before = {*threading.enumerate()}
    with progress.measurement_progress(console, "overlap"):
        tell("run and copy together", 0.25)
        # A thread that draws would take time from what is measured.
        assert {*threading.enumerate()} <= before
    tell("after the end", 1.0)
    assert (
        ("overlap: run and copy together" in stream.getvalue()) == bool(stream.getvalue()) == seen
    )
    assert "after the end" not in stream.getvalue()
