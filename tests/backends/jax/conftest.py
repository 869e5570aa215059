"""A backend of JAX for its own tests, which are skipped where JAX is not installed."""

from collections.abc import Callable

import pytest

import backends
from backends import Backend


@pytest.fixture
def jax_backend(require: Callable[[str], None], engine: str) -> Backend:
    require("jax")
    return backends.load("jax", 2, "cpu", engine, 1)
