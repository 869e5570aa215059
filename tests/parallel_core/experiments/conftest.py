"""What experiments say must not depend on what else the machine does while the tests run."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import backends
from backends import Backend
from parallel_core.system import machine_watch


@pytest.fixture(autouse=True)
def _unwatched_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be known of other work, as on a system that does not count it."""
    monkeypatch.setattr(machine_watch, "STATISTICS", Path("/nowhere"))


@pytest.fixture
def load() -> Callable[[int], Backend]:
    """NumPy: what an experiment does with its backend is the same on all, and `test_experiments.py` runs it on each."""
    return partial(backends.load, "numpy", threads_per_device=1)


@pytest.fixture
def queueing(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """Return a backend that says it queues, for what depends on that."""
    monkeypatch.setattr(backend, "name", "torch")
    monkeypatch.setattr(backend, "engine", "async")
    return backend
