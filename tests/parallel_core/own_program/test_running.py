"""A program under the recorder is as it is alone, and which of a process's steps are counted and
recorded.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from parallel_core import profiled_step
from parallel_core.own_program import recorder as recorder_module
from parallel_core.own_program.bootstrap.sitecustomize import RECORDER
from parallel_core.own_program.recorder import CoreTime, Recorder, core_times, core_wait_share
from parallel_core.own_program.running import (
    Recorded,
    interpreted,
    recorded_in,
    run_program,
    why_incomplete,
)
from parallel_core.system.errors import RequestError
from tests.conftest import RunProgram


def run(tmp_path: Path, code: str) -> int:
    return run_program((sys.executable, "-c", code), tmp_path, 3, 5)


def test_the_exit_status_the_path_and_the_modules_are_the_program_s(
    tmp_path: Path, program: RunProgram
) -> None:
    assert run(tmp_path, "import os; os.kill(os.getpid(), 9)") == -signal.SIGKILL
    check = "import sys; assert not any('own_program' in entry for entry in sys.path); "
    check += (
        "assert not {'torch', 'parallel_core', 'backends', 'click'} & {*sys.modules}; raise "
        "SystemExit(7)"
    )
    done = program("profile", "--output", str(tmp_path), "--", sys.executable, "-c", check)
    assert (done.returncode, done.stdout) == (7, "")


def test_a_sitecustomize_of_the_user_s_runs_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins; builtins.mine = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(own))
    check = (
        "import sitecustomize; assert mine == 1 and "
        f"sitecustomize.__file__.startswith({str(own)!r})"
    )
    # Its children have it, too.
    code = (
        f"{check}; import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', "
        f"{check!r}]))"
    )
    assert run(tmp_path, code) == 0


def test_a_framework_is_hooked_wherever_it_is_imported_and_keeps_its_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module called mxnet that cannot be hooked says so in a report, and nothing else changes."""
    (tmp_path / "mxnet.py").write_text("value = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # Some libraries look whether a framework is installed before they import it.
    check = (
        "from importlib.util import find_spec; assert find_spec('mxnet') and find_spec('mxnet'); "
    )
    check += (
        "import mxnet; assert mxnet.value == 1; assert type(mxnet.__loader__).__name__ == "
        "'SourceFileLoader'"
    )
    assert (
        run(
            tmp_path,
            f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {check!r}]))",
        )
        == 0
    )
    (found,) = recorded_in(tmp_path)
    assert found.framework == "mxnet"
    assert "AttributeError" in found.failure
    assert why_incomplete([found], 3, 5) == f"the recorder could not hook mxnet: {found.failure}"


def test_scripts_and_modules_run_with_this_python_and_a_missing_command_is_one_line(
    tmp_path: Path,
) -> None:
    assert interpreted(("train.py", "--epochs", "1")) == (
        sys.executable,
        "train.py",
        "--epochs",
        "1",
    )
    assert interpreted(("-m", "package.train")) == (sys.executable, "-m", "package.train")
    assert interpreted(("sh", "-c", "true"))[1:] == ("-c", "true")
    with pytest.raises(RequestError, match="cannot run no-such-program: No such file"):
        run_program(interpreted(("no-such-program",)), tmp_path, 3, 5)


def test_streams_and_signals_pass_through_and_an_interrupt_ends_both(tmp_path: Path) -> None:
    code = """if True:
        import signal, sys, time
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, lambda number, _: print(signal.Signals(number).name, flush=True))
        print("read", sys.stdin.readline(), end="", flush=True)
        for _ in range(300): time.sleep(0.1)
    """
    command = (
        sys.executable,
        "-m",
        "parallel_core",
        "profile",
        "--output",
        tmp_path,
        "--",
        sys.executable,
        "-c",
        code,
    )
    pipe = subprocess.PIPE
    # Without a terminal, which would send the interrupt to the program itself.
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("a line\n")
        process.stdin.flush()
        assert process.stdout.readline() == "read a line\n"
        for number in (signal.SIGUSR1, signal.SIGTERM):
            process.send_signal(number)
            assert process.stdout.readline() == f"{number.name}\n"
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest) == (-signal.SIGINT, "")
    assert "KeyboardInterrupt" in errors
    assert errors.split("\n")[-2].startswith(
        "parallel-core: nothing was recorded: no Python process"
    )


@pytest.mark.parametrize(
    ("seen", "recorded", "hindrance", "line"),
    [
        (
            0,
            0,
            "",
            (
                "no step was seen: no optimizer of torch and no trainer of mxnet has stepped; put "
                "each "
                "step"
            ),
        ),
        (
            1,
            0,
            "",
            (
                "nothing was recorded in the 1 step seen: the program ended, and 3 to warm up and "
                "5 to "
                "record"
            ),
        ),
        (
            3,
            0,
            "the program ended",
            "nothing was recorded in the 3 steps seen: the program ended, and 3 to warm up",
        ),
        (
            9,
            0,
            "the program runs the profiler itself",
            "nothing was recorded in the 9 steps seen: the program runs",
        ),
        (5, 2, "the program ended", "2 steps of 5 recorded, then the program ended"),
        (5, 2, "", "2 steps of 5 recorded, then the program was killed"),
        (
            8,
            5,
            "the profiler failed (OSError)",
            "5 steps of 5 recorded, then the profiler failed (OSError)",
        ),
    ],
)
def test_fewer_steps_than_asked_for_are_one_line(
    seen: int, recorded: int, hindrance: str, line: str
) -> None:
    one = Recorded(1, "torch", None, "optimizer", seen, recorded, None, hindrance)
    idle = Recorded(2, "torch", None, "optimizer")
    assert why_incomplete([idle, one], 3, 5).startswith(line)
    assert (
        why_incomplete([Recorded(1, "torch", None, "optimizer", 8, 5, Path("trace"))], 3, 5) == ""
    )


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
    own = str(threading.get_native_id())
    before, ran_until = core_times()[own], time.thread_time() + 0.05
    while time.thread_time() < ran_until:
        pass
    after = core_times()[own]
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
    made = Recorder(tmp_path, warm_up=2, steps=2)
    made.add(diary)
    return made


def report(recorder: Recorder) -> dict[str, Any]:
    (path,) = recorder.folder.glob("*.report")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def take(steps: int, recorder: Recorder) -> None:
    for _ in range(steps):
        recorder.mark("optimizer", "torch")


def test_it_records_whole_steps_after_the_warm_up_and_no_more(
    recorder: Recorder, diary: Diary
) -> None:
    take(9, recorder)
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
    found = report(recorder)
    assert (found["steps_seen"], found["steps_recorded"], found["rank"]) == (4, 2, 3)
    assert found["trace"] == f"{os.getpid()}.json"
    assert found["unprofiled_step_seconds"] > 0, (
        "the second step was seen from end to end before the recording"
    )


def test_what_the_program_marks_itself_counts_before_what_is_found(recorder: Recorder) -> None:
    for marker in ("optimizer", "profiled_step", "optimizer", "profiler"):
        recorder.mark(marker)  # type: ignore[arg-type]
    # Nor do the steps of another thread.
    other = threading.Thread(target=recorder.mark, args=("profiled_step", "torch"))
    other.start()
    other.join()
    assert (report(recorder)["marker"], report(recorder)["steps_seen"]) == ("profiled_step", 1)


def test_before_the_program_runs_the_profiler_itself_the_recording_ends(
    recorder: Recorder, diary: Diary
) -> None:
    take(3, recorder)
    recorder.give_way()
    assert diary.asked[-1] == "stop"
    found = report(recorder)
    assert (found["steps_recorded"], found["hindrance"]) == (
        1,
        "the program started the profiler itself",
    )


def test_without_a_whole_step_it_begins_again_when_the_program_s_profiler_is_done(
    recorder: Recorder, diary: Diary
) -> None:
    diary.reason = "the program runs the profiler itself"
    take(1, recorder)
    # That it was running is told before the warm-up, too.
    found = report(recorder)
    assert (found["steps_seen"], found["hindrance"], found["trace"]) == (1, diary.reason, None)
    diary.reason = ""
    take(1, recorder)
    recorder.give_way()
    take(3, recorder)
    assert diary.asked == [
        *("settle", "settle", "start", "begin 2", "forget"),
        *("settle", "start", "begin 3", "end 3", "begin 4", "end 4", "settle", "stop"),
    ]


@pytest.mark.parametrize("asked", ["start", "end 2", "end 3", "stop"])
def test_a_profiler_that_fails_does_not_disturb_the_program(
    recorder: Recorder, diary: Diary, asked: str
) -> None:
    diary.failing = asked
    take(5, recorder)
    found = report(recorder)
    assert (found["hindrance"], found["trace"]) == (
        "the profiler failed (RuntimeError: no counters)",
        None,
    )
    assert diary.asked[-2:] == [asked, "forget"], "it is stopped, as well as it can be"


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
        assert report(recorder)["steps_seen"] == 0, "a step counts when it is over"
    assert report(recorder)["steps_seen"] == 1
    with pytest.raises(ValueError, match="of the program"), profiled_step():
        raise ValueError("of the program")
    assert report(recorder)["steps_seen"] == 1
