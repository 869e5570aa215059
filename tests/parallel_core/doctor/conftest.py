"""A machine whose environment says nothing, so that what a test adds to it is what the doctor finds."""

import os

import pytest

from tests.parallel_core.doctor.made_up import make_stub

__all__ = ["make_stub"]

TOLD = ("MXNET_", "DMLC_", "PS_", "OMP_", "MKL_", "OPENBLAS_", "CUDA_")
ALSO = ("RANK", "WORLD_SIZE", "PORT", "PARALLEL_CORE_DATA")


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(TOLD) or name in ALSO:
            monkeypatch.delenv(name)
