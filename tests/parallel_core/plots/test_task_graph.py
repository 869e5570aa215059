"""Pictures of task graphs: every task has a place of its own, and the text is text."""

from io import BytesIO
from xml.etree import ElementTree

import pytest
from hypothesis import given
from matplotlib import rc_context

from parallel_core.measurement.task_graph import Task, levels
from parallel_core.plots.task_graph import rows_of, task_graph
from tests.parallel_core.measurement.test_task_graph import graphs

DIAMOND = (
    Task("x", "a", "load", (), 5.0),
    Task("fork", "a", "compute", (0,), 0.001),
    Task("sent", "b", "copy", (1,), 0.0002),
    Task("left", "a", "compute", (1,), 0.003),
    Task("right", "b", "compute", (2,), 0.004),
    Task("join <&>", "b", "allreduce", (1, 3, 4), 0.001),
)


def drawn(tasks: tuple[Task, ...], title: str = "a <title> & more") -> bytes:
    stream = BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "any"}):
        task_graph(tasks, title).savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()


def texts(svg: bytes) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]


def test_names_times_devices_and_title_are_text() -> None:
    found = texts(drawn(DIAMOND))
    assert {"x", "fork", "left", "right", "join <&>", "a", "b", "a <title> & more"} <= set(found)
    assert {"3.00 ms", "200 μs"} <= set(found)
    assert "input" in found
    # Without the input's own seconds: fork, sent, right, join.
    assert "longest chain: 6.20 ms of 9.20 ms in all" in found


def test_the_longest_chain_is_in_colour_and_implied_dependencies_are_left_out() -> None:
    svg = drawn(DIAMOND).decode()
    # Four boxes, and the legend's.
    assert svg.count("fill: #fbdcc8") == 5
    with_less = (*DIAMOND[:-1], Task("join <&>", "b", "allreduce", (3, 4), 0.001))
    assert drawn(with_less).decode() == svg


def test_the_same_graph_gives_the_same_file() -> None:
    assert drawn(DIAMOND) == drawn(DIAMOND)


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
    found = texts(drawn((Task("alone", "cpu:1", "compute", (), seconds),)))
    assert "alone" in found
    assert any("ms" in text or " s" in text for text in found if "Times" not in text) == bool(seconds)
