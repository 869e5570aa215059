"""A program under the recorder is as it is alone, and a recording that lacks steps is told."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from parallel_core.system.errors import RequestError
from parallel_core.traces.profile.running import (
    Recorded,
    interpreted,
    recorded_in,
    run_program,
    why_incomplete,
)
from tests.conftest import RunProgram


def run(tmp_path: Path, code: str) -> int:
    """Run a program under the recorder, and return its exit status."""
    return run_program((sys.executable, "-c", code), tmp_path, 3, 5)


def test_the_exit_status_the_path_and_the_modules_are_the_program_s(
    tmp_path: Path, program: RunProgram
) -> None:
    assert run(tmp_path, "import os; os.kill(os.getpid(), 9)") == -signal.SIGKILL
    check = (
        "import sys; assert not any('traces/profile' in entry for entry in sys.path); "
        "assert not {'torch', 'parallel_core', 'backends', 'click'} & {*sys.modules}; "
        "raise SystemExit(7)"
    )
    done = program("profile", "--output", str(tmp_path), "--", sys.executable, "-c", check)
    assert done.returncode == 7
    assert done.stdout == ""


def test_a_sitecustomize_of_the_user_s_runs_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "of the user"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import builtins; builtins.set_by_user = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    check = (
        "import sitecustomize; assert set_by_user == 1; "
        f"assert sitecustomize.__file__.startswith({str(folder)!r})"
    )
    # Its children have it, too.
    assert run(tmp_path, f"{check}; {in_child(check)}") == 0


def in_child(code: str) -> str:
    """Return a program that runs another one, and ends with its status."""
    call = f"subprocess.call([sys.executable, '-c', {code!r}])"
    return f"import subprocess, sys; sys.exit({call})"


def test_a_framework_is_hooked_wherever_it_is_imported_and_keeps_its_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module called mxnet that cannot be hooked says so in a report, and nothing else changes."""
    (tmp_path / "mxnet.py").write_text("value = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # Some libraries look whether a framework is installed before they import it.
    check = (
        "from importlib.util import find_spec; assert find_spec('mxnet') and find_spec('mxnet'); "
        "import mxnet; assert mxnet.value == 1; "
        "assert type(mxnet.__loader__).__name__ == 'SourceFileLoader'"
    )
    assert run(tmp_path, in_child(check)) == 0
    (process,) = recorded_in(tmp_path)
    assert process.framework == "mxnet"
    assert "AttributeError" in process.failure
    reason = why_incomplete([process], 3, 5)
    assert reason == f"the recorder could not hook mxnet: {process.failure}"


def test_scripts_and_modules_run_with_this_python_and_a_missing_command_is_one_line(
    tmp_path: Path,
) -> None:
    script = ("train.py", "--epochs", "1")
    assert interpreted(script) == (sys.executable, *script)
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
    assert process.returncode == -signal.SIGINT
    assert rest == ""
    assert "KeyboardInterrupt" in errors
    last_line = errors.splitlines()[-1]
    assert last_line.startswith("parallel-core: nothing was recorded: no Python process")


def test_a_signal_to_the_group_reaches_the_program_once(tmp_path: Path) -> None:
    code = """if True:
        import os, signal, time
        taken = []
        signal.signal(signal.SIGTERM, lambda number, _: taken.append(number))
        os.killpg(os.getpgrp(), signal.SIGTERM)
        time.sleep(0.5)
        os.killpg(os.getpgrp(), signal.SIGTERM)
        time.sleep(0.5)
        print(len(taken))
    """
    run_it = (
        "import sys, pathlib; from parallel_core.traces.profile.running import run_program; "
        f"run_program((sys.executable, '-c', {code!r}), pathlib.Path({str(tmp_path)!r}), 3, 5)"
    )
    command = (sys.executable, "-c", run_it)
    done = subprocess.run(
        command, capture_output=True, text=True, start_new_session=True, check=True
    )
    assert done.stdout == "2\n"


@pytest.mark.parametrize(
    ("seen", "recorded", "hindrance", "line"),
    [
        (0, 0, "", "no step was seen: no optimizer of torch, no trainer of mxnet"),
        (
            1,
            0,
            "",
            (
                "nothing was recorded in the 1 step seen: the program ended, "
                "and 3 to warm up and 5 to record"
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
    process = Recorded(
        pid=1,
        framework="torch",
        marker="optimizer",
        steps_seen=seen,
        steps_recorded=recorded,
        hindrance=hindrance,
    )
    idle_process = Recorded(pid=2, framework="torch", marker="optimizer")
    assert why_incomplete([idle_process, process], 3, 5).startswith(line)


def test_of_a_process_with_a_trace_nothing_is_missing() -> None:
    process = Recorded(pid=1, framework="torch", steps_recorded=5, trace=Path("trace"))
    assert why_incomplete([process], 3, 5) == ""
