"""What experiments say must not depend on what else the machine does while the tests run."""

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
def queueing(monkeypatch: pytest.MonkeyPatch) -> Backend:
    """Return a backend of one CPU device that says it queues, for what is said of engines."""
    backend = backends.load("numpy", 1, threads_per_device=1)
    monkeypatch.setattr(backend, "name", "torch")
    monkeypatch.setattr(backend, "engine", "async")
    return backend
