"""A recording that is incomplete, or that contradicts what was timed, counts nothing."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from backends.profiling import Span
from parallel_core.experiments.runner import recordings
from parallel_core.experiments.runner.recordings import (
    Recorded,
    behaves_otherwise,
    early_wait,
    missing,
)
from parallel_core.experiments.runner.tallies import Repetition, repetition_of
from parallel_core.measurement.result import Timing
from parallel_core.system.running_time import others_seconds_since, thread_times
from tests.parallel_core.experiments.runner.test_counts import call, copy, run

LAUNCHES = (call("launch matmul", 0, 1), call("launch matmul", 1, 2))
RUNS = (run("cpu:1", 2, 10, launched=0), run("cpu:1", 10, 20, launched=1))


def repetition(*spans: Span, **known: Any) -> Repetition:
    """Return the repetition in which these spans were recorded, in the order of their start."""
    recorded = repetition_of(sorted(spans, key=lambda span: span.start))
    return Repetition(**{**vars(recorded), **known})


@pytest.mark.parametrize(
    ("spans", "numbers"),
    [
        ((*LAUNCHES, *RUNS), []),
        ((*LAUNCHES, RUNS[0]), ["1", "2"]),
        # A launch may make several operations, which do not stand for copies.
        ((call("copy_to", 2, 3), *LAUNCHES, *RUNS, run("cpu:1", 20, 30)), ["0", "1"]),
        ((call("copy_to", 2, 3), *LAUNCHES, *RUNS, copy(20, 30)), []),
    ],
)
def test_what_was_launched_and_not_recorded_is_missing(
    spans: tuple[Span, ...], numbers: list[str]
) -> None:
    said = missing(repetition(*spans))
    assert [word for word in said.split() if word.isdigit()] == numbers


@pytest.mark.parametrize(
    ("wait", "ends_are_exact", "late"),
    [
        # The second operation begins at 10 and ends at 20.
        (call("waitall", 3, 20), True, False),
        (call("waitall", 3, 19), True, True),
        # A profiler may write down an end late, but not a beginning.
        (call("waitall", 3, 19), False, False),
        (call("waitall", 3, 9), False, True),
        (call("wait", 3, 10), True, False),
        (call("wait", 3, 9), True, True),
        (call("wait", 3, 9), False, False),
        # What is launched later is not waited for.
        (call("waitall", 0, 3), True, False),
    ],
)
def test_a_wait_is_early_if_it_returns_before_the_work_is_done(
    wait: Span, ends_are_exact: bool, late: bool
) -> None:
    assert bool(early_wait(repetition(*LAUNCHES, *RUNS, wait), ends_are_exact)) is late


QUEUED, AT_ONCE = (0.01, 1.0), (0.99, 1.0)


@pytest.mark.parametrize(
    ("recorded", "others", "queues", "otherwise"),
    [
        (QUEUED, QUEUED, True, False),
        (AT_ONCE, AT_ONCE, False, False),
        (QUEUED, AT_ONCE, True, True),
        (AT_ONCE, QUEUED, False, True),
        # Marks make launching longer: the order shows a queue, or operations are short.
        (AT_ONCE, QUEUED, True, False),
        ((0.00099, 0.001), (0.0001, 0.001), False, False),
        (QUEUED, (0.5, 1.0), True, False),
    ],
)
def test_a_repetition_behaves_otherwise_if_only_there_is_a_queue_or_none(
    recorded: Timing, others: Timing, queues: bool, otherwise: bool
) -> None:
    watched = Recorded((repetition(*LAUNCHES, *RUNS, timing=recorded),), others)
    shares = [others[0] / others[1]]
    assert bool(behaves_otherwise(watched, shares, queues)) is otherwise


def test_a_repetition_is_faster_only_if_all_are_by_far() -> None:
    fast, slow = (repetition(*RUNS, timing=(0.1, seconds)) for seconds in (0.5, 0.9))
    assert Recorded((fast, fast), (0.1, 1.0)).is_faster
    assert not Recorded((fast, slow), (0.1, 1.0)).is_faster


def test_a_thread_that_waits_for_a_lock_does_not_work() -> None:
    if not thread_times():
        pytest.skip("this system does not count the time of threads")
    lock, is_over = threading.Lock(), threading.Event()

    def compute() -> None:
        while not is_over.is_set():
            sum(range(10_000))

    def wait_for_lock() -> None:
        with lock:
            pass

    def worked(function: Callable[[], None]) -> float:
        """Return how long a thread works that runs the function while this one waits."""
        before = thread_times()
        threading.Thread(target=function, daemon=True).start()
        is_over.wait(0.3)
        seconds = others_seconds_since(before)
        assert seconds is not None
        return seconds

    with lock:
        waiting = worked(wait_for_lock)
    computing = worked(compute)
    is_over.set()
    assert waiting < computing / 3


@pytest.mark.parametrize(
    ("seconds_without_waits", "late"), [((0.2, 0.3, 0.2), True), ((0.2, 0.3, 0.002), False)]
)
def test_reading_that_takes_long_shows_a_waitall_that_did_not_wait(
    monkeypatch: pytest.MonkeyPatch, seconds_without_waits: tuple[float, ...], late: bool
) -> None:
    seconds = iter(seconds_without_waits)
    monkeypatch.setattr(
        recordings,
        "reading_seconds",
        lambda _backend, _launch, waits: 0.001 if waits else next(seconds),
    )
    nothing: Any = None
    assert bool(recordings.reads_late(nothing, {"all": lambda: None})) is late
