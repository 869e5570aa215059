"""Ranks that others start keep their deadline: of one that dies or hangs no other is left, and one line names it."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from backends.process_groups.addresses import free_port
from tests.parallel_core.jobs.failures.jobs import BATCH_SIZE, DEADLINE, STEPS, TRAINING, synthetic_losses
from tests.parallel_core.jobs.failures.rank import STRUCK

pytestmark = pytest.mark.long

FAULTY = "tests.parallel_core.jobs.failures.rank"
PATIENCE = 200


def torchrun(*options: str) -> Sequence[str]:
    return (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *options, "-m")


def mpirun() -> Sequence[str]:
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed: apt-get install openmpi-bin")
    place = ("-x", "MASTER_ADDR=127.0.0.1", "-x", f"MASTER_PORT={free_port('127.0.0.1')}")
    return ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", *place, sys.executable, "-m")


def ended(starter: Sequence[str], fault: str, root: Path, tmp_path: Path, *options: str) -> tuple[int, str]:
    """Start two ranks, a fault in rank 1; return the status and standard error when none of them is left."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(root),
        STRUCK: str(tmp_path / "struck"),
        "PARALLEL_CORE_TIMEOUT": str(DEADLINE if fault == "hangs" else 60),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    command = [*starter, FAULTY, fault, "1", "4", *TRAINING, "--backend", "torch", *options]
    # A rank that is left would hold the pipe open.
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (tmp_path / "struck").exists()
    return done.returncode, done.stderr


@pytest.mark.parametrize("starter", [torchrun, mpirun])
@pytest.mark.parametrize("fault", ["hangs", "is_killed"])
def test_a_rank_that_hangs_or_dies_is_named_and_ends_the_others(
    starter: Callable[[], Sequence[str]], fault: str, require: Callable[[str], None], root: Path, tmp_path: Path
) -> None:
    require("torch")
    status, errors = ended(starter(), fault, root, tmp_path)
    assert status != 0
    host = socket.gethostname()
    if fault == "hangs":
        assert re.search(
            rf"parallel-core: rank 1 of 2 on {host} made no progress for {DEADLINE + 2} s: it has ", errors
        )
        assert "in hang_here" in errors
        assert not re.search("rank 0 of 2 .* made no progress", errors)
    else:
        # Who started them saw it.
        assert re.search(r"rank\s*:? 1\b.*(exitcode\s*: -9|signal 9)", errors, re.DOTALL)
    assert errors.count("parallel-core: ") <= 2


def test_torchrun_starts_again_from_the_checkpoint(require: Callable[[str], None], root: Path, tmp_path: Path) -> None:
    require("torch")
    result = tmp_path / "result.json"
    keep = ("--checkpoint", str(tmp_path / "kept"), "--checkpoint-steps", "2", "--resume", "--json", str(result))
    status, errors = ended(torchrun("--max-restarts", "1"), "is_killed", root, tmp_path, *keep)
    assert status == 0, errors
    written = json.loads(result.read_text())
    np.testing.assert_allclose(written["series"]["loss"], synthetic_losses(BATCH_SIZE, STEPS), rtol=1e-4)
    assert written["checks"]["max_replica_difference"] == 0
    assert (written["backend"]["processes"], written["parameters"]["processes"]) == (2, 2)
