"""A program under the recorder is as it is alone, and a recording that lacks steps is told."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
            ("no step was seen: no optimizer of torch, no trainer of mxnet"),
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
