"""Graphs of tasks that depend on each other: right on every backend, recorded as they ran, judged
by numbers, drawn.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

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
    task_graphs,
    task_order,
)
from parallel_core.experiments.automatic_parallelism.graph import mlp
from parallel_core.experiments.runner import declaration
from parallel_core.experiments.runner.counting import CountsOfRun
from parallel_core.experiments.runner.formulas import Times
from parallel_core.experiments.runner.tallies import Repetition, Tally, repetition_of
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.workloads import record
from parallel_core.measurement import timing
from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.result import Counted
from parallel_core.measurement.task_graph import (
    Task,
    without_implied,
    without_loads,
)
from tests.parallel_core.report.plots.drawn import Drawn

SIZE = 6


@given(seed=st.integers(0, 2**32), layers=st.integers(1, 7))
def test_every_value_of_any_graph_is_numpy_s(backend: Backend, seed: int, layers: int) -> None:
    nodes = task_graphs.random_graph(seed, len(backend.devices), layers)
    matrices = task_graphs.device_matrices(SIZE, len(backend.devices))
    loaded = [
        backend.asarray(matrix, device)
        for matrix, device in zip(matrices, backend.devices, strict=True)
    ]
    results = task_graphs.launch_graph(backend, nodes, loaded)
    expected_values = task_graphs.expected(nodes, matrices)
    for result, expected in zip(results, expected_values, strict=True):
        value = backend.to_numpy(result)
        assert value.dtype == np.float32
        assert np.isfinite(value).all()
        assert relative_error(value, expected) < 1e-5


@given(seed=st.integers(0, 2**32))
def test_a_recording_has_the_graph_s_dependencies_and_a_copy_for_each_crossing(
    backend: Backend, seed: int
) -> None:
    nodes = task_graphs.random_graph(seed, len(backend.devices))
    tasks = without_loads(record(backend, task_graphs.program_of(nodes, SIZE)))
    computed = [position for position, task in enumerate(tasks) if task.kind == "compute"]

    def computed_source(position: int) -> int:
        """Return the position of a task, or of the task whose result it copies."""
        task = tasks[position]
        return task.after[0] if task.kind == "copy" else position

    crossings = 0
    for node, position in zip(nodes, computed, strict=True):
        task = tasks[position]
        assert task.device == str(backend.devices[node.device])
        sources = {computed_source(dependency) for dependency in task.after}
        assert sorted(sources) == [computed[earlier] for earlier in node.after]
        crossings += sum(nodes[earlier].device != node.device for earlier in node.after)
    copies = [task for task in tasks if task.kind == "copy"]
    assert len(copies) == crossings
    assert all(copy.bytes == 4 * SIZE**2 for copy in copies)


@given(seed=st.integers(0, 2**32), devices=st.integers(1, 4), layers=st.integers(1, 9))
def test_a_random_graph_is_layered_and_always_the_same(
    seed: int, devices: int, layers: int
) -> None:
    nodes = task_graphs.random_graph(seed, devices, layers)
    assert nodes == task_graphs.random_graph(seed, devices, layers)
    assert len(nodes) >= layers
    for position, node in enumerate(nodes):
        assert 0 <= node.device < devices
        assert all(earlier < position for earlier in node.after)
        assert len(node.after) <= 3
        assert len(set(node.after)) == len(node.after)
    assert any(node.after for node in nodes) == (layers > 1)


def test_both_ways_are_timed_and_tasks_have_the_seconds_of_the_round_that_counts(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the first of three rounds was quiet.
    monkeypatch.setattr(timing, "_quietest", lambda *_: [0])
    trial = Trial(backend, {}, rounds=3)
    diamonds = task_graphs.program_of(task_graphs.diamond(len(backend.devices)), SIZE)
    (timed_graph,) = dependencies.time_programs(trial, {"": diamonds})
    assert list(trial.cases) == ["one by one", "freely scheduled"]
    in_turn, free = trial.cases.values()
    assert len(in_turn.bare_seconds) == len(free.bare_seconds) == 1
    (seconds_in_turn,) = in_turn.seconds
    assert seconds_in_turn == pytest.approx(sum(task.seconds for task in timed_graph.tasks))
    for task in timed_graph.tasks:
        assert task.seconds > 0
        assert task.kind != "load"
    medians = Times(lambda name, _: trial.cases[name].median, trial.cases)
    bound_fraction = timed_graph.bounds.seconds / free.median
    assert timed_graph.bound_fraction(medians) == pytest.approx(bound_fraction)
    assert {"bound_fraction", *dependencies.LOWER_BOUND} < trial.figures.keys()


def diamonds_run(
    devices: int, delays: Mapping[int, int], only_device: str | None = None
) -> Repetition:
    """Return a repetition of the diamonds in which each task runs as soon as it may, its operations
    for 10 each.

    Some tasks begin later or earlier than that, by their position.
    """
    tasks, operation_counts = task_graphs.tasks_of(task_graphs.diamond(devices))
    ends: list[int] = []
    spans: list[Span] = []
    for position, (task, operations) in enumerate(zip(tasks, operation_counts, strict=True)):
        ready = max((ends[earlier] for earlier in task.after), default=0)
        start = ready + delays.get(position, 0)
        end = start + 10 * operations
        ends.append(end)
        name = "copy" if task.kind == "copy" else "matmul"
        device = only_device or f"cpu:{int(task.device) + 1}"
        spans += [
            Span(name, task.kind, device, task.kind, begin, begin + 10)  # type: ignore[arg-type]
            for begin in range(start, end, 10)
        ]
    return repetition_of(sorted(spans, key=lambda span: span.start), devices)


def broken(devices: int, delays: Mapping[int, int]) -> Tally:
    """Return how many dependencies of the diamonds are broken where tasks have these delays."""
    return dependencies.broken_in_diamonds(diamonds_run(devices, delays))


@pytest.mark.parametrize("devices", [2, 3, 4])
def test_dependencies_count_that_are_broken_and_not_those_of_late_tasks(devices: int) -> None:
    tasks, _ = task_graphs.tasks_of(task_graphs.diamond(devices))
    of = sum(len(task.after) for task in tasks)
    first_copy = next(position for position, task in enumerate(tasks) if task.kind == "copy")
    first_join = next(position for position, task in enumerate(tasks) if len(task.after) == devices)
    assert broken(devices, {first_copy: -1}) == (1, of)
    assert broken(devices, {first_join: -5}).seen >= 1
    # Copies may overtake each other.
    late = {position: 7 * (position % 3) for position in range(len(tasks))}
    assert broken(devices, late) == broken(devices, {}) == (0, of)


def test_a_sum_may_begin_when_its_first_two_terms_are_there() -> None:
    # MXNet adds the first two branches while the third one is on its way.
    tasks, _ = task_graphs.tasks_of(task_graphs.diamond(3))
    last_copy = max(
        position
        for position, task in enumerate(tasks)
        if task.kind == "copy" and task.device == "0"
    )
    its_sum = last_copy + 1
    assert broken(3, {last_copy: 3, its_sum: -3}).seen == 0
    assert broken(3, {last_copy: 15, its_sum: -15}).seen == 1


def test_what_has_other_operations_than_the_diamonds_is_not_counted() -> None:
    whole = diamonds_run(2, {})
    without_first = Repetition(whole.launches, whole.waits, whole.operations[1:], whole.devices)
    assert dependencies.broken_in_diamonds(without_first).of == 0


def test_the_device_counts_that_multiplies_beside_others_most() -> None:
    tally = task_order.BESIDE.tally
    # The second device has branches only, and runs nothing at the joins.
    on_two_devices = tally(diamonds_run(2, {}))
    assert on_two_devices.of == 10
    assert on_two_devices.seen >= 8
    assert tally(diamonds_run(2, {}, only_device="cpu")).seen == 0


def test_a_broken_dependency_in_any_repetition_makes_the_result_invalid(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = EXPERIMENTS["dependencies"]
    broken = experiment.counts[0]
    broken_once = Counted(0, 12, "the test", (0, 0, 3))
    recorded = CountsOfRun({broken.name: broken_once}, [], [], frozenset())
    monkeypatch.setattr(declaration, "witness_for", lambda _: "the test")
    monkeypatch.setattr(declaration, "record_counts", lambda *_: recorded)
    result = experiment.run(backend, size=16, rounds=2, budget=600.0)
    assert broken.problem(Counted(3, 12, "the test", (3,))) in result.problems
    assert not result.has_verdict
    never_broken = Counted(0, 12, "the test", (0, 0))
    assert broken.problem(never_broken) is None


BATCH = 12
Arrow = tuple[str, str]
"""The task that is waited for, and the task that waits: each by its name and device."""


def arrows(tasks: tuple[Task, ...]) -> set[Arrow]:
    """Return the dependencies of tasks, without those that are implied."""
    names = [f"{task.name} on {task.device}" for task in tasks]
    found = set()
    for name, task in zip(names, without_implied(tasks), strict=True):
        found.update((names[earlier], name) for earlier in task.after)
    return found


def arrows_of_book(keeper: str, workers: Sequence[str]) -> set[Arrow]:
    """Return the dependencies of a step whose parameters one device keeps."""
    expected = set()
    for layer in (1, 2):
        gradient_copy = f"copy ∇{layer} on {keeper}"
        gradient_sum = f"sum ∇{layer} on {keeper}"
        update = f"update W{layer} on {keeper}"
        expected |= {(gradient_copy, gradient_sum), (gradient_sum, update)}
        for worker in workers:
            expected.add((f"layer {layer} back on {worker}", gradient_copy))
            expected.add((update, f"copy W{layer} on {worker}"))
    for worker in workers:
        chain = ["copy batch", "layer 1", "layer 2", "loss", "layer 2 back", "layer 1 back"]
        names = [f"{name} on {worker}" for name in chain]
        expected.update(itertools.pairwise(names))
    return expected


def test_the_step_has_the_book_s_dependencies_and_moves_gradients_parameters_and_the_batch(
    backend: Backend,
) -> None:
    tasks = without_loads(record(backend, mlp(BATCH)))
    keeper, *workers = map(str, backend.devices)
    assert len(tasks) == 24
    assert arrows(tasks) == arrows_of_book(keeper, workers)
    moved_numbers = {task.name: task.bytes // 4 for task in tasks if task.kind == "copy"}
    first_layer, second_layer = 785 * 512, 513 * 10
    assert moved_numbers == {
        "copy batch": BATCH // 2 * 785,
        "copy ∇1": first_layer,
        "copy ∇2": second_layer,
        "copy W1": first_layer,
        "copy W2": second_layer,
    }


@pytest.mark.parametrize("batch", [2, 13])
def test_the_step_is_that_of_a_single_device(backend: Backend, batch: int) -> None:
    result = parallel_core.run_graph(backend, batch=batch, rounds=1, budget=600.0)
    assert result.problems == ()
    assert result.metrics["operations"] == 24
    assert result.metrics["moved_bytes"] == sum(task.bytes for task in result.tasks)
    parallelism = result.metrics["work_seconds"] / result.metrics["critical_path_seconds"]
    assert result.metrics["parallelism"] == pytest.approx(parallelism)
    assert all(task.seconds > 0 for task in result.tasks)


def test_the_command_draws_what_was_recorded(tmp_path: Path) -> None:
    picture = tmp_path / "graph.svg"
    command = f"run graph --backend numpy --batch 8 --rounds 1 --plot {picture}"
    done = CliRunner().invoke(cli, command.split())
    assert done.exit_code == 0, done.output
    texts = Drawn(picture.read_bytes()).texts
    assert {"layer 1 back", "update W2", "copy ∇1", "cpu:1"} <= set(texts)
    assert any("recorded on NumPy" in text and "without queues" in text for text in texts)
