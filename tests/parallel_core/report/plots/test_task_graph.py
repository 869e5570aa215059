"""Pictures of task graphs: every task has a place of its own, and the text is text."""

import pytest
from hypothesis import given

from parallel_core.measurement.task_graph import Task, levels
from parallel_core.report.plots.svg import titled
from parallel_core.report.plots.task_graph import TaskGraph, rows_of
from tests.parallel_core.measurement.test_task_graph import graphs
from tests.parallel_core.report.plots.drawn import SVG, Drawn

DIAMOND = (
    Task("x", "a", "load", (), 5.0),
    Task("fork", "a", "compute", (0,), 0.001),
    Task("sent", "b", "copy", (1,), 0.0002),
    Task("left", "a", "compute", (1,), 0.003),
    Task("right", "b", "compute", (2,), 0.004),
    Task("join <&>", "b", "allreduce", (1, 3, 4), 0.001),
)


def drawn(*tasks: Task) -> Drawn:
    return Drawn(titled(TaskGraph(tasks), "a <title> & more"))


def test_names_times_devices_and_title_are_text() -> None:
    found = drawn(*DIAMOND).texts
    assert {"x", "fork", "left", "right", "join <&>", "a", "b", "a <title> & more"} <= set(found)
    # Without the input's own seconds: fork, sent, right, join.
    assert {"3.00 ms", "200 μs", "input", "longest chain: 6.20 ms of 9.20 ms in all"} <= set(found)


def test_the_longest_chain_is_in_colour_and_implied_dependencies_are_left_out() -> None:
    with_less = (*DIAMOND[:-1], Task("join <&>", "b", "allreduce", (3, 4), 0.001))
    assert titled(TaskGraph(DIAMOND), "same") == titled(TaskGraph(with_less), "same")
    # Four boxes, and the legend's; the three arrows between them, which are a line and a head each.
    assert sum("chain" in box.style for box in drawn(*DIAMOND).boxes) == 5
    arrows = [one.get("class") or "" for one in drawn(*DIAMOND).root.iter(f"{SVG}path")]
    assert (len(arrows), sum("c1" in style for style in arrows)) == (2 * 6, 2 * 3)


@given(graphs())
def test_no_two_tasks_share_a_place(tasks: tuple[Task, ...]) -> None:
    places = list(zip((task.device for task in tasks), levels(tasks), rows_of(tasks), strict=True))
    assert len(set(places)) == len(tasks)


def test_a_chain_keeps_its_row() -> None:
    other = Task("other", "a", "compute")
    chain = (Task("first", "a", "compute"), Task("second", "a", "compute", (1,)), Task("third", "a", "compute", (2,)))
    assert rows_of((other, *chain)) == (0, 1, 1, 1)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_single_task_can_be_drawn(seconds: float) -> None:
    found = drawn(Task("alone", "cpu:1", "compute", (), seconds)).texts
    assert "alone" in found
    assert any("ms" in text or " s" in text for text in found if "Times" not in text) == bool(seconds)
