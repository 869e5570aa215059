"""Training on two hosts, each with an address of its own: network namespaces that are joined by a link."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.two_hosts import TwoHosts
from tests.parallel_core.jobs.rank.test_training_together import DEADLINE, STEPS
from tests.parallel_core.training.test_steps import numpy_losses

pytestmark = pytest.mark.long


@pytest.mark.parametrize("framework", ["jax", "mxnet", "torch"])
def test_a_job_of_two_hosts_trains_as_one_process_does(
    framework: str, hosts: TwoHosts, require: Callable[[str], None], root: Path, tmp_path: Path
) -> None:
    require(framework)
    listed, result = tmp_path / "hosts", tmp_path / "result.json"
    listed.write_text("".join(f"{name}\n" for name in hosts.names))
    where = ["--hosts", str(listed), "--remote-shell", shlex.join(hosts.shell), "--backend", framework]
    run = ["run", "data-parallel", "--epochs", "1", "--limit", str(STEPS), "--batch-size", "24", "--json", str(result)]
    command = [sys.executable, "-m", "parallel_core", "launch", *where, "--", *run]
    # The remote shell is a module of this folder.
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    written = json.loads(result.read_text())
    assert written["backend"]["hosts"] == list(hosts.names)
    np.testing.assert_allclose(written["series"]["loss"], numpy_losses(24, steps=STEPS), rtol=1e-4)
