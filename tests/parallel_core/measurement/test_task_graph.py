"""Bounds and paths agree with a search through all chains, and a recording's tasks with the values
that they make.
"""

from dataclasses import replace
from fractions import Fraction
from functools import partial
from numbers import Real

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends import Array, Backend, Ops
from parallel_core.measurement.recording import Recording, labelled
from parallel_core.measurement.task_graph import (
    Kind,
    Task,
    bounds_of,
    crossings,
    levels,
    longest_path,
    without_implied,
    without_loads,
    work_seconds,
)

KINDS = st.sampled_from(["compute", "copy", "load"])
ONES = np.ones((2, 3), dtype=np.float32)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Task, ...]:
    """Draw up to seven tasks, each of which may depend on any before it."""
    tasks: list[Task] = []
    for position in range(draw(st.integers(0, 7))):
        after: set[int] = set()
        if position > 0:
            after = draw(st.sets(st.integers(0, position - 1)))
        # Whole seconds: their sums are exact in any order.
        seconds = float(draw(st.integers(0, 9)))
        device = draw(st.sampled_from("abc"))
        kind = draw(KINDS)
        tasks.append(Task(f"task {position}", device, kind, tuple(sorted(after)), seconds))
    return tuple(tasks)


def chains(tasks: tuple[Task, ...]) -> list[tuple[int, ...]]:
    """Return every chain of dependent tasks, the empty one too, by the tasks' positions."""
    found: list[tuple[int, ...]] = [()]
    for position, task in enumerate(tasks):
        # Each chain that ends with a task before this one goes on with this one.
        continued = [(*chain, position) for chain in found if chain and chain[-1] in task.after]
        found += [(position,), *continued]
    return found


def chains_to(tasks: tuple[Task, ...], position: int) -> list[tuple[int, ...]]:
    """Return every chain of dependent tasks that ends with this one."""
    return [chain for chain in chains(tasks) if chain and chain[-1] == position]


@given(graphs())
# Of paths without times the longest is taken.
@example((Task("x", "a", "compute"), Task("y", "a", "compute", (0,)), Task("z", "a", "compute")))
def test_the_critical_path_is_the_longest_of_all_chains(tasks: tuple[Task, ...]) -> None:
    def seconds_and_length(chain: tuple[int, ...]) -> tuple[float, int]:
        return sum(tasks[position].seconds for position in chain), len(chain)

    path = longest_path(tasks)
    assert path in chains(tasks)
    assert work_seconds(tasks) == sum(task.seconds for task in tasks)
    most_seconds, most_tasks = max(map(seconds_and_length, chains(tasks)))
    assert len(path) == most_tasks
    assert bounds_of(tasks, 2).critical_path == most_seconds


def task(device: str, seconds: float, *after: int, kind: Kind = "compute") -> Task:
    """Return a task that waits for the tasks at these positions."""
    return Task("t", device, kind, after, seconds)


@pytest.mark.parametrize(
    ("tasks", "devices_with_cores", "workers", "expected"),
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
def test_the_largest_bound_counts(
    tasks: list[Task],
    devices_with_cores: int,
    workers: int,
    expected: tuple[float, float, float],
) -> None:
    bounds = bounds_of(tasks, devices_with_cores, workers)
    assert (bounds.critical_path, bounds.work_per_device, bounds.busiest_device) == expected
    assert bounds.seconds == max(expected)


@given(graphs())
def test_a_task_s_level_is_the_longest_chain_before_it(tasks: tuple[Task, ...]) -> None:
    for position, level in enumerate(levels(tasks)):
        longest = max(len(chain) for chain in chains_to(tasks, position))
        assert level == longest - 1


@given(graphs())
def test_leaving_loads_out_keeps_the_other_dependencies(tasks: tuple[Task, ...]) -> None:
    names_of_loads = {task.name for task in tasks if task.kind == "load"}
    kept = names_before(tasks)
    assert list(kept) == [task.name for task in tasks if task.kind != "load"]
    for task in tasks:
        if task.kind != "load":
            before = {tasks[earlier].name for earlier in task.after}
            assert kept[task.name] == before - names_of_loads


def ordered_pairs(tasks: tuple[Task, ...]) -> set[tuple[int, int]]:
    """Return the pairs of tasks of which the first must be done before the second."""
    return {(chain[0], chain[-1]) for chain in chains(tasks) if len(chain) > 1}


@given(graphs())
def test_leaving_out_what_is_implied_changes_no_order_and_nothing_more_can_go(
    tasks: tuple[Task, ...],
) -> None:
    reduced = without_implied(tasks)
    assert ordered_pairs(reduced) == ordered_pairs(tasks)
    for position, task in enumerate(reduced):
        for dropped in task.after:
            fewer_dependencies = tuple(earlier for earlier in task.after if earlier != dropped)
            changed = list(reduced)
            changed[position] = replace(task, after=fewer_dependencies)
            assert ordered_pairs(tuple(changed)) != ordered_pairs(tasks)


@pytest.fixture
def recording(backend: Backend) -> Recording:
    return Recording(backend)


def nested_sums(ops: Ops, x: Array) -> Array:
    """Return three sums: one, and a pair of them."""
    return ops.add(x, 1.0), (ops.add(x, 2.0), ops.add(x, 3.0))


def names_before(tasks: tuple[Task, ...]) -> dict[str, set[str]]:
    """Return the names of the tasks that each task comes after; loads are left out."""
    tasks = without_loads(tasks)
    return {task.name: {tasks[earlier].name for earlier in task.after} for task in tasks}


@pytest.mark.parametrize("one_by_one", [False, True])
def test_operations_depend_on_what_made_their_values(backend: Backend, one_by_one: bool) -> None:
    recording = Recording(backend, one_by_one)
    first, second, _ = backend.devices
    x = recording.asarray(ONES, first)
    a = labelled("a", recording.launch(backend.ops.add, x, 1.0))
    b = labelled("b", recording.launch(backend.ops.add, x, a))
    c = recording.copy_to(a, second)
    d = labelled("d", recording.launch(backend.ops.add, c, recording.copy_to(b, second)))
    # A copy on one device moves nothing between devices.
    labelled("own", recording.copy_to(c, second))
    assert np.array_equal(recording.to_numpy(recording.wait(d)), 5 * ONES)
    recording.waitall()

    tasks = recording.tasks
    recorded = [(task.name, task.kind, task.device, task.after, task.bytes) for task in tasks]
    assert recorded == [
        # After which tasks each comes, by their positions, and how many bytes it moves.
        ("asarray", "load", str(first), (), 0),
        ("a", "compute", str(first), (0,), 0),
        ("b", "compute", str(first), (0, 1), 0),
        ("copy", "copy", str(second), (1,), 24),
        ("copy", "copy", str(second), (2,), 24),
        ("d", "compute", str(second), (3, 4), 0),
        ("own", "copy", str(second), (3,), 0),
    ]
    assert crossings(tasks) == 2
    for task in tasks:
        assert (task.seconds > 0) == one_by_one


@pytest.mark.parametrize(
    ("consumed", "must_come_before", "may_come_before"),
    [
        ((0,), {"reads first"}, {"reads last"}),
        ((1, 0), {"reads inner"}, {"reads last"}),
        ((1, 1), {"reads last"}, set()),
        # An item that is counted from the end may be any other one that is not.
        ((1, -1), {"reads last"}, {"reads inner", "reads first"}),
    ],
)
def test_what_consumes_an_item_comes_after_those_who_read_it_and_no_others(
    recording: Recording,
    consumed: tuple[int, ...],
    must_come_before: set[str],
    may_come_before: set[str],
) -> None:
    add = recording.ops.add
    first, second, _ = recording.devices
    sums = recording.launch(partial(nested_sums, recording.ops), recording.asarray(ONES, first))
    items = {"reads first": sums[0], "reads inner": sums[1][0], "reads last": sums[-1][-1]}
    for expected, (name, item) in enumerate(items.items(), 3):
        reader = labelled(name, recording.launch(add, item, 1.0))
        assert recording.to_numpy(reader)[0, 0] == expected
    consumed_item = sums
    for index in consumed:
        consumed_item = consumed_item[index]

    recording.copy_to(recording.asarray(ONES, second), first, out=consumed_item)

    before = names_before(recording.tasks)
    assert before["nested_sums"] == set()
    for name in items:
        assert before[name] == {"nested_sums"}
    assert before["copy"] >= {"nested_sums"} | must_come_before
    assert before["copy"] <= {"nested_sums"} | must_come_before | may_come_before


def test_a_differentiated_function_is_named_alike_on_every_backend(recording: Recording) -> None:
    ops = recording.ops
    parameters = recording.asarray((ONES,), recording.devices[0])
    value_and_gradients = ops.value_and_grad(lambda parameters: ops.total(parameters[0]))
    recording.launch(value_and_gradients, parameters)
    assert recording.tasks[-1].name == "value_and_gradients"


@pytest.mark.parametrize(
    "factor", [np.float32(0.5), np.float64(0.5), Fraction(1, 2), np.int64(1), True]
)
def test_any_real_number_may_be_an_argument(recording: Recording, factor: Real) -> None:
    def scale(x: Array, factor: Real) -> Array:
        return recording.ops.multiply(x, float(factor))

    x = recording.asarray(ONES, recording.devices[0])
    scaled = recording.launch(scale, x, factor)
    np.testing.assert_allclose(recording.to_numpy(scaled), float(factor) * ONES)


def test_updated_parameters_come_after_all_that_used_the_old_ones(recording: Recording) -> None:
    device = recording.devices[0]
    parameters = recording.asarray((ONES, ONES), device)
    gradients = labelled("gradients", recording.launch(recording.ops.zeros_like, parameters))
    labelled("metric", recording.launch(recording.ops.total, parameters[0]))
    # Gradients are read and not consumed, so nobody waits for their other readers.
    recording.launch(recording.ops.total, gradients[0])
    sgd = partial(recording.ops.sgd, rate=0.5)
    updated = labelled("update", recording.launch(sgd, parameters, gradients))
    assert np.array_equal(recording.to_numpy(updated)[1], ONES)
    assert names_before(recording.tasks)["update"] == {"gradients", "metric"}


def test_an_allreduce_is_one_task_that_all_devices_wait_for(recording: Recording) -> None:
    add = recording.ops.add
    first, _, third = recording.devices
    shards = recording.split_and_load(np.ones((3, 2), dtype=np.float32), recording.devices)
    addends = [
        labelled(f"addend {number}", recording.launch(add, shard, 1.0))
        for number, shard in enumerate(shards)
    ]
    sums = recording.allreduce(addends)
    last = labelled("last", recording.launch(add, sums[2], 1.0))

    assert np.array_equal(recording.to_numpy(last), np.full((1, 2), 7, dtype=np.float32))
    before = names_before(recording.tasks)
    assert before["allreduce"] == {"addend 0", "addend 1", "addend 2"}
    assert before["last"] == {"allreduce"}
    *_, exchange_task, last_task = recording.tasks
    assert exchange_task.kind == "allreduce"
    assert exchange_task.device == str(first)
    # Two of three values of 8 bytes to the first device, and two back.
    assert exchange_task.bytes == 2 * 2 * 8
    assert last_task.device == str(third)
    # Two in, one out; the devices' own loads are on the devices themselves.
    assert crossings(recording.tasks) == 3


def test_values_made_elsewhere_are_refused(backend: Backend, recording: Recording) -> None:
    foreign = backend.asarray(ONES, backend.devices[0])
    with pytest.raises(ValueError, match="only its own values"):
        recording.launch(backend.ops.add, recording.asarray(ONES, backend.devices[0]), foreign)
    with pytest.raises(ValueError, match="determines the device"):
        recording.launch(backend.ops.add, foreign, 1.0)
