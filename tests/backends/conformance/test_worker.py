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
    MOST_PASSED_ON,
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


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("hang", HangError, "hangs"),
        ("exit_from_python", RaisedError, "SystemExit: 0"),
        ("exit_at_once", CrashError, r"ends the process \(exit status 0\)"),
        ("be_killed", CrashError, r"crashes the process \(SIGKILL\)"),
        ("be_killed_by_a_signal_without_a_name", CrashError, r"crashes the process \(signal \d+\)"),
        ("write_garbage", WorkError, "cannot be read"),
        ("write_half_a_line", HangError, "hangs"),
        ("lose_a_thread", WorkError, "thread ended with ValueError"),
    ],
)
def test_whatever_a_process_does_is_an_error_in_time_and_the_next_call_works(
    what: str, error: type[WorkError], message: str
) -> None:
    with started() as worker:
        assert answers(worker, "nothing") == ["numpy"]
        begin = monotonic()
        with pytest.raises(error, match=message):
            answers(worker, what, 1.0)
        assert monotonic() - begin < SECONDS
        assert answers(worker, "nothing") == ["numpy"]


@pytest.mark.parametrize(
    "what", ["close_its_output", "leave_a_thread", "print_much", "write_much_without_a_newline"]
)
def test_what_is_printed_and_left_behind_changes_no_answer_and_is_passed_on_in_part(
    what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with started() as worker:
        assert answers(worker, what) == ["numpy"]
    printed = capsys.readouterr()
    assert printed.out == ""
    if "much" in what:
        assert MOST_PASSED_ON <= len(printed.err) <= MOST_PASSED_ON + 100
    if what == "print_much":
        assert printed.err.startswith("line 0\nline 1\n")


@pytest.mark.parametrize("what", ["take_memory", "share_memory", "share_a_file_in_memory"])
def test_memory_is_limited_also_if_it_is_shared(what: str) -> None:
    with started(memory=misbehaviour.GIBIBYTE) as worker:
        assert answers(worker, "nothing") == ["numpy"]
        with pytest.raises(RaisedError, match=r"^(MemoryError|OSError)\b"):
            answers(worker, what)


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (
            misbehaviour.never_return,
            r"^`never_return` \(misbehaviour\.py, line \d+\) did not return within 1 s\b",
        ),
        (misbehaviour.never_let_go, r"^`never_let_go` .* did not return within 1 s\b"),
        (misbehaviour.exit_while_loading, "^SystemExit: enough$"),
        (end_the_process, r"ended before it had loaded the backend \(exit status 3\)"),
    ],
)
def test_a_backend_that_cannot_be_loaded_is_told_in_one_line_and_in_time(
    load: Callable[[int], Backend], message: str
) -> None:
    with (
        started(load, starting_seconds=1.0) as worker,
        pytest.raises(BackendError, match=message) as raised,
    ):
        answers(worker, "nothing")
    assert "\n" not in str(raised.value)


def test_an_answer_before_the_question_is_not_believed() -> None:
    with (
        started(misbehaviour.answer_while_loading) as worker,
        pytest.raises(WorkError, match="not asked"),
    ):
        answers(worker, "nothing")


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
    assert decoded(encoded(np.array([None, 1]))).dtype == object
    assert decoded(encoded(np.array(None))) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"tuple": 1},
        {"dtype": "<f4", "shape": [3], "content": ""},
        {"dtype": "<f4", "shape": [0], "content": "text"},
        {"dtype": "<f4", "shape": ["3"], "content": ""},
        {"dtype": "no dtype", "shape": [], "content": ""},
        {"dtype": "O", "shape": [-1], "content": ""},
    ],
)
def test_what_was_never_encoded_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="not an encoded"):
        decoded(wrong)
