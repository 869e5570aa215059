"""What fails in one rank, computations, memory, files and disks: the rank says why, and nothing is half written."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parallel_core.training.lenet import initial_parameters
from tests.parallel_core.jobs.failures.jobs import BATCH_SIZE, STEPS, start, synthetic_losses

pytestmark = pytest.mark.long

RESTARTED = ("--processes", "2", "--restarts", "1")


@pytest.mark.parametrize(
    ("fault", "backend", "said"),
    [
        *(("fails_on_a_device", backend, f"{backend} on cpu:") for backend in ("jax", "mxnet", "torch")),
        ("computes_nan", "torch", r"the loss is nan on cpu:2 in epoch 1, step 3 "),
    ],
)
def test_what_fails_on_one_device_of_a_rank(
    fault: str, backend: str, said: str, require: Callable[[str], None], tmp_path: Path
) -> None:
    require(backend)
    with start(fault, backend, tmp_path, "--devices", "2") as job:
        ended = job.end()
    # The one line is not of the other rank, nor of what came after it.
    assert (ended.status, ended.output) == (1, "")
    assert re.match(f"rank 1: {said}", ended.verdict)


def test_a_job_that_is_restarted_gives_the_losses_of_an_undisturbed_one(framework_name: str, tmp_path: Path) -> None:
    """A rank reaches its memory limit; after that the next run works."""
    keep = ("--checkpoint", str(tmp_path / "files"), "--checkpoint-steps", "2")
    with start("runs_out_of_memory", framework_name, tmp_path, *keep, at=4, json=True, options=RESTARTED) as job:
        ended = job.end()
        losses = json.loads((job.files / "result.json").read_text())["series"]["loss"]
        assert sorted(path.name for path in job.files.iterdir()) == ["checkpoint.npz", "result.json"]
    assert ended.status == 0
    # The framework's own words: std::bad_alloc, DefaultCPUAllocator: can't allocate memory.
    assert re.match(r"rank 1: .*alloc.*; restart 1 of 1, from the last checkpoint$", ended.verdict)
    assert len(losses) == STEPS
    np.testing.assert_allclose(losses, synthetic_losses(BATCH_SIZE, STEPS), rtol=1e-4)


def test_a_checkpoint_that_is_none(require: Callable[[str], None], tmp_path: Path) -> None:
    require("torch")
    (tmp_path / "files").mkdir()
    checkpoint = tmp_path / "files" / "checkpoint.npz"
    checkpoint.write_bytes(b"PK\3\4 and no more")
    with start("only_tells", "torch", tmp_path, "--checkpoint", str(tmp_path / "files"), "--resume") as job:
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"rank 0: {checkpoint} is no whole checkpoint")
    assert checkpoint.read_bytes() == b"PK\3\4 and no more"


def test_a_file_that_the_disk_cannot_hold_is_named_and_not_left(require: Callable[[str], None], tmp_path: Path) -> None:
    require("torch")
    with start("may_write_little", "torch", tmp_path, rank=0, json=True) as job:
        ended = job.end()
        assert list(job.files.iterdir()) == []
    assert ended.status == 1
    assert re.match("rank 0: .*File too large", ended.verdict)


@pytest.mark.parametrize(("backend", "processes"), [("jax", 3), ("mxnet", 3), ("torch", 2)])
def test_nothing_fails_with_several_devices_and_uneven_shards(
    backend: str, processes: int, require: Callable[[str], None], tmp_path: Path
) -> None:
    require(backend)
    more, options = ("--devices", "2", "--exchange", "during", "--batch-size", "27"), ("--processes", str(processes))
    with start("only_tells", backend, tmp_path, *more, json=True, options=options) as job:
        ended = job.end()
        result = json.loads((job.files / "result.json").read_text())
    assert ended.status == 0, ended.errors
    np.testing.assert_allclose(result["series"]["loss"], synthetic_losses(27, STEPS), rtol=1e-4)
    assert result["checks"]["max_replica_difference"] == 0
    assert (result["backend"]["processes"], len(result["backend"]["hosts"])) == (processes, processes)
    assert result["metrics"]["scaling_efficiency"] > 0
    assert result["metrics"]["exchanged_bytes"] == STEPS * sum(array.nbytes for array in initial_parameters())
