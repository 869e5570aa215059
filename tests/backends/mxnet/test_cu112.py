"""The real CUDA build and its wheels, with a driver that finds no GPU: `make test-cu112` has an
environment for it.
"""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from backends.installation.frameworks import diagnose
from backends.mxnet.installation import MXNET_CUDA_PACKAGE, WHEELS
from tests.conftest import RunPython

pytestmark = pytest.mark.slow

WHAT_IT_CAN = """
import numpy as np
import backends
backend = backends.load("mxnet", 2, "auto", {engine!r}, 1)
import mxnet
print(mxnet.runtime.Features().is_enabled("CUDA"), mxnet.context.num_gpus(), *backend.devices)
x = backend.asarray(np.full((3, 3), 2, dtype=np.float32), backend.devices[0])
print(backend.to_numpy(backend.launch(backend.ops.matmul, x, x)).sum())
"""


@pytest.fixture(autouse=True)
def _cuda_build_is_installed() -> None:
    for name in (MXNET_CUDA_PACKAGE, *(wheel.name for wheel in WHEELS)):
        try:
            distribution(name)
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed: make test-cu112")


@pytest.mark.parametrize("engine", ["async", "sync"])
def test_it_loads_and_computes_on_cpus(run_python: RunPython, driver: Path, engine: str) -> None:
    done = run_python(WHAT_IT_CAN.format(engine=engine), LD_LIBRARY_PATH=str(driver))
    assert done.stdout == "True 0 cpu:1 cpu:2\n108.0\n"


def run_parallel(library_path: str) -> "subprocess.CompletedProcess[str]":
    """Run an experiment on MXNet, where the loader knows these directories."""
    words = "-m parallel_core run parallel --backend mxnet --size 50"
    return subprocess.run(
        [sys.executable, *words.split()],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LD_LIBRARY_PATH": library_path},
    )


def test_experiments_run(driver: Path) -> None:
    completed = run_parallel(str(driver))
    assert completed.returncode == 0
    assert completed.stderr == ""
    assert "parallel on mxnet 1.9.1, async engine, cpu:1, cpu:2" in completed.stdout


def test_without_a_driver_there_is_one_line_and_exit_status_2() -> None:
    completed = run_parallel("")
    assert completed.returncode == 2
    assert completed.stdout == ""
    assert completed.stderr.startswith(
        "parallel-core: the NVIDIA driver is not installed (libcuda.so.1: not found)"
    )
    assert completed.stderr.count("\n") == 1


@pytest.mark.parametrize("with_driver", [True, False])
def test_what_mxnet_itself_says_is_recognised(
    run_python: RunPython, driver: Path, with_driver: bool
) -> None:
    library_path = str(driver) if with_driver else ""
    completed = run_python("import mxnet", check=False, LD_LIBRARY_PATH=library_path)
    assert "cannot open shared object file" in completed.stderr
    diagnosis = diagnose("mxnet", completed.stderr)
    assert diagnosis is not None
    assert MXNET_CUDA_PACKAGE in diagnosis.cause
