"""Backends on GPUs, for the tests that need one."""

from collections.abc import Callable

import pytest

import backends
from backends import Backend, BackendError


@pytest.fixture
def on_gpus(engine: str) -> Callable[..., Backend]:
    """Load a framework for devices, by name or number, with variants; skip if there is no such GPU or variant."""

    def load(framework: str, devices: str | int, *variants: str) -> Backend:
        if variants and engine == "sync":
            pytest.skip("its variants are none")
        try:
            kind = "gpu" if isinstance(devices, int) else "auto"
            return backends.load(framework, devices, kind, engine, 1, variants=variants)
        except BackendError as error:
            pytest.skip(str(error))

    return load
