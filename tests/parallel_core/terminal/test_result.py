"""A result and a comparison in the terminal: the answer, on one screen or last; tables that fit;
and reasons.

How far a measurement is stands on a terminal alone, from two seconds on.
"""

import io
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
from rich.console import Console

from parallel_core.compare.analysis import analyse
from parallel_core.compare.answer_table import HEADLINE
from parallel_core.compare.results import Cell, CellResults
from parallel_core.compare.schedule import Generation
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Answer, Note, Result
from parallel_core.terminal import progress
from parallel_core.terminal.comparison import comparison_progress, show_comparison, show_screen
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.result import show
from tests.parallel_core.compare.made_up import (
    ONE,
    comparison,
    counted,
    failed,
    measured,
    parallel,
    times,
    with_figures,
)
from tests.parallel_core.compare.test_time_differences import scaled
from tests.parallel_core.report.plots.synthetic_results import TIMED, TRAINED
from tests.parallel_core.terminal.printed import in_words, printed


def shown(
    *cells: CellResults, width: int = 100, show: Callable[..., None] = show_comparison
) -> list[str]:
    """Return the lines that are printed of a comparison of cells."""
    return printed(show, analyse(comparison(*cells)), width=width).splitlines()


@pytest.mark.parametrize(
    ("engines", "frameworks"),
    [(("async", "sync"), ("mxnet", "torch", "jax")), (("async",), ("mxnet", "torch"))],
    ids=["two-engines", "one-engine"],
)
def test_the_answer_fits_one_screen(engines: tuple[str, ...], frameworks: tuple[str, ...]) -> None:
    seconds = {"mxnet": 1.0, "torch": 2.0, "jax": 0.5}
    experiments = ("async", "parallel", "overlap", "data-parallel")
    cells = [
        measured(Cell(experiment, framework, engine), times(seconds[framework]))
        for experiment, engine, framework in product(experiments, engines, frameworks)
    ]
    lines = shown(*cells, width=80, show=show_screen)
    assert len(lines) <= 28
    assert all(len(line) <= 80 for line in lines)
    slower = [line for line in lines if " slower" in line]
    assert len(slower) == 4


@pytest.mark.parametrize("width", [60, 80])
def test_more_than_two_frameworks_are_a_row_each_and_each_pair_has_a_heading(width: int) -> None:
    seconds = {"mxnet": 1, "torch": 2, "jax": 4}
    cells = [measured(parallel(name), times(seconds[name])) for name in seconds]
    lines = [line.strip() for line in shown(*cells, width=width, show=show_screen)]
    row_names = [line.split()[0] for line in lines if " of 2" in line]
    assert row_names == ["MXNet", "PyTorch", "JAX"]
    headings = [line for line in lines if " against " in line]
    assert headings == ["PyTorch against MXNet", "JAX against MXNet"]


@pytest.mark.parametrize(
    ("speedups", "figure", "note"),
    [
        ((1.9, 1.3, 1.8, 1.4, 1.6), "1.6 of 2 ?", "? touches two bands."),
        ((2.05, 1.95, 2.1, 2.2, 1.9), "2.05 of 2 !", "! is more than is possible, within"),
        ((2.5, 2.51, 2.49, 2.5, 2.5), "impossible", "Impossible is more than is possible, beyond"),
    ],
)
def test_a_doubtful_figure_is_marked_or_withheld(
    speedups: tuple[float, ...], figure: str, note: str
) -> None:
    doubtful = with_figures(measured(parallel("mxnet"), ONE), speedups)
    lines = shown(doubtful, measured(parallel("torch"), ONE), width=80, show=show_screen)
    (row,) = (line for line in lines if "Devices at once" in line)
    _, figure_of_mxnet, *_ = re.split(" {2,}", row.strip())
    assert figure_of_mxnet == figure
    assert note in in_words(" ".join(lines))


def test_a_cell_that_failed_is_a_row() -> None:
    lines = shown(measured(parallel("mxnet"), ONE), failed(parallel("torch")))
    (row,) = (line for line in lines if line.strip().startswith("PyTorch"))
    assert "failed" in row


def test_a_unit_that_is_slower_than_its_case_is_pointed_out() -> None:
    doubtful = in_words(" ".join(shown(scaled(parallel("mxnet"), 1, 1.2))))
    assert "as one unit its operations took 1.20 × its time" in doubtful
    assert "as one unit" not in " ".join(shown(scaled(parallel("mxnet"), 1, 1.0)))


def test_the_answer_comes_first_and_says_nothing_twice() -> None:
    answer = Answer(("Verdict [1].", "It took 2 s."), "More cores than 2.")
    noted, wrong = Note(None, "Noted."), Note(None, "Wrong")
    result = replace(
        TIMED, explanation="Verdict [1].", answer=answer, notes=(noted,), problems=(wrong,)
    )
    text = printed(show, result)
    order = ("Verdict [1].", "It took 2 s.", "Noted.", "INVALID: Wrong", "More cores than 2.")
    positions = [text.index(words) for words in order]
    assert positions == sorted(positions)
    without_answer = printed(show, replace(result, answer=None))
    assert text.count("Verdict [1].") == without_answer.count("Verdict [1].") == 1


@pytest.mark.parametrize("result", [TIMED, TRAINED], ids=lambda result: result.experiment)
def test_a_result_fits_a_screen_and_details_have_its_metrics(result: Result) -> None:
    sentence = "A sentence of more than one line: those of answers mostly need some eighty letters."
    long_answer = replace(result, answer=Answer((sentence,) * 5, sentence))
    again = "Again: parallel-core run parallel --backend torch --size 1000"
    lines = printed(partial(show, again=again), long_answer, width=80).splitlines()
    assert len(lines) <= 24
    in_detail = printed(partial(show, with_details=True), long_answer, width=80)
    assert all(name in in_detail for name in result.metrics)


def console_on(stream: io.StringIO, is_terminal: bool) -> Console:
    """Return a console that writes to a stream as if it were a terminal, or were none."""
    return terminal_console(
        file=stream, force_terminal=is_terminal, force_interactive=is_terminal, width=80
    )


@pytest.mark.parametrize(
    ("is_terminal", "expected_lines"), [(True, []), (False, ["training 1 of 2", "training 2 of 2"])]
)
def test_each_of_several_trainings_has_a_line_where_there_is_no_bar(
    is_terminal: bool, expected_lines: list[str]
) -> None:
    stream = io.StringIO()
    with progress.training_progress(console_on(stream, is_terminal), epochs=2, images=8) as bars:
        bars.on_training("training 1 of 2")
        bars.on_training("training 2 of 2")
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("training ")]
    assert lines == expected_lines


def test_a_comparison_tells_each_round_once_and_the_time_that_is_left_when_it_is_known() -> None:
    stream = io.StringIO()
    processes = ((parallel("mxnet"),), (parallel("torch"),))
    so_far = comparison(counted("torch", "async", 24), counted("torch", "sync", 0))
    with comparison_progress(terminal_console(file=stream, width=80)) as on_progress:
        for results in (0, 1, 2):
            on_progress(Generation(processes, 1, 3, 0, 6, None), results, so_far)
        for results in (0, 1, 2):
            on_progress(Generation(processes, 2, 2, 2, 2, 60.0), results, so_far)
    first, second, change, empty, headline, *table, end = stream.getvalue().splitlines()
    assert first == "round 1 of 3: 0 of 6 results"
    assert second == "round 2 of 2: 2 of 4 results, about a minute left"
    assert "2 rounds, not 3" in change
    assert (empty, headline) == ("", HEADLINE)
    assert "24 of 25" in " ".join(table)
    assert "about a minute" in end


@pytest.mark.parametrize(
    ("is_terminal", "shown_from_second", "is_shown"),
    [(True, 0, True), (False, 0, False), (True, 60, False)],
)
def test_long_work_is_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, shown_from_second: float, is_shown: bool
) -> None:
    monkeypatch.setattr(progress, "SHOWN_FROM", shown_from_second)
    stream = io.StringIO()
    threads_before = set(threading.enumerate())
    with progress.measurement_progress(console_on(stream, is_terminal), "overlap"):
        tell("run and copy together", 0.25)
        # A thread that draws would take time from what is measured.
        assert set(threading.enumerate()) <= threads_before
    tell("after the end", 1.0)
    text = stream.getvalue()
    assert bool(text) == is_shown
    assert ("overlap: run and copy together" in text) == is_shown
    assert "after the end" not in text
