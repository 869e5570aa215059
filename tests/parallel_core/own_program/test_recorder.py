"""How a process's steps are counted, and which of them are recorded."""

import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from parallel_core import profiled_step
from parallel_core.own_program import recorder as recorder_module
from parallel_core.own_program.bootstrap.sitecustomize import RECORDER
from parallel_core.own_program.recorder import Recorder


class Diary:
    """A profiler that notes what it is asked for."""

    framework = "torch"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.reason = ""
        self.failing = ""

    def unavailable(self) -> str:
        return self.reason

    def settle(self) -> None:
        self.note("settle")

    def start(self) -> None:
        self.note("start")

    def stop(self, path: Path | None) -> None:
        self.note("stop" if path else "forget")

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        self.note(f"begin {number}")
        yield
        self.note(f"end {number}")

    def note(self, asked: str) -> None:
        self.asked.append(asked)
        if asked == self.failing:
            raise RuntimeError("no counters")

    def rank(self) -> int | None:
        return 3


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.fixture
def recorder(tmp_path: Path, diary: Diary) -> Recorder:
    made = Recorder(tmp_path, warm_up=2, steps=2)
    made.add(diary)
    return made


def report(recorder: Recorder) -> dict[str, Any]:
    (path,) = recorder.folder.glob("*.report")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_it_records_whole_steps_after_the_warm_up_and_no_more(recorder: Recorder, diary: Diary) -> None:
    for _ in range(9):
        recorder.mark("optimizer", "torch")
    assert diary.asked == ["settle", "settle", "start", "begin 2", "end 2", "begin 3", "end 3", "settle", "stop"]
    found = report(recorder)
    assert (found["steps_seen"], found["steps_recorded"], found["rank"]) == (4, 2, 3)
    assert found["trace"] == f"{os.getpid()}.json"
    assert found["unprofiled_step_seconds"] > 0, "the second step was seen from end to end before the recording"


def test_what_the_program_marks_itself_counts_before_what_is_found(recorder: Recorder) -> None:
    for marker in ("optimizer", "profiled_step", "optimizer", "profiler"):
        recorder.mark(marker)  # type: ignore[arg-type]
    # Nor do the steps of another thread.
    other = threading.Thread(target=recorder.mark, args=("profiled_step", "torch"))
    other.start()
    other.join()
    assert (report(recorder)["marker"], report(recorder)["steps_seen"]) == ("profiled_step", 1)


def test_before_the_program_runs_the_profiler_itself_the_recording_ends(recorder: Recorder, diary: Diary) -> None:
    for _ in range(3):
        recorder.mark("optimizer", "torch")
    recorder.give_way()
    assert diary.asked[-1] == "stop"
    found = report(recorder)
    assert (found["steps_recorded"], found["hindrance"]) == (1, "the program started the profiler itself")


def test_without_a_whole_step_it_begins_again_when_the_program_s_profiler_is_done(
    recorder: Recorder, diary: Diary
) -> None:
    diary.reason = "the program runs the profiler itself"
    recorder.mark("optimizer", "torch")
    # That it was running is told before the warm-up, too.
    found = report(recorder)
    assert (found["steps_seen"], found["hindrance"], found["trace"]) == (1, diary.reason, None)
    diary.reason = ""
    recorder.mark("optimizer", "torch")
    recorder.give_way()
    for _ in range(3):
        recorder.mark("optimizer", "torch")
    assert diary.asked == [
        *("settle", "settle", "start", "begin 2", "forget"),
        *("settle", "start", "begin 3", "end 3", "begin 4", "end 4", "settle", "stop"),
    ]


@pytest.mark.parametrize("asked", ["start", "end 2", "end 3", "stop"])
def test_a_profiler_that_fails_does_not_disturb_the_program(recorder: Recorder, diary: Diary, asked: str) -> None:
    diary.failing = asked
    for _ in range(5):
        recorder.mark("optimizer", "torch")
    assert (report(recorder)["hindrance"], report(recorder)["trace"]) == (
        "the profiler failed (RuntimeError: no counters)",
        None,
    )
    assert diary.asked[-2:] == [asked, "forget"], "it is stopped, as well as it can be"


def test_an_error_of_the_program_s_own_work_ends_the_recording(recorder: Recorder, diary: Diary) -> None:
    for _ in range(3):
        recorder.mark("optimizer", "torch")
    diary.failing = "settle"
    with pytest.raises(RuntimeError, match="no counters"):
        recorder.mark("optimizer", "torch")
    assert diary.asked[-2:] == ["settle", "stop"]
    assert report(recorder)["steps_recorded"] == 2


def test_a_folder_that_is_gone_does_not_disturb_the_program(recorder: Recorder, diary: Diary) -> None:
    shutil.rmtree(recorder.folder)
    for _ in range(5):
        recorder.mark("optimizer", "torch")
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
        assert report(recorder)["steps_seen"] == 0, "a step counts when it is over"
    assert report(recorder)["steps_seen"] == 1
    with pytest.raises(ValueError, match="of the program"), profiled_step():
        raise ValueError("of the program")
    assert report(recorder)["steps_seen"] == 1
