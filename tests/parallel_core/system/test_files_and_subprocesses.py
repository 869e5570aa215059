"""Result files are whole or not there; of processes under a deadline all that they say is kept, and
nothing is left.
"""

import asyncio
import errno
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest

from parallel_core.system import files
from parallel_core.system.files import check_outputs, check_writable, remove_unfinished, write_whole
from parallel_core.system.subprocesses import Outcome, supervise
from tests.parallel_core.jobs.ranks import are_gone


def test_a_file_is_replaced_when_it_is_complete_and_a_link_is_followed(tmp_path: Path) -> None:
    path, link = tmp_path / "result.json", tmp_path / "link.json"
    path.write_text("old")
    link.symlink_to(path)
    for target, content in ((path, b"new"), (link, b"newer")):
        check_writable(target)
        write_whole(target, lambda stream, content=content: stream.write(content))
        assert path.read_bytes() == content
    assert link.is_symlink()
    names = sorted(entry.name for entry in tmp_path.iterdir())
    assert names == ["link.json", "result.json"]


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))]
)
def test_a_failure_leaves_the_older_file_and_nothing_else(
    tmp_path: Path, error: BaseException
) -> None:
    """A full disk is told with the file that it has no room for."""
    path = tmp_path / "result.json"
    path.write_text("old")

    def fail(stream: BinaryIO) -> None:
        stream.write(b"half")
        raise error

    with pytest.raises(type(error)) as raised:
        write_whole(path, fail)
    assert getattr(raised.value, "filename", str(path)) == str(path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


def test_a_pipe_is_written_to_by_the_name_of_its_descriptor() -> None:
    reading, writing = os.pipe()
    path = Path(f"/dev/fd/{writing}")
    check_outputs(path)
    write_whole(path, lambda stream: stream.write(b"anything"))
    os.close(writing)
    assert os.read(reading, 100) == b"anything"
    os.close(reading)


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in ("kept.npz", ".kept.npz.abcdefgh", ".other.npz.abcdefgh", "kept.npz.1"):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path / "kept.npz")
    names = sorted(entry.name for entry in tmp_path.iterdir())
    assert names == [".other.npz.abcdefgh", "kept.npz", "kept.npz.1"]


def test_a_new_folder_is_no_other_run_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    clock = SimpleNamespace(datetime=SimpleNamespace(now=lambda: noon))
    monkeypatch.setattr(files, "datetime", clock)
    folders = [files.make_dated_folder(tmp_path / "runs", "comparison") for _ in range(3)]
    assert [str(folder.relative_to(tmp_path)) for folder in folders] == [
        "runs/comparison-20260131-120000",
        "runs/comparison-20260131-120000-2",
        "runs/comparison-20260131-120000-3",
    ]
    assert all(folder.is_dir() for folder in folders)


def run(code: str, cores: set[int] | None = None) -> Outcome:
    """Return how a Python ended that ran this code, on some cores or on all."""
    return asyncio.run(supervise([sys.executable, "-c", code], 30, cores or set()))


def test_output_errors_and_status_are_returned() -> None:
    """Much output does not block."""
    outcome = run(
        "import sys; print('x' * 3_000_000); print('trouble', file=sys.stderr); sys.exit(3)"
    )
    assert outcome.status == 3
    assert len(outcome.output) == 3_000_001
    assert outcome.errors == "trouble\n"
    assert not outcome.timed_out
    assert outcome.reason(30) == "trouble"


# A shell prints the number of its child, which would sleep for ever, and waits for it, or ends.
@pytest.mark.parametrize(
    ("then", "deadline", "timed_out"), [("wait", 3, True), ("exit 0", 60, False)]
)
def test_nothing_is_left_of_a_process_that_hangs_or_ends(
    then: str, deadline: int, timed_out: bool
) -> None:
    command = ["sh", "-c", f"sleep 1000 & echo $!; {then}"]
    outcome = asyncio.run(supervise(command, deadline, set()))
    killed = f"gave no result within {deadline} s and was killed"
    assert outcome.timed_out == timed_out
    assert (outcome.reason(deadline) == killed) == timed_out
    child = outcome.output.strip()
    assert are_gone([child])


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV"),
        (
            "os.kill(os.getpid(), signal.SIGRTMIN + 3)",
            f"was killed by signal {signal.SIGRTMIN + 3}",
        ),
        ("raise SystemExit(7)", "ended with status 7 and no message"),
    ],
)
def test_how_a_process_ended_is_said(code: str, reason: str) -> None:
    assert run(f"import os, signal; {code}").reason(30) == reason


def test_a_process_keeps_to_the_cores_given() -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    assert run("import os; print(os.sched_getaffinity(0))", {core}).output.strip() == str({core})
    assert os.sched_getaffinity(0) == before
