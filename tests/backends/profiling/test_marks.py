"""A mark says which verb was called, with which function, for which device: what is written can be read back."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import HOST, Device
from backends.profiling.marks import (
    MARKED_VERBS,
    OURS,
    ParsedMark,
    case_text,
    function_name,
    marking_verbs,
    parse_case,
    parse_task,
    parse_verb,
    task_text,
)

numbers = st.integers(0, 9999)
devices = st.one_of(
    st.builds(Device, st.just("cpu"), numbers),
    st.builds(Device, st.just("gpu"), numbers),
    st.builds(Device, st.just("gpu"), numbers, numbers),
)
function_names = st.from_regex(r"[a-z_]\w*|<lambda>|Büro \"#1\"", fullmatch=True)
QUEUES = ("compute", "copy", "compute issue", "copy in", "copy out", "exchange", "exchange issue")


def function(name: str) -> object:
    return SimpleNamespace(__name__=name)


@given(device=st.none() | devices, verb=st.sampled_from(MARKED_VERBS), name=function_names)
def test_the_mark_of_a_call_can_be_read_back(device: Device | None, verb: str, name: str) -> None:
    written = []

    @contextmanager
    def mark(text: str) -> Iterator[None]:
        written.append(text)
        yield

    backend = SimpleNamespace(**dict.fromkeys(MARKED_VERBS, lambda *_: None))
    with marking_verbs(backend, mark, lambda *_: device):
        getattr(backend, verb)(function(name))
    (text,) = written
    parsed = parse_verb(text)
    assert parsed is not None
    called = f"launch {function_name(function(name))}" if verb == "launch" else verb
    assert (parsed.name, parsed.device) == (called, str(device) if device else "")
    assert text.endswith(f" #{parsed.number}")


@given(device=devices | st.just("host"), queue=st.sampled_from(QUEUES), name=function_names)
def test_the_mark_of_a_worker_s_task_can_be_read_back(device: Device | str, queue: str, name: str) -> None:
    text = task_text(function_name(function(name)), f"{device} {queue}")
    assert parse_task(text) == ParsedMark(function_name(function(name)), str(device), queue, 0)
    assert parse_verb(text) is None


@given(name=st.text())
def test_the_mark_of_a_case_can_be_read_back(name: str) -> None:
    assert parse_case(case_text(name)) == name


OTHERS = (
    "aten::mm",
    f"{OURS}launches of all #1",
    f"{OURS}run relu",
    "allreduce bucket #3",
    "run relu on cpu:1 copy #2",
    "case A",
    str(HOST),
)


@pytest.mark.parametrize("text", OTHERS)
def test_other_marks_are_left_alone(text: str) -> None:
    assert parse_verb(text) is None
    assert parse_task(text) is None
    assert parse_case(text) is None
