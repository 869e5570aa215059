"""A result ends in its answer."""

from dataclasses import replace
from io import StringIO

from rich.console import Console

from parallel_core.measurement.answer import Answer
from parallel_core.measurement.result import Result
from parallel_core.terminal.result import show
from tests.parallel_core.plots.synthetic_results import TIMED


def shown(result: Result) -> str:
    out = StringIO()
    show(result, Console(file=out, width=200))
    return out.getvalue()


def test_the_answer_comes_last_and_says_nothing_twice() -> None:
    answer = Answer(("Verdict [1].", "It took 2 s."), "More cores than 2.")
    told = shown(replace(TIMED, explanation="Verdict [1].", answer=answer, notes=("Noted.",), problems=("Wrong",)))
    assert told.endswith("\nAnswer\nVerdict [1].\nIt took 2 s.\nWhat would change it: More cores than 2.\n")
    assert told.count("Verdict [1].") == 1
    assert told.index("Noted.") < told.index("INVALID: Wrong") < told.index("Answer")


def test_a_result_without_an_answer_is_explained() -> None:
    told = shown(replace(TIMED, explanation="Verdict [1].", notes=("Noted.",)))
    assert "\nVerdict [1].\n· Noted.\n" in told
    assert "Answer" not in told
