"""A worker answers what it is asked, and whatever its process does is an error that says so, in
time.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from time import monotonic
from typing import Any

import numpy as np
import pytest

from backends import Backend, BackendError
from backends.conformance.answers import Unreadable, decoded, encoded
from backends.conformance.serving import Task
from backends.conformance.worker import (
    CrashError,
    HangError,
    RaisedError,
    Worker,
    WorkError,
)
from tests.backends.conformance import misbehaviour
from tests.backends.conformance.defects import end_the_process, load

SECONDS = 20.0


@contextmanager
def started(load: Callable[[int], Backend] = load, **limits: Any) -> Iterator[Worker]:
    """Start a worker, and close it at the end of a `with` block."""
    with closing(Worker(Task(load, misbehaviour.do, **limits))) as worker:
        yield worker


def answers(worker: Worker, what: str, seconds: float = SECONDS) -> list[Any]:
    """Return all answers of a call that misbehaves in some way."""
    return list(worker.call(what, seconds=seconds))


ENDS: list[tuple[str, type[WorkError], str]] = [
    ("hang", HangError, "hangs"),
    ("exit_from_python", RaisedError, "SystemExit: 0"),
    ("exit_at_once", CrashError, r"ends the process \(exit status 0\)"),
    ("be_killed", CrashError, r"crashes the process \(SIGKILL\)"),
    ("be_killed_by_a_signal_without_a_name", CrashError, r"crashes the process \(signal \d+\)"),
    ("lose_a_thread", WorkError, "a worker thread ended with ValueError.*"),
]


def test_whatever_a_process_does_is_an_error_in_time_and_the_next_call_works() -> None:
    with started() as worker:
        for what, error, message in ENDS:
            assert answers(worker, "nothing") == ["numpy"]
            begin = monotonic()
            with pytest.raises(error, match=f"^{message}$"):
                answers(worker, what, 1.0)
            assert monotonic() - begin < SECONDS
        assert answers(worker, "nothing") == ["numpy"]


def test_a_hang_is_told_with_the_stack_of_each_thread() -> None:
    with started() as worker, pytest.raises(HangError) as raised:
        answers(worker, "leave_a_thread")
        answers(worker, "hang", 1.0)
    assert raised.value.stacks.count("Thread 0x") >= 2
    assert raised.value.stacks.count("misbehaviour.py") >= 3


def test_what_is_printed_and_left_behind_changes_no_answer(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with started() as worker:
        for what in ("print_a_line", "leave_a_thread", "close_its_output"):
            assert answers(worker, what) == ["numpy"]
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err == "a line\n"


def test_memory_is_limited_also_if_it_is_shared() -> None:
    with started(memory=misbehaviour.GIBIBYTE) as worker:
        assert answers(worker, "nothing") == ["numpy"]
        for what in ("take_memory", "share_memory", "share_a_file_in_memory"):
            with pytest.raises(RaisedError, match=r"^(MemoryError|OSError)\b"):
                answers(worker, what)


@pytest.mark.parametrize(
    ("load", "message", "stack"),
    [
        (misbehaviour.never_return, r"did not return within 1 s\b", "in never_return"),
        (misbehaviour.never_let_go, r"did not return within 1 s\b", "in never_let_go"),
        (misbehaviour.exit_while_loading, "^SystemExit: enough$", ""),
        (end_the_process, r"ended before it had loaded the backend \(exit status 3\)", ""),
    ],
)
def test_a_backend_that_cannot_be_loaded_is_told_in_one_line_and_in_time(
    load: Callable[[int], Backend],
    message: str,
    stack: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with (
        started(load, starting_seconds=1.0) as worker,
        pytest.raises(BackendError, match=message) as raised,
    ):
        answers(worker, "nothing")
    assert "\n" not in str(raised.value)
    assert stack in capfd.readouterr().err


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=np.int8).reshape(2, 3).T,
        np.zeros((0, 2), np.float16),
        np.array(np.nan),
        np.array([True, False]),
        np.ones(2, ">f8"),
    ],
)
def test_an_array_is_the_same_after_its_way(value: np.ndarray) -> None:
    (arrived,) = decoded(encoded((value,)))
    np.testing.assert_array_equal(arrived, value)
    assert (arrived.dtype, arrived.shape) == (value.dtype, value.shape)


def test_other_values_are_the_same_after_their_way_and_what_is_none_is_only_a_name() -> None:
    value = [1, "text", None, 2.5, True, (), (1, (2,))]
    assert decoded(encoded(value)) == value
    assert decoded(encoded((set(), np.float32(1)))) == (Unreadable("set"), Unreadable("float32"))
    arrived = decoded(encoded(np.array([None, 1])))
    assert (arrived.dtype, arrived.shape) == (object, (2,))
    assert decoded(encoded(np.array(None))) is None
