"""Training on several processes is the training on one: same losses, same parameters everywhere, on each framework."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parallel_core.training.lenet import initial_parameters
from tests.parallel_core.jobs.failures.jobs import synthetic_losses
from tests.parallel_core.jobs.failures.rank import STRUCK
from tests.parallel_core.training.test_steps import numpy_losses

pytestmark = pytest.mark.long

DEADLINE = 120
STEPS = 5
ROOT = Path(__file__).parents[4]


def result_of(launch: tuple[str, ...], tmp_path: Path, *options: str) -> dict[str, Any]:
    """Run data-parallel under a module that launches it, and return the result's object."""
    result = tmp_path / "result.json"
    run = ("run", "data-parallel", "--epochs", "1", "--limit", str(STEPS), "--json", str(result), *options)
    done = subprocess.run(
        [sys.executable, "-m", *launch, *run],
        # Ranks are started without the working directory on their path.
        env={**os.environ, "PYTHONPATH": str(ROOT), STRUCK: str(tmp_path / "struck")},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(result.read_text()))


@pytest.mark.parametrize(("framework", "processes"), [("jax", 3), ("mxnet", 3), ("torch", 2)])
def test_several_processes_of_two_devices_and_uneven_shards(
    framework: str, processes: int, require: Callable[[str], None], tmp_path: Path
) -> None:
    """The images are synthetic: nothing is read, and the test set is small."""
    require(framework)
    program = "tests.parallel_core.jobs.failures.launcher"
    launch = (program, "only_tells", "0", "0", "launch", "--processes", str(processes), "--backend", framework, "--")
    result = result_of(launch, tmp_path, "--devices", "2", "--batch-size", "27", "--exchange", "during")
    np.testing.assert_allclose(result["series"]["loss"], synthetic_losses(27, STEPS), rtol=1e-4)
    assert result["checks"]["max_replica_difference"] == 0
    assert result["backend"]["processes"] == processes
    assert len(result["backend"]["hosts"]) == processes
    assert result["metrics"]["scaling_efficiency"] > 0
    assert result["metrics"]["exchanged_bytes"] == STEPS * sum(array.nbytes for array in initial_parameters())


def test_torchrun_launches_it_too(require: Callable[[str], None], tmp_path: Path) -> None:
    require("torch")
    launch = ("torch.distributed.run", "--standalone", "--nproc-per-node", "3", "-m", "parallel_core")
    result = result_of(launch, tmp_path, "--backend", "torch", "--batch-size", "24")
    np.testing.assert_allclose(result["series"]["loss"], numpy_losses(24, steps=STEPS), rtol=1e-4)
    assert result["checks"]["max_replica_difference"] == 0
    assert result["backend"]["processes"] == 3
    assert result["parameters"]["processes"] == 3
