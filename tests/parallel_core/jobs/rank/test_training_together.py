"""Training on several processes is the training on one: same losses, same parameters everywhere, on each framework."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parallel_core.training.lenet import initial_parameters
from tests.parallel_core.jobs.failures.jobs import synthetic_losses
from tests.parallel_core.jobs.failures.rank import STRUCK

pytestmark = pytest.mark.long

DEADLINE = 120
STEPS = 5
ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(("framework", "processes"), [("jax", 3), ("mxnet", 3), ("torch", 2)])
def test_several_processes_of_two_devices_and_uneven_shards(
    framework: str, processes: int, require: Callable[[str], None], tmp_path: Path
) -> None:
    """The images are synthetic: nothing is read, and the test set is small."""
    require(framework)
    path = tmp_path / "result.json"
    options = ("--devices", "2", "--batch-size", "27", "--exchange", "during", "--limit", str(STEPS), "--epochs", "1")
    launch = ("tests.parallel_core.jobs.failures.launcher", "only_tells", "0", "0", "launch")
    which = ("--processes", str(processes), "--backend", framework, "--", "run", "data-parallel")
    done = subprocess.run(
        [sys.executable, "-m", *launch, *which, *options, "--json", str(path)],
        # Ranks are started without the working directory on their path.
        env={**os.environ, "PYTHONPATH": str(ROOT), STRUCK: str(tmp_path / "struck")},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(path.read_text())
    np.testing.assert_allclose(result["series"]["loss"], synthetic_losses(27, STEPS), rtol=1e-4)
    assert result["checks"]["max_replica_difference"] == 0
    assert result["backend"]["processes"] == processes
    assert len(result["backend"]["hosts"]) == processes
    assert result["metrics"]["scaling_efficiency"] > 0
    assert result["metrics"]["exchanged_bytes"] == STEPS * sum(array.nbytes for array in initial_parameters())
