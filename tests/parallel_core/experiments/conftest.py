"""What experiments say must not depend on what else the machine does while the tests run; and they
start no process.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

import backends
from backends import Backend
from parallel_core.experiments import training_steps
from parallel_core.experiments.runner import counting
from parallel_core.experiments.runner import trial as trials
from parallel_core.measurement.request import Request
from parallel_core.measurement.result import Result
from parallel_core.run.measure import load as load_backend
from parallel_core.run.measure import measure
from parallel_core.system import machine

MOST_WATCHED, CORE_SECONDS = counting.MOST_WATCHED, machine._core_seconds


@pytest.fixture(autouse=True)
def _unwatched_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be known of other work, as on a system that does not count it."""
    monkeypatch.setattr(machine, "_core_seconds", lambda: (None, None))


@pytest.fixture(autouse=True)
def _little_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time units of a step once, and record nothing for longer only to watch its threads."""
    monkeypatch.setattr(training_steps, "BARE_ROUNDS", 1)
    monkeypatch.setattr(counting, "MOST_WATCHED", 0)


@pytest.fixture
def threads_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record as long as it takes to know whether threads ran, and know what others take."""
    monkeypatch.setattr(counting, "MOST_WATCHED", MOST_WATCHED)
    monkeypatch.setattr(machine, "_core_seconds", CORE_SECONDS)


@pytest.fixture
def load() -> Callable[[int], Backend]:
    """NumPy: what an experiment does with its backend is the same on all, and `test_experiments.py`
    runs it on each.
    """
    return partial(backends.load, "numpy", threads_per_device=1)


@pytest.fixture
def queueing(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """Return a backend that says it queues, for what depends on that."""
    monkeypatch.setattr(backend, "name", "torch")
    monkeypatch.setattr(backend, "engine", "async")
    return backend


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let NumPy in this process do what a fresh process is asked for."""
    on_numpy = {"backend": "numpy", "engine": "sync", "threads": 1, "variant": ()}

    def measured(experiment: str, options: Mapping[str, Any]) -> Result:
        request = Request.of(experiment, {**options, **on_numpy})
        # What it is asked for, and what it answers, are lines of JSON.
        request = Request.from_line(request.as_line())
        result = measure(request, load_backend(request.work))
        return Result.from_json(result.as_json())

    monkeypatch.setattr(trials, "measure_elsewhere", measured)
