"""Bounds and paths agree with a search through all chains, and a recording's tasks with the values
that they make.
"""

import itertools
from dataclasses import replace
from fractions import Fraction
from functools import partial, reduce
from numbers import Real
from operator import getitem

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends import Array, Backend, Ops
from parallel_core.measurement.recording import Recording, labelled
from parallel_core.measurement.task_graph import (
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
    tasks: list[Task] = []
    for place in range(draw(st.integers(0, 7))):
        after = draw(st.sets(st.integers(0, place - 1))) if place else set()
        # Whole seconds: their sums are exact in any order.
        seconds = draw(st.integers(0, 9))
        device = draw(st.sampled_from("abc"))
        tasks.append(
            Task(f"task {place}", device, draw(KINDS), tuple(sorted(after)), float(seconds))
        )
    return tuple(tasks)


def chains(tasks: tuple[Task, ...]) -> list[tuple[int, ...]]:
    """List every chain of dependent tasks."""
    return [
        chosen
        for count in range(len(tasks) + 1)
        for chosen in itertools.combinations(range(len(tasks)), count)
        if all(earlier in tasks[later].after for earlier, later in itertools.pairwise(chosen))
    ]


@given(graphs())
# Of paths without times the longest is taken.
@example((Task("x", "a", "compute"), Task("y", "a", "compute", (0,)), Task("z", "a", "compute")))
def test_the_critical_path_is_the_longest_of_all_chains(tasks: tuple[Task, ...]) -> None:
    path = longest_path(tasks)
    assert path in chains(tasks)
    longest = max(
        (sum(tasks[place].seconds for place in chain), len(chain)) for chain in chains(tasks)
    )
    bounds = bounds_of(tasks, 2)
    assert (bounds.critical_path, len(path)) == longest
    assert (
        bounds.work_per_device == work_seconds(tasks) / 2 == sum(task.seconds for task in tasks) / 2
    )


@given(graphs())
def test_a_task_s_level_is_the_longest_chain_before_it(tasks: tuple[Task, ...]) -> None:
    for place, level in enumerate(levels(tasks)):
        assert (
            level == max(len(chain) for chain in chains(tasks) if chain and chain[-1] == place) - 1
        )


@given(graphs())
def test_leaving_loads_out_keeps_the_other_dependencies(tasks: tuple[Task, ...]) -> None:
    def named(some: tuple[Task, ...]) -> set[tuple[str, str]]:
        return {
            (some[earlier].name, task.name)
            for task in some
            for earlier in task.after
            if "load" not in (task.kind, some[earlier].kind)
        }

    kept = without_loads(tasks)
    assert [task.name for task in kept] == [task.name for task in tasks if task.kind != "load"]
    assert named(kept) == named(tasks)
    assert all(earlier < place for place, task in enumerate(kept) for earlier in task.after)


def reachable(tasks: tuple[Task, ...]) -> set[tuple[int, int]]:
    """List the pairs of tasks of which the first must be done before the second."""
    return {
        (first, last) for first, *_, last in (chain for chain in chains(tasks) if len(chain) > 1)
    }


@given(graphs())
def test_leaving_out_what_is_implied_changes_no_order_and_nothing_more_can_go(
    tasks: tuple[Task, ...],
) -> None:
    reduced = without_implied(tasks)
    assert reachable(reduced) == reachable(tasks)
    for place, task in enumerate(reduced):
        for dropped in task.after:
            fewer = replace(
                task, after=tuple(earlier for earlier in task.after if earlier != dropped)
            )
            assert reachable((*reduced[:place], fewer, *reduced[place + 1 :])) != reachable(tasks)


@pytest.fixture
def recording(backend: Backend) -> Recording:
    return Recording(backend)


def both(ops: Ops, x: Array) -> Array:
    return ops.add(x, 1.0), (ops.add(x, 2.0), ops.add(x, 3.0))


def after(tasks: tuple[Task, ...]) -> dict[str, set[str]]:
    """Return what each task comes after, by names; loads are left out."""
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
    assert all((task.seconds > 0) == one_by_one for task in tasks)


@pytest.mark.parametrize(
    ("consumed", "conflicting"),
    [
        ((0,), {"reads first"}),
        ((1, 0), {"reads inner"}),
        ((1, 1), {"reads last"}),
        ((1, -1), {"reads last"}),
    ],
)
def test_what_consumes_an_item_comes_after_those_who_read_it_and_no_others(
    recording: Recording, consumed: tuple[int, ...], conflicting: set[str]
) -> None:
    add, (first, second, _) = recording.ops.add, recording.devices
    made = recording.launch(partial(both, recording.ops), recording.asarray(ONES, first))
    items = {"reads first": made[0], "reads inner": made[1][0], "reads last": made[-1][-1]}
    read = [labelled(name, recording.launch(add, item, 1.0)) for name, item in items.items()]
    assert [recording.to_numpy(one)[0, 0] for one in read] == [3, 4, 5]
    recording.copy_to(recording.asarray(ONES, second), first, out=reduce(getitem, consumed, made))
    # An item that is counted from the end may be any other one that is not.
    last = (
        {"reads last"}
        if consumed[-1] >= 0 or len(consumed) == 1
        else {"reads inner", "reads first"}
    )
    found = after(recording.tasks)
    assert (found["both"], [found[name] for name in items]) == (set(), [{"both"}] * 3)
    assert {"both"} | conflicting <= found["copy"] <= {"both"} | conflicting | last


def test_a_differentiated_function_is_named_alike_on_every_backend(recording: Recording) -> None:
    parameters = recording.asarray((ONES,), recording.devices[0])
    recording.launch(recording.ops.value_and_grad(lambda p: recording.ops.total(p[0])), parameters)
    assert recording.tasks[-1].name == "value_and_gradients"


@pytest.mark.parametrize(
    "rate", [np.float32(0.5), np.float64(0.5), Fraction(1, 2), np.int64(1), True]
)
def test_any_real_number_may_be_an_argument(recording: Recording, rate: Real) -> None:
    parameters, gradients = (recording.asarray((ONES,), recording.devices[0]) for _ in range(2))
    sgd = recording.ops.sgd
    (updated,) = recording.to_numpy(
        recording.launch(lambda p, g, r: sgd(p, g, float(r)), parameters, gradients, rate)
    )
    np.testing.assert_allclose(updated, (1 - float(rate)) * ONES)


def test_updated_parameters_come_after_all_that_used_the_old_ones(recording: Recording) -> None:
    device = recording.devices[0]
    parameters = recording.asarray((ONES, ONES), device)
    gradients = labelled("gradients", recording.launch(recording.ops.zeros_like, parameters))
    labelled("metric", recording.launch(recording.ops.total, parameters[0]))
    updated = labelled(
        "update", recording.launch(partial(recording.ops.sgd, rate=0.5), parameters, gradients)
    )
    assert np.array_equal(recording.to_numpy(updated)[1], ONES)
    assert after(recording.tasks)["update"] == {"gradients", "metric"}


def test_an_allreduce_is_one_task_that_all_devices_wait_for(recording: Recording) -> None:
    first, _, third = recording.devices
    shards = recording.split_and_load(np.ones((3, 2), dtype=np.float32), recording.devices)
    own = [
        labelled(f"own {k}", recording.launch(recording.ops.add, shard, 1.0))
        for k, shard in enumerate(shards)
    ]
    sums = recording.allreduce(own)
    last = labelled("last", recording.launch(recording.ops.add, sums[2], 1.0))
    assert np.array_equal(recording.to_numpy(last), np.full((1, 2), 7, dtype=np.float32))
    names = {"own 0", "own 1", "own 2"}
    assert after(recording.tasks) == {
        **{name: set() for name in names},
        "allreduce": names,
        "last": {"allreduce"},
    }
    *_, exchange, end = recording.tasks
    # Two of three values of 8 bytes to the first device, and two back.
    assert (exchange.kind, exchange.device, exchange.bytes) == ("allreduce", str(first), 2 * 2 * 8)
    assert end.device == str(third)
    # Two in, one out; the devices' own loads are on the devices themselves.
    assert crossings(recording.tasks) == 3


def test_values_made_elsewhere_are_refused(backend: Backend, recording: Recording) -> None:
    foreign = backend.asarray(ONES, backend.devices[0])
    with pytest.raises(ValueError, match="only its own values"):
        recording.launch(backend.ops.add, recording.asarray(ONES, backend.devices[0]), foreign)
    with pytest.raises(ValueError, match="determines the device"):
        recording.launch(backend.ops.add, foreign, 1.0)
