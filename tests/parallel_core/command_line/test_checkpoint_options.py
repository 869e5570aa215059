"""`--checkpoint`, `--checkpoint-steps` and `--resume`, as a user meets them: one line for whatever is wrong."""

import json
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from parallel_core.command_line.run import resources
from parallel_core.training.checkpoints import FILE
from parallel_core.training.dataset import synthetic
from tests.conftest import RunProgram

Train = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def train(program: RunProgram, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Train on a few images; a file may be no longer than `most`, as if the disk became full in a write."""
    data = synthetic("a test needs no more", train=40, test=5)
    monkeypatch.setattr(resources, "load_fashion_mnist", lambda _: data)
    training = ("run", "data-parallel", "--backend", "numpy", "--batch-size", "16", "--json", "-")

    def run(*arguments: str, most: int | None = None) -> "subprocess.CompletedProcess[str]":
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most or before[0], before[1]))
            return program(*training, *arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return run


def said(done: "subprocess.CompletedProcess[str]") -> str:
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("parallel-core: "))
    return line.removeprefix("parallel-core: ")


def test_a_job_that_is_started_again_and_again_with_the_same_options_gets_there(train: Train, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "with those above"
    options = ("--checkpoint", str(folder), "--checkpoint-steps", "2", "--resume")
    first = train("--epochs", "1", *options)
    assert first.returncode == 0, first.stderr
    assert said(first) == f"no checkpoint in {folder} yet: training starts from the beginning"
    second = train("--epochs", "2", *options)
    assert second.returncode == 0, second.stderr
    found, expected = (json.loads(done.stdout)["series"] for done in (second, train("--epochs", "2")))
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    assert found["test_accuracy"] == expected["test_accuracy"]
    assert [entry.name for entry in folder.iterdir()] == [FILE]


def test_bad_requests_full_disks_and_damaged_files_are_one_line_each(train: Train, tmp_path: Path) -> None:
    path, options = tmp_path / FILE, ("--epochs", "2", "--checkpoint", str(tmp_path))
    full = train(*options, most=100_000)
    assert (full.returncode, [*tmp_path.iterdir()]) == (1, [])
    assert said(full).startswith(f"cannot write {path} (")
    assert "there is no older one" in said(full)
    assert train("--epochs", "1", *options[2:]).returncode == 0
    old = path.read_bytes()
    full = train(*options, "--resume", most=100_000)
    assert (full.returncode, [*tmp_path.iterdir()], path.read_bytes()) == (1, [path], old)
    assert "the older one is whole" in said(full)
    for arguments, status, told in (
        (options, 2, f"{path} exists: add --resume to go on from it, or remove it"),
        ((*options, "--resume", "--lr", "0.1"), 2, "the checkpoint was trained with --lr 0.2, and not 0.1"),
    ):
        done = train(*arguments)
        assert (done.returncode, said(done)) == (status, told)
    path.write_bytes(old[:-1000])
    done = train(*options, "--resume")
    assert done.returncode == 1
    assert said(done).startswith(f"{path} is no whole checkpoint (")
