"""A job whose rank reached its memory limit goes on from its checkpoint; a file that is none is refused."""

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.parallel_core.jobs.failures.jobs import BATCH_SIZE, STEPS, start, synthetic_losses

pytestmark = pytest.mark.long

HOST = socket.gethostname()


def test_a_job_that_is_restarted_gives_the_losses_of_an_undisturbed_training(framework: str, tmp_path: Path) -> None:
    """A rank reaches its memory limit; after that the next run works."""
    keep = ("--checkpoint", str(tmp_path / "files"), "--checkpoint-steps", "2")
    with start("runs_out_of_memory", framework, tmp_path, *keep, at=4, json=True, options=["--restarts", "1"]) as job:
        ended = job.end()
        losses = json.loads((job.files / "result.json").read_text())["series"]["loss"]
        assert sorted(path.name for path in job.files.iterdir()) == ["checkpoint.npz", "result.json"]
    assert ended.status == 0
    # The framework's own words: std::bad_alloc, DefaultCPUAllocator: can't allocate memory.
    assert re.match(rf"rank 1 on {HOST}: .*alloc.*; restart 1 of 1, from the last checkpoint$", ended.verdict)
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
    assert ended.verdict.startswith(f"rank 0 on {HOST}: {checkpoint} is no whole checkpoint")
    assert checkpoint.read_bytes() == b"PK\3\4 and no more"
