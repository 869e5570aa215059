"""Training on two hosts, each with an address of its own: network namespaces that are joined by a link."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.two_hosts import ADDRESSES, INTERFACE, TwoHosts
from tests.parallel_core.training.test_steps import numpy_losses

pytestmark = pytest.mark.long

DEADLINE, STEPS = 120, 5
PROGRAM = (sys.executable, "-m", "parallel_core", "run", "data-parallel", "--epochs", "1")


def trained(command: tuple[str, ...], root: Path, result: Path) -> dict[str, object]:
    # What starts the ranks is a module of this folder.
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 0, done.stderr
    written = json.loads(result.read_text())
    np.testing.assert_allclose(written["series"]["loss"], numpy_losses(24, steps=STEPS), rtol=1e-4)
    return dict(written["backend"])


def program(framework: str, result: Path) -> tuple[str, ...]:
    return (
        *PROGRAM,
        *("--backend", framework, "--limit", str(STEPS), "--batch-size", "24", "--json", str(result)),
    )


@pytest.mark.parametrize("framework", ["jax", "mxnet", "torch"])
def test_ranks_that_are_started_by_hand_train_as_one_process_does(
    framework: str, hosts: TwoHosts, require: Callable[[str], None], root: Path, tmp_path: Path
) -> None:
    require(framework)
    result = tmp_path / "result.json"
    backend = trained(hosts.ranks(framework, *program(framework, result)), root, result)
    assert backend["hosts"] == list(ADDRESSES)


def mpirun(hosts: TwoHosts, folder: Path) -> tuple[str, ...]:
    """Return the beginning of a command of mpirun's, which reaches the other host by a script as by ssh."""
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed: apt-get install openmpi-bin")
    remote_shell = folder / "remote-shell"
    remote_shell.write_text(f'#!/bin/sh\nshift\nexec {shlex.join(hosts.on(1))} sh -c "$*"\n')
    remote_shell.chmod(0o755)
    network = [word for use in ("oob_tcp", "btl_tcp") for word in ("--mca", f"{use}_if_include", INTERFACE)]
    return (
        *hosts.on(0),
        *("mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", str(remote_shell), *network),
        *("--host", ",".join(f"{name}:1" for name in ADDRESSES), "-n", "2", "--bind-to", "none"),
        *("-x", f"MASTER_ADDR={ADDRESSES[0]}", "-x", "MASTER_PORT=29512", "-x", "PYTHONPATH"),
    )


def test_ranks_that_mpirun_starts_train_as_one_process_does(
    hosts: TwoHosts, require: Callable[[str], None], root: Path, tmp_path: Path
) -> None:
    require("torch")
    result = tmp_path / "result.json"
    backend = trained((*mpirun(hosts, tmp_path), *program("torch", result)), root, result)
    assert (backend["processes"], backend["hosts"]) == (2, list(ADDRESSES))
