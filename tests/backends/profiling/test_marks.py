"""A mark says which verb was called, with which function, for which device: what is written can be
read back.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import HOST, Device
from backends.profiling import marks
from backends.profiling.marks import (
    MARKED_VERBS,
    OURS,
    function_name,
    parse_case,
    parse_task,
    parse_verb,
)

devices = st.builds(Device, st.sampled_from(("cpu", "gpu")), st.integers(0, 9999)) | st.builds(
    Device, st.just("gpu"), st.integers(0, 9999), st.integers(0, 9999)
)
functions = st.from_regex(r"[a-z_]\w*|<lambda>|Büro \"#1\"", fullmatch=True).map(
    lambda name: SimpleNamespace(__name__=name)
)
QUEUES = ("compute", "copy", "compute issue", "copy in", "copy out", "exchange", "exchange issue")


@given(device=st.none() | devices, verb=st.sampled_from(MARKED_VERBS), function=functions)
def test_the_mark_of_a_call_can_be_read_back(
    device: Device | None, verb: str, function: object
) -> None:
    texts = []

    @contextmanager
    def mark(text: str) -> Iterator[None]:
        texts.append(text)
        yield

    def do_nothing(*_: object) -> None:
        pass

    backend = SimpleNamespace(**dict.fromkeys(MARKED_VERBS, do_nothing))
    with marks.marking_verbs(backend, mark, lambda *_: device):
        getattr(backend, verb)(function)

    (text,) = texts
    call = parse_verb(text)
    assert call is not None
    assert call.name == (f"launch {function_name(function)}" if verb == "launch" else verb)
    assert call.device == ("" if device is None else str(device))
    assert text.endswith(f" #{call.number}")


@given(device=devices | st.just("host"), queue=st.sampled_from(QUEUES), function=functions)
def test_the_mark_of_a_worker_s_task_can_be_read_back(
    device: Device | str, queue: str, function: object
) -> None:
    text = marks.task_text(function_name(function), f"{device} {queue}")
    assert parse_task(text) == (function_name(function), str(device), queue, 0)
    assert parse_verb(text) is None


@given(name=st.text())
def test_the_mark_of_a_case_can_be_read_back(name: str) -> None:
    assert parse_case(marks.case_text(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "aten::mm",
        f"{OURS}launches of all #1",
        f"{OURS}run relu",
        "allreduce bucket #3",
        "run relu on cpu:1 copy #2",
        "case A",
        str(HOST),
    ],
)
def test_other_marks_are_left_alone(text: str) -> None:
    assert parse_verb(text) is None
    assert parse_task(text) is None
    assert parse_case(text) is None
