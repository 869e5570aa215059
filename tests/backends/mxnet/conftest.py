"""Programs with MXNet, each in a process of its own: there is one engine for a process."""

import subprocess
from collections.abc import Callable

import pytest

from tests.conftest import RunPython

BEFORE = """
import os, threading
import numpy as np
import backends

backend = backends.load("mxnet", {devices}, "cpu", {engine!r}, {threads}, {workers}, {variants})
import mxnet
from backends.mxnet.engine import push

def ones(*shape):
    return backend.asarray(np.ones(shape, dtype=np.float32), backend.devices[0])
"""
InMXNet = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def in_mxnet(require: Callable[[str], None], run_python: RunPython) -> InMXNet:
    """Run code with MXNet's `backend` and `ones(*shape)`; return its outcome."""
    require("mxnet")

    def run(
        code: str,
        devices: int = 1,
        engine: str = "async",
        threads: int = 1,
        workers: int = 1,
        variants: tuple[str, ...] = (),
        **environment: str,
    ) -> "subprocess.CompletedProcess[str]":
        chosen = {"devices": devices, "engine": engine, "threads": threads, "workers": workers, "variants": variants}
        return run_python(BEFORE.format(**chosen) + code, **environment)

    return run
