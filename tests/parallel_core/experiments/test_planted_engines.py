"""An engine with a fault in its scheduling is named by the count that is about it.

PyTorch's worker threads are the engine; each fault stands in the place of one of their verbs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import backends
from backends import Array, Backend
from backends.torch.streams.future import device_of
from backends.torch.worker_threads import WorkerThreadsTorch
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation import increments

Plant = Callable[[pytest.MonkeyPatch, Backend], None]
# The profiler shadows an object's verbs and takes its own away again: faults stand in the class.
LAUNCH, WAIT, WAITALL = (
    WorkerThreadsTorch.launch,
    WorkerThreadsTorch.wait,
    WorkerThreadsTorch.waitall,
)


def wait_in_launch(monkeypatch: pytest.MonkeyPatch, _: Backend) -> None:
    """Let a launch return when its work is done."""

    def launch(self: WorkerThreadsTorch, fn: Callable[..., Array], *args: Array) -> Array:
        return WAIT(self, LAUNCH(self, fn, *args))

    monkeypatch.setattr(WorkerThreadsTorch, "launch", launch)


def wait_for_all(monkeypatch: pytest.MonkeyPatch, _: Backend) -> None:
    """Let a wait for one result return when all work is done."""

    def wait(self: WorkerThreadsTorch, x: Array) -> Array:
        WAITALL(self)
        return WAIT(self, x)

    monkeypatch.setattr(WorkerThreadsTorch, "wait", wait)


def one_queue_for_all(monkeypatch: pytest.MonkeyPatch, _: Backend) -> None:
    """Let all devices' work stand in the queue of the first."""

    def launch(self: WorkerThreadsTorch, fn: Callable[..., Array], *args: Array) -> Array:
        return self._compute[self.devices[0]].enqueue(fn, args).on(device_of(*args))

    monkeypatch.setattr(WorkerThreadsTorch, "launch", launch)


def copy_on_computing_queue(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> None:
    """Let copies stand in the queue that computes."""
    monkeypatch.setattr(backend, "_copies_by_source", True)


class Fault(NamedTuple):
    """A fault, the experiment whose first count is about it, and what that says then."""

    plant: Plant
    experiment: str
    options: dict[str, Any]
    code: str


FAULTS = (
    Fault(wait_in_launch, "async", {"size": 300, "steps": 20}, "not-queued"),
    Fault(wait_for_all, "barriers", {"size": 300, "deepest": 8}, "not-selective"),
    Fault(one_queue_for_all, "parallel", {"size": 300}, "serial"),
    Fault(
        copy_on_computing_queue,
        "overlap",
        {"size": 400, "products": 10, "copies": 8},
        "serial",
    ),
)


def answer(fault: Fault, backend: Backend) -> str | None:
    """Return the code of the experiment's first count."""
    experiment = EXPERIMENTS[fault.experiment]
    result = experiment.run(backend, rounds=1, budget=600.0, **fault.options)
    assert experiment.counts[0].name in result.counts, result.notes
    return result.bands[experiment.counts[0].name]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.plant.__name__)
def test_a_fault_is_named_by_its_count(
    require: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    require("torch")
    monkeypatch.setattr(increments, "RECORDED_INCREMENTS", 100)
    backend = backends.load("torch", 2, "cpu", "async", 1)
    assert answer(fault, backend) != fault.code
    fault.plant(monkeypatch, backend)
    assert answer(fault, backend) == fault.code
