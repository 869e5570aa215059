"""Without a profiler, clocks around calls and operations see the order in which they came."""

import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import backends
from backends import Array
from backends.registry.files import FILES, named
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation import increments
from parallel_core.experiments.runner.witnesses import witness_for
from parallel_core.labs import Engine, Task
from parallel_core.labs.programs import __file__ as programs
from parallel_core.measurement.result import Result
from tests.parallel_core.labs import solution

SKELETONS = Path(programs).parent
SMALL: dict[str, dict[str, Any]] = {
    "eager-cpu": {"size": 200, "against": "none"},
    "parallel": {"size": 400},
    "overlap": {"size": 500, "products": 10, "copies": 10},
}


@pytest.mark.parametrize(
    ("lab", "experiment_name", "code_without_queue"),
    [
        ("queue", "eager-cpu", "not-queued"),
        ("two-queues", "parallel", "serial"),
        ("hide-a-copy", "overlap", "serial"),
    ],
)
def test_an_engine_s_own_clocks_tell_a_queue_from_none(
    monkeypatch: pytest.MonkeyPatch, lab: str, experiment_name: str, code_without_queue: str
) -> None:
    experiment = EXPERIMENTS[experiment_name]
    count = experiment.counts[0]

    def code_with(engine_file: Path) -> str | None:
        """Run the experiment on an engine of a file, and return what its count means."""
        monkeypatch.setitem(os.environ, FILES, "")
        backend = backends.load(named(f"{engine_file}:MyEngine"), 2, "cpu", None, 1)
        result = experiment.run(backend, rounds=1, budget=600.0, **SMALL[experiment_name])
        assert result.counts[count.name].of > 0
        return result.bands[count.name]

    assert code_with(SKELETONS / lab / "engine.py") == code_without_queue
    assert code_with(Path(solution.__file__)) != code_without_queue


class LockInside(solution.MyEngine):
    """Two queues, and a lock within the multiplication."""

    lock = threading.Lock()

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        def locked(*values: Array) -> Array:
            with self.lock:
                return fn(*values)

        return super().launch(locked, *args)


class HalfUnseen(solution.MyEngine):
    """A profiler that loses every second operation."""

    unseen = False

    def submit(self, task: Task) -> None:
        self.unseen = not self.unseen
        if self.unseen:
            task.mark = nullcontext()
        super().submit(task)


class EarlyWaitall(solution.MyEngine):
    """A wait for everything that returns at once."""

    def waitall(self) -> None:
        pass


class QueueIfWatched(solution.MyEngine):
    """A queue while operations are marked, and none while they are timed."""

    def submit(self, task: Task) -> None:
        super().submit(task)
        if self._mark is None:
            task.done.wait()


def ran(engine: type[Engine], experiment: str = "parallel", **options: Any) -> Result:
    """Run an experiment, of large matrices, on an engine."""
    backend = engine(2, "cpu", None, 1)
    return EXPERIMENTS[experiment].run(backend, rounds=1, budget=600.0, **options)


@pytest.mark.long
@pytest.mark.usefixtures("threads_watched")
def test_operations_that_wait_for_each_other_inside_do_not_work_at_the_same_time() -> None:
    count = EXPERIMENTS["parallel"].counts[0]
    locked = ran(LockInside, size=700)
    # They are in progress together, which is all that their order shows.
    assert locked.counts[count.name].count >= 20
    # On a machine with one core, or with much other work, threads that wait cannot be told.
    assert locked.bands[count.name] in ("waited-inside", "in-progress", "one-core")
    free = ran(solution.MyEngine, size=700)
    assert free.bands[count.name] in ("parallel", "in-progress", "one-core")


def test_of_half_a_recording_nothing_is_counted() -> None:
    result = ran(HalfUnseen, size=100)
    assert result.counts == {}
    assert "uncounted" in [note.code for note in result.notes]


def test_an_early_waitall_makes_a_result_invalid() -> None:
    result = ran(EarlyWaitall, size=300)
    assert "early-wait" in [note.code for note in result.problems]


def test_a_queue_that_only_the_recording_sees_makes_a_result_invalid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(increments, "RECORDED_INCREMENTS", 100)
    result = ran(QueueIfWatched, "async", size=400, steps=20)
    assert "recorded-otherwise" in [note.code for note in result.problems]


def test_what_has_neither_a_profiler_nor_clocks_has_no_witness() -> None:
    assert witness_for(backends.load("numpy", 2, "cpu", None, 1)) is None
