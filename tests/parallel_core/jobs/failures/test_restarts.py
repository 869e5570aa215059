"""A job whose rank reached its memory limit goes on from its checkpoint; one whose checkpoint is none does not."""

import json
import re
import socket
from collections.abc import Sequence
from pathlib import Path

from tests.parallel_core.jobs.failures.jobs import Job, start

HOST = socket.gethostname()


def losses(job: Job) -> Sequence[float]:
    return json.loads((job.files / "result.json").read_text())["series"]["loss"]


def test_a_job_that_is_restarted_gives_the_losses_of_an_undisturbed_one(framework: str, tmp_path: Path) -> None:
    """It crashes where a rank reaches its memory limit; after that the next run works."""
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    with start("only_tells", framework, undisturbed, json=True) as job:
        assert job.end().status == 0
        expected = losses(job)
    keep = ("--checkpoint", str(disturbed / "files"), "--checkpoint-steps", "2")
    with start("runs_out_of_memory", framework, disturbed, *keep, at=4, json=True, options=["--restarts", "1"]) as job:
        ended = job.end()
        found = losses(job)
        assert sorted(path.name for path in job.files.iterdir()) == ["checkpoint.npz", "result.json"]
    assert ended.status == 0
    # The framework's own words: std::bad_alloc, DefaultCPUAllocator: can't allocate memory.
    assert re.match(rf"rank 1 on {HOST}: .*alloc.*; restart 1 of 1, from the last checkpoint$", ended.verdict)
    assert len(expected) == 6
    assert found == expected


def test_a_checkpoint_that_is_none(framework: str, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    checkpoint = tmp_path / "files" / "checkpoint.npz"
    checkpoint.write_bytes(b"PK\3\4 and no more")
    with start("only_tells", framework, tmp_path, "--checkpoint", str(tmp_path / "files"), "--resume") as job:
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"rank 0 on {HOST}: {checkpoint} is no whole checkpoint")
    assert checkpoint.read_bytes() == b"PK\3\4 and no more"
