"""`--checkpoint`, `--checkpoint-steps` and `--resume`, as a user meets them: one line for whatever is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from parallel_core.training.checkpoints import FILE

# The program on a few made-up images; its files may be no longer than `most`, where the operating system then refuses
# in the middle of a write, as it does on a full disk.
PROGRAM = """
import resource, signal, sys
most = int(sys.argv.pop(1))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
from parallel_core.command_line.run import resources
from parallel_core.training.dataset import synthetic
resources.load_fashion_mnist = lambda _: synthetic("a test needs no more", train=40, test=5)
from parallel_core.__main__ import main
main()
"""
TRAINING = ("run", "data-parallel", "--backend", "numpy", "--batch-size", "16", "--json", "-")


def train(*arguments: str, most: int = 10**9) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", PROGRAM, str(most), *TRAINING, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ}, check=False)


def said(done: "subprocess.CompletedProcess[str]") -> str:
    assert "Traceback" not in done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("parallel-core: "))
    return line


def test_a_job_that_is_started_again_and_again_with_the_same_options_gets_there(tmp_path: Path) -> None:
    options = ("--checkpoint", str(tmp_path), "--checkpoint-steps", "2", "--resume")
    first = train("--epochs", "1", *options)
    assert first.returncode == 0, first.stderr
    assert said(first).endswith(f"no checkpoint in {tmp_path} yet: training starts from the beginning")
    second = train("--epochs", "2", *options)
    assert second.returncode == 0, second.stderr
    at_once = train("--epochs", "2")
    found, expected = (json.loads(done.stdout)["series"] for done in (second, at_once))
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    assert found["test_accuracy"] == expected["test_accuracy"]
    assert [entry.name for entry in tmp_path.iterdir()] == [FILE]


def test_bad_requests_and_damaged_files_are_one_line_each(tmp_path: Path) -> None:
    options = ("--epochs", "1", "--checkpoint", str(tmp_path))
    assert train(*options).returncode == 0
    path = tmp_path / FILE
    for arguments, status, told in (
        (options, 2, f"{path} exists: add --resume to go on from it, or remove it"),
        ((*options, "--resume", "--lr", "0.1"), 2, "the checkpoint was trained with --lr 0.2, and not 0.1"),
    ):
        done = train(*arguments)
        assert (done.returncode, said(done)) == (status, f"parallel-core: {told}")
    path.write_bytes(path.read_bytes()[:-1000])
    done = train(*options, "--resume")
    assert done.returncode == 1
    assert said(done).startswith(f"parallel-core: {path} is no whole checkpoint (")


@pytest.mark.parametrize("before", [True, False])
def test_a_full_disk_costs_neither_the_old_checkpoint_nor_a_traceback(tmp_path: Path, before: bool) -> None:
    options = ("--checkpoint", str(tmp_path))
    if before:
        assert train("--epochs", "1", *options).returncode == 0
        options += ("--resume",)
    old = [entry.read_bytes() for entry in tmp_path.iterdir()]
    full = train("--epochs", "2", *options, most=100_000)
    assert full.returncode == 1
    line = said(full)
    assert line.startswith(f"parallel-core: cannot write {tmp_path / FILE} (")
    assert "the older one is whole" in line if before else "there is no older one" in line
    assert line.endswith("make room there, then go on with --resume")
    assert [entry.read_bytes() for entry in tmp_path.iterdir()] == old
