"""Graphs of dependent tasks: right on every backend, for any graph; recorded as they were drawn; judged by numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import Backend
from parallel_core.experiments.automatic_parallelism import dependencies
from parallel_core.experiments.runner.metrics import Times
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.works import record
from parallel_core.measurement import timing
from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.task_graph import Kind, Task, bounds_of, without_loads

SIZE = 6


@given(seed=st.integers(0, 2**32), layers=st.integers(1, 7))
def test_every_value_of_any_graph_is_numpy_s(backend: Backend, seed: int, layers: int) -> None:
    nodes = dependencies.random_graph(seed, len(backend.devices), layers)
    matrices = dependencies.device_matrices(SIZE, len(backend.devices))
    loaded = [backend.asarray(matrix, device) for matrix, device in zip(matrices, backend.devices, strict=True)]
    values = dependencies.launch_graph(backend, nodes, loaded)
    for value, wanted in zip(values, dependencies.expected(nodes, matrices), strict=True):
        found = backend.to_numpy(value)
        assert found.dtype == np.float32
        assert np.isfinite(found).all()
        assert relative_error(found, wanted) < 1e-5


@given(seed=st.integers(0, 2**32))
def test_a_recording_has_the_dependencies_of_the_graph_and_a_copy_for_each_crossing(
    backend: Backend, seed: int
) -> None:
    nodes = dependencies.random_graph(seed, len(backend.devices))
    tasks = without_loads(record(backend, dependencies.program_of(nodes, SIZE)))
    computed = [place for place, task in enumerate(tasks) if task.kind == "compute"]
    assert [tasks[place].device for place in computed] == [str(backend.devices[node.device]) for node in nodes]
    for node, place in zip(nodes, computed, strict=True):
        # A copy stands for the task whose result it copies.
        sources = {tasks[e].after[0] if tasks[e].kind == "copy" else e for e in tasks[place].after}
        assert sorted(sources) == [computed[earlier] for earlier in node.after]
    crossing = sum(nodes[earlier].device != node.device for node in nodes for earlier in node.after)
    copies = [task for task in tasks if task.kind == "copy"]
    assert len(copies) == crossing
    assert all(task.bytes == 4 * SIZE**2 for task in copies)


@given(seed=st.integers(0, 2**32), devices=st.integers(1, 4), layers=st.integers(1, 9))
def test_a_random_graph_is_layered_and_always_the_same(seed: int, devices: int, layers: int) -> None:
    nodes = dependencies.random_graph(seed, devices, layers)
    assert nodes == dependencies.random_graph(seed, devices, layers)
    assert len(nodes) >= layers
    for place, node in enumerate(nodes):
        assert 0 <= node.device < devices
        assert all(earlier < place for earlier in node.after)
        assert len(set(node.after)) == len(node.after) <= 3
    assert any(node.after for node in nodes) == (layers > 1)


def test_diamonds_fork_to_all_devices_and_join() -> None:
    tasks = [(0, (), 1), (0, (0,), 4), (1, (0,), 4), (0, (1, 2), 1), (0, (3,), 4), (1, (3,), 4), (0, (4, 5), 1)]
    assert dependencies.diamond(2) == tuple(dependencies.Node(*task) for task in tasks)


def test_both_ways_are_timed_and_tasks_have_their_own_seconds(backend: Backend) -> None:
    trial = Trial(backend, {}, rounds=3)
    diamonds = dependencies.program_of(dependencies.diamond(len(backend.devices)), SIZE)
    (found,) = dependencies.time_programs(trial, {"": diamonds})
    assert list(trial.cases) == ["one by one", "freely scheduled"]
    separate, free = trial.cases.values()
    assert [len(seconds) for one in (separate, free) for seconds in (one.seconds, one.bare_seconds)] == [3] * 4
    assert 0 < sum(task.seconds for task in found.tasks) < sum(separate.seconds)
    assert all(task.seconds > 0 and task.kind != "load" for task in found.tasks)
    fraction = found.bound_fraction(Times(lambda case, _: trial.cases[case].median, trial.cases))
    assert fraction == pytest.approx(found.bounds.seconds / free.median)
    assert {"bound_fraction", *dependencies.LOWER_BOUND} < trial.figures.keys()


def test_bounds_are_of_the_rounds_that_count(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only the first of three rounds was quiet.
    monkeypatch.setattr(timing, "_quietest", lambda *_: [0])
    trial = Trial(backend, {}, rounds=3)
    (found,) = dependencies.time_programs(trial, {"": dependencies.program_of(dependencies.diamond(2), SIZE)})
    assert trial.cases["one by one"].seconds == (pytest.approx(sum(task.seconds for task in found.tasks)),)


def task(device: str, seconds: float, *after: int, kind: Kind = "compute") -> Task:
    return Task("t", device, kind, after, seconds)


@pytest.mark.parametrize(
    ("tasks", "places", "workers", "bounds"),
    [
        # A chain over two devices.
        ([task("a", 3), task("b", 2, 0)], 2, 1, (5, 2.5, 3)),
        # All on one device, where two could share it, and one whose two workers do.
        ([task("a", 3), task("a", 2)], 2, 1, (3, 2.5, 5)),
        ([task("a", 3), task("a", 1)], 2, 2, (3, 2, 2)),
        # Three devices, cores for one of them.
        ([task("a", 2), task("b", 2), task("c", 2)], 1, 1, (2, 6, 2)),
        # Copies are work without engines for them, and no computing.
        ([task("cpu:1", 1), task("cpu:2", 3, kind="copy")], 2, 1, (3, 2, 1)),
        ([task("gpu:0", 1), task("gpu:1", 3, kind="copy")], 2, 1, (3, 0.5, 1)),
    ],
)
def test_the_largest_bound_counts(tasks: list[Task], places: int, workers: int, bounds: tuple[float, ...]) -> None:
    found = bounds_of(tasks, places, workers)
    assert (found.critical_path, found.work_per_device, found.busiest_device) == bounds
    assert found.seconds == max(bounds)
