"""An environment without settings, so that the doctor finds only what a test adds to it."""

import os

import pytest

from tests.parallel_core.doctor.stub_frameworks import make_stub

__all__ = ["make_stub"]

PREFIXES = ("MXNET_", "DMLC_", "PS_", "OMP_", "MKL_", "OPENBLAS_", "CUDA_")
NAMES = ("RANK", "WORLD_SIZE", "PORT", "PARALLEL_CORE_DATA")


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(PREFIXES) or name in NAMES:
            monkeypatch.delenv(name)
