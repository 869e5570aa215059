"""A result ends in its answer; how far a measurement is stands on a terminal alone, from two seconds on."""

import io
import threading
from dataclasses import replace

import pytest
from rich.console import Console

from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Answer
from parallel_core.terminal import progress
from parallel_core.terminal.result import show
from tests.parallel_core.report.plots.synthetic_results import TIMED
from tests.parallel_core.terminal.printed import printed


def test_the_answer_comes_last_and_says_nothing_twice() -> None:
    answer = Answer(("Verdict [1].", "It took 2 s."), "More cores than 2.")
    result = replace(TIMED, explanation="Verdict [1].", answer=answer, notes=("Noted.",), problems=("Wrong",))
    told = printed(show, result)
    assert told.endswith("\nAnswer\nVerdict [1].\nIt took 2 s.\nWhat would change it: More cores than 2.\n")
    assert told.count("Verdict [1].") == 1
    assert told.index("Noted.") < told.index("INVALID: Wrong") < told.index("Answer")
    told = printed(show, replace(result, answer=None))
    assert "\nVerdict [1].\n· Noted.\n" in told
    assert "Answer" not in told


@pytest.mark.parametrize("terminal", [True, False])
def test_each_of_several_trainings_has_a_line_where_there_is_no_bar(terminal: bool) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, force_interactive=terminal, width=80)
    with progress.training_progress(console, epochs=2, images=8) as shown:
        for name in ("training 1 of 2", "training 2 of 2"):
            shown.on_training(name)
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("training ")]
    assert lines == ([] if terminal else ["training 1 of 2", "training 2 of 2"])


@pytest.mark.parametrize(("terminal", "from_second", "seen"), [(True, 0, True), (False, 0, False), (True, 60, False)])
def test_what_is_measured_is_shown_on_a_terminal_if_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, from_second: float, seen: bool
) -> None:
    monkeypatch.setattr(progress, "SHOWN_FROM", from_second)
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, force_interactive=terminal, width=80)
    before = {*threading.enumerate()}
    with progress.measurement_progress(console, "overlap"):
        tell("run and copy together", 0.25)
        # A thread that draws would take time from what is measured.
        assert {*threading.enumerate()} <= before
    tell("after the end", 1.0)
    assert ("overlap: run and copy together" in stream.getvalue()) == bool(stream.getvalue()) == seen
    assert "after the end" not in stream.getvalue()
