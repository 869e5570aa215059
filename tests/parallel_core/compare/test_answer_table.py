"""The table that a comparison ends with: counts first, and a headline that they decide on a busy
machine too.
"""

from dataclasses import replace

from parallel_core.compare.analysis import analyse
from parallel_core.compare.answer_table import HEADLINE, screen_of
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.result import Note
from tests.parallel_core.compare.made_up import BESIDE, comparison, counted


def test_counts_stand_above_the_figures_of_the_clock() -> None:
    screen = screen_of(
        analyse(comparison(counted("torch", "async", 24), counted("torch", "sync", 0)))
    )
    (question, figures), *by_clock = screen.rows
    assert (question, figures) == (BESIDE.title, ("24 of 25", "0 of 25"))
    assert by_clock[0][0] == EXPERIMENTS["parallel"].main.title


def test_a_count_decides_the_headline_even_if_no_time_can_be_true() -> None:
    impossible = (Note("faster-than-part", "A whole was faster than its part."),)
    cells = [counted("torch", "async", 24, impossible), counted("torch", "sync", 0, impossible)]
    screen = screen_of(analyse(comparison(*cells)))
    assert screen.headline == HEADLINE
    assert screen.rows[0][1] == ("24 of 25", "0 of 25")
    in_turn = [counted("torch", "async", 2), counted("torch", "sync", 0)]
    assert screen_of(analyse(comparison(*in_turn))).headline == ""


def test_a_figure_without_an_interval_is_marked_as_rough_and_a_count_is_not() -> None:
    main = EXPERIMENTS["parallel"].main.name
    for processes, rough in ((2, True), (3, False)):
        cell = counted("torch", "async", 24)
        results = tuple(replace(result, metrics={main: 1.9}) for result in cell.results[:processes])
        screen = screen_of(analyse(comparison(replace(cell, results=results))))
        assert [row[1][0].startswith("~") for row in screen.rows] == [False, rough]
        assert any(note.startswith("~") for note in screen.notes) == rough
