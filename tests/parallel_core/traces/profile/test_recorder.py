"""Which of a process's steps are recorded, and how long its threads waited for a core."""

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from backends.torch.program_hooks import TorchProfiler, mark_optimizers
from parallel_core import profiled_step
from parallel_core.traces.profile import recorder as recorder_module
from parallel_core.traces.profile.bootstrap.sitecustomize import RECORDER
from parallel_core.traces.profile.recorder import CoreTime, Recorder, core_times, core_wait_share


def test_the_busiest_thread_s_waiting_counts_and_not_that_of_others() -> None:
    before = {"1": CoreTime(5, 5), "2": CoreTime(0, 0)}
    second = 10**9
    after = {
        "1": CoreTime(5 + second, 5 + second // 2),
        "2": CoreTime(second // 4, second),
        "3": CoreTime(0, second),
    }
    assert core_wait_share(before, after, 2.0) == 0.25
    assert core_wait_share(before, {}, 2.0) is None


def test_what_this_thread_ran_is_counted_where_the_system_counts_it() -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this system does not count it")
    this_thread = str(threading.get_native_id())
    before = core_times()[this_thread]
    ran_until = time.thread_time() + 0.05
    while time.thread_time() < ran_until:
        pass
    after = core_times()[this_thread]
    assert after.ran - before.ran >= 40_000_000
    assert after.waited >= before.waited


class Diary:
    """A profiler that notes what it is asked for."""

    framework = "torch"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.reason = ""
        self.failing = ""

    def unavailable(self) -> str:
        return self.reason

    def note(self, asked: str) -> None:
        self.asked.append(asked)
        if asked == self.failing:
            raise RuntimeError("no counters")

    settle, start = partialmethod(note, "settle"), partialmethod(note, "start")

    def stop(self, path: Path | None) -> None:
        self.note("stop" if path else "forget")

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        self.note(f"begin {number}")
        yield
        self.note(f"end {number}")

    def rank(self) -> int | None:
        return 3


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.fixture
def recorder(tmp_path: Path, diary: Diary) -> Recorder:
    """Return a recorder of the third and the fourth step."""
    recorder = Recorder(tmp_path, warm_up=2, steps=2)
    recorder.add(diary)
    return recorder


def report(recorder: Recorder) -> dict[str, Any]:
    """Return what a recorder has reported so far."""
    (path,) = recorder.folder.glob("*.report")
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def take(steps: int, recorder: Recorder) -> None:
    """Let a program take a number of steps, which its optimizer marks."""
    for _ in range(steps):
        recorder.mark("optimizer", "torch")


def test_it_records_whole_steps_after_the_warm_up_and_no_more(
    recorder: Recorder, diary: Diary
) -> None:
    take(4, recorder)
    assert diary.asked == [
        "settle",
        "settle",
        "start",
        "begin 2",
        "end 2",
        "begin 3",
        "end 3",
        "settle",
        "stop",
    ]
    reported = report(recorder)
    assert reported["steps_seen"] == 4
    assert reported["steps_recorded"] == 2
    assert reported["rank"] == 3
    assert reported["trace"] == f"{os.getpid()}.json"
    # The second step was seen from end to end before the recording.
    assert reported["unprofiled_step_seconds"] > 0


def test_steps_are_timed_without_the_profiler_some_at_a_time_before_and_after(
    tmp_path: Path, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps before the recording compile: each takes 500 s, and those after it 3 s."""
    clock = 0.0
    monkeypatch.setattr(recorder_module, "perf_counter", lambda: clock)
    recorder = Recorder(tmp_path, warm_up=9, steps=1)
    recorder.add(diary)
    for step in range(30):
        clock += 500.0 if step < 10 else 3.0
        take(1, recorder)
        if step == 11:
            assert report(recorder)["unprofiled_step_seconds"] == 3.0
    # The 7th of 9 steps begins the time of two, and after the recording three times two are timed.
    assert diary.asked.count("settle") == 2 + 1 + 3
    assert recorder.unprofiled == [500.0, 3.0, 3.0, 3.0]
    assert report(recorder)["unprofiled_step_seconds"] == 3.0


@pytest.mark.parametrize("steps", [2, 3, 9])
def test_a_mark_of_the_program_s_own_takes_the_place_of_a_recording_by_other_marks(
    steps: int, recorder: Recorder, diary: Diary
) -> None:
    take(steps, recorder)
    diary.asked.clear()
    for _ in range(4):
        recorder.mark("optimizer", "torch")
        recorder.mark("profiled_step")
    reported = report(recorder)
    assert reported["marker"] == "profiled_step"
    assert reported["steps_seen"] == 4
    assert reported["steps_recorded"] == 2
    assert reported["trace"] is not None
    # After two steps the recording by other marks has just begun.
    assert diary.asked.count("forget") == (steps == 2)
    assert diary.asked[-2:] == ["settle", "stop"]


def test_a_profiler_s_mark_takes_the_place_of_no_recording(recorder: Recorder) -> None:
    take(4, recorder)
    recorder.mark("profiler", "torch")
    reported = report(recorder)
    assert reported["marker"] == "optimizer"
    assert reported["steps_recorded"] == 2


def test_what_the_program_marks_itself_counts_before_what_is_found(recorder: Recorder) -> None:
    for marker in ("optimizer", "profiled_step", "optimizer", "profiler"):
        recorder.mark(marker)  # type: ignore[arg-type]
    # The steps of another thread do not count.
    another_thread = threading.Thread(target=recorder.mark, args=("profiled_step", "torch"))
    another_thread.start()
    another_thread.join()
    reported = report(recorder)
    assert reported["marker"] == "profiled_step"
    assert reported["steps_seen"] == 1


def test_before_the_program_runs_the_profiler_itself_the_recording_ends(
    recorder: Recorder, diary: Diary
) -> None:
    take(3, recorder)
    recorder.give_way()
    assert diary.asked[-1] == "stop"
    reported = report(recorder)
    assert reported["steps_recorded"] == 1
    assert reported["hindrance"] == "the program started the profiler itself"


def test_without_a_whole_step_it_begins_again_when_the_program_s_profiler_is_done(
    recorder: Recorder, diary: Diary
) -> None:
    diary.reason = "the program runs the profiler itself"
    take(1, recorder)
    # That it was running is told before the warm-up, too.
    reported = report(recorder)
    assert reported["steps_seen"] == 1
    assert reported["hindrance"] == diary.reason
    assert reported["trace"] is None

    diary.reason = ""
    take(1, recorder)
    recorder.give_way()
    assert diary.asked == ["settle", "settle", "start", "begin 2", "forget"]

    diary.asked.clear()
    take(3, recorder)
    recording_again = ["settle", "start", "begin 3", "end 3", "begin 4", "end 4", "settle", "stop"]
    assert diary.asked == recording_again


@pytest.mark.parametrize("asked", ["start", "end 2", "end 3", "stop"])
def test_a_profiler_that_fails_does_not_disturb_the_program(
    recorder: Recorder, diary: Diary, asked: str
) -> None:
    diary.failing = asked
    take(5, recorder)
    reported = report(recorder)
    assert reported["hindrance"] == "the profiler failed (RuntimeError: no counters)"
    assert reported["trace"] is None
    # It is stopped, as well as it can be.
    assert diary.asked[-2:] == [asked, "forget"]


def test_an_error_of_the_program_s_own_work_ends_the_recording(
    recorder: Recorder, diary: Diary
) -> None:
    take(3, recorder)
    diary.failing = "settle"
    with pytest.raises(RuntimeError, match="no counters"):
        take(1, recorder)
    assert diary.asked[-2:] == ["settle", "stop"]
    assert report(recorder)["steps_recorded"] == 2


def test_a_folder_that_is_gone_does_not_disturb_the_program(
    recorder: Recorder, diary: Diary
) -> None:
    shutil.rmtree(recorder.folder)
    take(5, recorder)
    assert diary.asked[-1] == "stop"


def test_a_marked_step_counts_under_the_command_and_does_nothing_without_it(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with profiled_step():
        pass
    assert report(recorder)["steps_seen"] == 0
    monkeypatch.setitem(sys.modules, RECORDER, recorder_module)
    monkeypatch.setattr(recorder_module, "_recorder", recorder)
    with profiled_step():
        # A step counts when it is over.
        assert report(recorder)["steps_seen"] == 0
    assert report(recorder)["steps_seen"] == 1
    with pytest.raises(ValueError, match="of the program"), profiled_step():
        raise ValueError("of the program")
    assert report(recorder)["steps_seen"] == 1


@pytest.mark.parametrize("captures", [True, False])
def test_steps_count_only_while_no_graph_is_captured(
    captures: bool,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    require: Callable[[str], None],
) -> None:
    """Ending a recording within a capture would end the program; here no GPU captures really."""
    require("torch")
    import torch

    profiler = TorchProfiler(torch)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: captures)
    monkeypatch.setattr(
        torch.optim.Optimizer, "profile_hook_step", torch.optim.Optimizer.profile_hook_step
    )
    mark_optimizers(torch, recorder, profiler)

    class Stepping(torch.optim.Optimizer):  # type: ignore[misc]
        def step(self) -> None:
            pass

    optimizer = Stepping([torch.zeros(1)], {})
    for _ in range(3):
        optimizer.step()
    assert recorder.seen["optimizer"] == (0 if captures else 3)
