"""Training on several processes is the training on one: same losses, same parameters everywhere, on each framework."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parallel_core.training.lenet import initial_parameters
from tests.parallel_core.experiments.training_on_multiple_gpus.test_data_parallel import STEPS, numpy_losses

DEADLINE = 120


def launched(tmp_path: Path, processes: int, framework: str, *options: str) -> dict[str, Any]:
    launch = ("parallel_core", "launch", "--processes", str(processes), "--backend", framework, "--")
    return result_of(launch, tmp_path, *options)


def result_of(launch: tuple[str, ...], tmp_path: Path, *options: str) -> dict[str, Any]:
    """Run data-parallel under a module that launches it, and return the result's object."""
    result = tmp_path / "result.json"
    run = ("run", "data-parallel", "--epochs", "1", "--limit", str(STEPS), "--json", str(result), *options)
    done = subprocess.run(
        [sys.executable, "-m", *launch, *run], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(result.read_text()))


@pytest.mark.parametrize("framework", ["torch", "mxnet"])
def test_two_processes_of_two_devices_and_uneven_shards(
    framework: str, require: Callable[[str], None], tmp_path: Path
) -> None:
    require(framework)
    result = launched(tmp_path, 2, framework, "--devices", "2", "--batch-size", "27", "--exchange", "during")
    np.testing.assert_allclose(result["series"]["loss"], numpy_losses(27, seed=0), rtol=1e-4)
    assert result["checks"]["max_replica_difference"] == 0
    assert result["backend"]["processes"] == 2
    assert len(result["backend"]["hosts"]) == 2
    assert result["metrics"]["scaling_efficiency"] > 0
    assert result["metrics"]["exchanged_bytes"] == STEPS * sum(array.nbytes for array in initial_parameters())


def test_three_processes(require: Callable[[str], None], tmp_path: Path) -> None:
    require("mxnet")
    check_three(launched(tmp_path, 3, "mxnet", "--batch-size", "24"))


def test_torchrun_launches_it_too(require: Callable[[str], None], tmp_path: Path) -> None:
    require("torch")
    launch = ("torch.distributed.run", "--standalone", "--nproc-per-node", "3", "-m", "parallel_core")
    check_three(result_of(launch, tmp_path, "--backend", "torch", "--batch-size", "24"))


def check_three(result: dict[str, Any]) -> None:
    np.testing.assert_allclose(result["series"]["loss"], numpy_losses(24, seed=0), rtol=1e-4)
    assert result["checks"]["max_replica_difference"] == 0
    assert result["backend"]["processes"] == 3
    assert "3 devices" in result["explanation"]
