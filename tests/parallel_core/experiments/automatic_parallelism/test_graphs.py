"""Graphs of tasks that depend on each other: right on every backend, recorded as they ran, judged
by numbers, drawn.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import parallel_core
from backends import Backend
from backends.profiling import Span
from parallel_core.command_line import cli
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.automatic_parallelism import (
    dependencies,
    graph,
    task_graphs,
    task_order,
)
from parallel_core.experiments.automatic_parallelism.graph import mlp
from parallel_core.experiments.runner.formulas import Times
from parallel_core.experiments.runner.tallies import Repetition, repetition_of
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.workloads import record
from parallel_core.measurement import timing
from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.result import Counted
from parallel_core.measurement.task_graph import (
    Kind,
    Task,
    bounds_of,
    without_implied,
    without_loads,
)

SIZE = 6


@given(seed=st.integers(0, 2**32), layers=st.integers(1, 7))
def test_every_value_of_any_graph_is_numpy_s(backend: Backend, seed: int, layers: int) -> None:
    nodes = task_graphs.random_graph(seed, len(backend.devices), layers)
    matrices = task_graphs.device_matrices(SIZE, len(backend.devices))
    loaded = [
        backend.asarray(matrix, device)
        for matrix, device in zip(matrices, backend.devices, strict=True)
    ]
    values = task_graphs.launch_graph(backend, nodes, loaded)
    for value, wanted in zip(values, task_graphs.expected(nodes, matrices), strict=True):
        found = backend.to_numpy(value)
        assert found.dtype == np.float32
        assert np.isfinite(found).all()
        assert relative_error(found, wanted) < 1e-5


@given(seed=st.integers(0, 2**32))
def test_a_recording_has_the_graph_s_dependencies_and_a_copy_for_each_crossing(
    backend: Backend, seed: int
) -> None:
    nodes = task_graphs.random_graph(seed, len(backend.devices))
    tasks = without_loads(record(backend, task_graphs.program_of(nodes, SIZE)))
    computed = [place for place, task in enumerate(tasks) if task.kind == "compute"]
    assert [tasks[place].device for place in computed] == [
        str(backend.devices[node.device]) for node in nodes
    ]
    for node, place in zip(nodes, computed, strict=True):
        # A copy stands for the task whose result it copies.
        sources = {tasks[e].after[0] if tasks[e].kind == "copy" else e for e in tasks[place].after}
        assert sorted(sources) == [computed[earlier] for earlier in node.after]
    crossing = sum(nodes[earlier].device != node.device for node in nodes for earlier in node.after)
    copies = [task for task in tasks if task.kind == "copy"]
    assert len(copies) == crossing
    assert all(task.bytes == 4 * SIZE**2 for task in copies)


@given(seed=st.integers(0, 2**32), devices=st.integers(1, 4), layers=st.integers(1, 9))
def test_a_random_graph_is_layered_and_always_the_same(
    seed: int, devices: int, layers: int
) -> None:
    nodes = task_graphs.random_graph(seed, devices, layers)
    assert nodes == task_graphs.random_graph(seed, devices, layers)
    assert len(nodes) >= layers
    for place, node in enumerate(nodes):
        assert 0 <= node.device < devices
        assert all(earlier < place for earlier in node.after)
        assert len(set(node.after)) == len(node.after) <= 3
    assert any(node.after for node in nodes) == (layers > 1)


def test_diamonds_fork_to_all_devices_and_join() -> None:
    tasks = [
        (0, (), 1),
        (0, (0,), 4),
        (1, (0,), 4),
        (0, (1, 2), 1),
        (0, (3,), 4),
        (1, (3,), 4),
        (0, (4, 5), 1),
    ]
    assert task_graphs.diamond(2) == tuple(task_graphs.Node(*task) for task in tasks)


def test_both_ways_are_timed_and_tasks_have_their_own_seconds(backend: Backend) -> None:
    trial = Trial(backend, {}, rounds=3)
    diamonds = task_graphs.program_of(task_graphs.diamond(len(backend.devices)), SIZE)
    (found,) = dependencies.time_programs(trial, {"": diamonds})
    assert list(trial.cases) == ["one by one", "freely scheduled"]
    separate, free = trial.cases.values()
    assert [
        len(seconds) for one in (separate, free) for seconds in (one.seconds, one.bare_seconds)
    ] == [3] * 4
    assert 0 < sum(task.seconds for task in found.tasks) < sum(separate.seconds)
    assert all(task.seconds > 0 and task.kind != "load" for task in found.tasks)
    fraction = found.bound_fraction(Times(lambda case, _: trial.cases[case].median, trial.cases))
    assert fraction == pytest.approx(found.bounds.seconds / free.median)
    assert {"bound_fraction", *dependencies.LOWER_BOUND} < trial.figures.keys()


def test_bounds_are_of_the_rounds_that_count(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the first of three rounds was quiet.
    monkeypatch.setattr(timing, "_quietest", lambda *_: [0])
    trial = Trial(backend, {}, rounds=3)
    (found,) = dependencies.time_programs(
        trial, {"": task_graphs.program_of(task_graphs.diamond(2), SIZE)}
    )
    assert trial.cases["one by one"].seconds == (
        pytest.approx(sum(task.seconds for task in found.tasks)),
    )


def diamonds_run(devices: int, moved: dict[int, int], on: str = "") -> Repetition:
    """Return a repetition of the diamonds in which each task runs as soon as it may, its operations
    for 10 each; some tasks are moved, by their position.
    """
    tasks, operations = task_graphs.tasks_of(task_graphs.diamond(devices))
    ends: list[int] = []
    spans: list[Span] = []
    for place, (task, count) in enumerate(zip(tasks, operations, strict=True)):
        start = max((ends[earlier] for earlier in task.after), default=0) + moved.get(place, 0)
        ends.append(start + 10 * count)
        name = "copy" if task.kind == "copy" else "matmul"
        device = on or f"cpu:{int(task.device) + 1}"
        spans += [
            Span(name, task.kind, device, task.kind, start + 10 * step, start + 10 * step + 10)  # type: ignore[arg-type]
            for step in range(count)
        ]
    return repetition_of(sorted(spans, key=lambda span: span.start), devices)


@pytest.mark.parametrize("devices", [2, 3, 4])
def test_each_dependency_that_is_broken_counts(devices: int) -> None:
    tasks, _ = task_graphs.tasks_of(task_graphs.diamond(devices))
    of = sum(len(task.after) for task in tasks)
    assert dependencies.broken_in_diamonds(diamonds_run(devices, {})) == (0, of)
    # A copy that begins too soon, and a task that does not wait for its copies.
    copy = next(place for place, task in enumerate(tasks) if task.kind == "copy")
    joined = next(place for place, task in enumerate(tasks) if len(task.after) == devices)
    assert dependencies.broken_in_diamonds(diamonds_run(devices, {copy: -1})) == (1, of)
    assert dependencies.broken_in_diamonds(diamonds_run(devices, {joined: -5})).seen >= 1
    # Tasks that begin late break nothing, and copies may overtake each other.
    late = {place: 7 * (place % 3) for place in range(len(tasks))}
    assert dependencies.broken_in_diamonds(diamonds_run(devices, late)) == (0, of)


def test_a_sum_may_begin_when_its_first_two_terms_are_there() -> None:
    # MXNet adds the first two branches while the third one is on its way.
    tasks, _ = task_graphs.tasks_of(task_graphs.diamond(3))
    last_copy = max(
        place for place, task in enumerate(tasks) if task.kind == "copy" and task.device == "0"
    )
    delayed = diamonds_run(3, {last_copy: 3, last_copy + 1: -3})
    assert dependencies.broken_in_diamonds(delayed).seen == 0
    too_soon = diamonds_run(3, {last_copy: 15, last_copy + 1: -15})
    assert dependencies.broken_in_diamonds(too_soon).seen == 1


def test_what_has_other_operations_than_the_diamonds_is_not_counted() -> None:
    few = diamonds_run(2, {})
    lacking = Repetition(few.launches, few.waits, few.operations[1:], few.devices)
    assert dependencies.broken_in_diamonds(lacking).of == 0


def test_of_the_devices_that_which_multiplies_beside_others_most_counts() -> None:
    # The second device has branches only, and runs nothing at the joins.
    beside = task_order.BESIDE.tally
    assert beside(diamonds_run(2, {})).of == 10
    assert beside(diamonds_run(2, {})).seen >= 8
    assert beside(diamonds_run(2, {}, on="cpu")).seen == 0


def test_a_broken_dependency_in_any_repetition_makes_the_result_invalid(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = EXPERIMENTS["dependencies"]
    broken = experiment.counts[0]
    counted = Counted(0, 12, "the test", (0, 0, 3))
    monkeypatch.setattr(
        "parallel_core.experiments.runner.declaration.record_counts",
        lambda *_: {broken.name: counted},
    )
    result = experiment.run(backend, size=16, rounds=2, budget=600.0)
    assert [problem for problem in result.problems if problem.startswith("3 of 12 ")]
    assert not result.has_verdict
    assert broken.problem(Counted(0, 12, "the test", (0, 0))) == ""


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
def test_the_largest_counts(
    tasks: list[Task], places: int, workers: int, bounds: tuple[float, ...]
) -> None:
    found = bounds_of(tasks, places, workers)
    assert (found.critical_path, found.work_per_device, found.busiest_device) == bounds
    assert found.seconds == max(bounds)


BATCH = 12


def arrows(tasks: tuple[Task, ...]) -> set[tuple[str, str]]:
    """Return dependencies by the tasks' names and devices, without those that are implied."""
    names = [f"{task.name} on {task.device}" for task in tasks]
    return {
        (names[earlier], names[place])
        for place, task in enumerate(without_implied(tasks))
        for earlier in task.after
    }


def test_the_step_has_the_book_s_dependencies(backend: Backend) -> None:
    tasks = without_loads(record(backend, mlp(BATCH)))
    keeper, *workers = map(str, backend.devices)
    wanted = {(f"sum ∇{layer} on {keeper}", f"update W{layer} on {keeper}") for layer in (1, 2)}
    wanted |= {(f"copy ∇{layer} on {keeper}", f"sum ∇{layer} on {keeper}") for layer in (1, 2)}
    for device in workers:
        chain = ["copy batch", "layer 1", "layer 2", "loss", "layer 2 back", "layer 1 back"]
        wanted |= {
            (f"{first} on {device}", f"{then} on {device}")
            for first, then in itertools.pairwise(chain)
        }
        for layer in (1, 2):
            wanted.add((f"layer {layer} back on {device}", f"copy ∇{layer} on {keeper}"))
            wanted.add((f"update W{layer} on {keeper}", f"copy W{layer} on {device}"))
    assert arrows(tasks) == wanted
    assert len(tasks) == 24
    moved = {task.name: task.bytes // 4 for task in tasks if task.kind == "copy"}
    first, second = 785 * 512, 513 * 10
    batch = BATCH // 2 * 785
    assert moved == {
        "copy batch": batch,
        "copy ∇1": first,
        "copy ∇2": second,
        "copy W1": first,
        "copy W2": second,
    }

    # New parameters wait for all that read the old ones.
    tasks = record(backend, mlp(BATCH))
    for copy in (task for task in tasks if task.name == "copy W2"):
        readers = {
            tasks[earlier].name for earlier in copy.after if tasks[earlier].device == copy.device
        }
        assert {"layer 2", "layer 2 back"} <= readers


@pytest.mark.parametrize("batch", [2, 13])
def test_the_step_is_that_of_a_single_device(backend: Backend, batch: int) -> None:
    result = parallel_core.run_graph(backend, batch=batch, rounds=1, budget=600.0)
    assert result.problems == ()
    assert result.metrics["operations"] == 24
    assert result.metrics["moved_bytes"] == sum(task.bytes for task in result.tasks)
    work, chain = (result.metrics[f"{what}_seconds"] for what in ("work", "critical_path"))
    assert result.metrics["parallelism"] == pytest.approx(work / chain)
    assert all(task.seconds > 0 for task in result.tasks)


def test_the_chain_of_two_runs_on_one_device(
    load: Callable[[int], Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "XY_SIZE", 5)
    result = parallel_core.run_graph(load(1), of="xy", rounds=1, budget=600.0)
    tasks = [(task.name, task.after) for task in result.tasks]
    assert tasks == [("x", ()), ("y", ()), ("x · y", (0, 1)), ("z = … + 2", (2,))]
    assert result.metrics["operations"] == 2
    assert result.metrics["parallelism"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("of", "labels"), [("mlp", ["layer 1 back", "update W2", "copy ∇1"]), ("xy", ["x", "x · y"])]
)
def test_the_command_draws_what_was_recorded(of: str, labels: list[str], tmp_path: Path) -> None:
    path = tmp_path / "graph.svg"
    arguments = [
        "run",
        "graph",
        "--backend",
        "numpy",
        "--of",
        of,
        "--batch",
        "8",
        "--rounds",
        "1",
        "--plot",
        str(path),
    ]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    texts = [
        element.text for element in ElementTree.parse(path).iter() if element.tag.endswith("}text")
    ]
    assert {*labels, "cpu:1"} <= set(texts)
    assert any(text and "recorded on numpy" in text and "sync engine" in text for text in texts)
