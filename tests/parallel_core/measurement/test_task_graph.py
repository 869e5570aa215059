"""Bounds on schedules agree with a search through all of them."""

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

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


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Task, ...]:
    tasks: list[Task] = []
    for place in range(draw(st.integers(0, 7))):
        after = draw(st.sets(st.integers(0, place - 1))) if place else set()
        # Whole seconds: their sums are exact in any order.
        seconds = draw(st.integers(0, 9))
        device = draw(st.sampled_from("abc"))
        tasks.append(Task(f"task {place}", device, draw(KINDS), tuple(sorted(after)), float(seconds)))
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
def test_the_critical_path_is_the_longest_of_all_chains(tasks: tuple[Task, ...]) -> None:
    path = longest_path(tasks)
    assert path in chains(tasks)
    longest = max((sum(tasks[place].seconds for place in chain), len(chain)) for chain in chains(tasks))
    assert (bounds_of(tasks, 1).critical_path, len(path)) == longest


@given(graphs())
def test_a_task_s_level_is_the_longest_chain_before_it(tasks: tuple[Task, ...]) -> None:
    for place, level in enumerate(levels(tasks)):
        assert level == max(len(chain) for chain in chains(tasks) if chain and chain[-1] == place) - 1


@given(graphs(), st.integers(1, 4))
def test_no_schedule_is_faster_than_the_bound_and_one_device_reaches_it(tasks: tuple[Task, ...], devices: int) -> None:
    bounds, taken = bounds_of(tasks, devices), schedule(tasks, devices)
    # Graham's bound: a schedule that never idles without need is at most the sum of the two.
    sum_of_both = bounds.critical_path + bounds.work_per_device
    assert max(bounds.critical_path, bounds.work_per_device) <= taken <= sum_of_both + 1e-9
    assert bounds_of(tasks, 1).work_per_device == schedule(tasks, 1) == work_seconds(tasks)
    assert schedule(tasks, len(tasks) + 1) == bounds.critical_path


def schedule(tasks: tuple[Task, ...], devices: int) -> float:
    """Run each task as soon as its dependencies are done and a device is free, in program order."""
    free = [0.0] * devices
    pending = list(range(len(tasks)))
    done: dict[int, float] = {}
    while pending:
        able = [place for place in pending if all(earlier in done for earlier in tasks[place].after)]
        ready = {place: max((done[earlier] for earlier in tasks[place].after), default=0.0) for place in able}
        place = min(ready, key=lambda place: (ready[place], place))
        device = min(range(devices), key=free.__getitem__)
        done[place] = free[device] = max(ready[place], free[device]) + tasks[place].seconds
        pending.remove(place)
    return max(done.values(), default=0.0)


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
    return {(first, last) for first, *_, last in (chain for chain in chains(tasks) if len(chain) > 1)}


@given(graphs())
def test_leaving_out_what_is_implied_changes_no_order_and_nothing_more_can_go(tasks: tuple[Task, ...]) -> None:
    reduced = without_implied(tasks)
    assert reachable(reduced) == reachable(tasks)
    for place, task in enumerate(reduced):
        for dropped in task.after:
            fewer = replace(task, after=tuple(earlier for earlier in task.after if earlier != dropped))
            assert reachable((*reduced[:place], fewer, *reduced[place + 1 :])) != reachable(tasks)


def test_a_crossing_is_a_dependency_between_two_devices() -> None:
    tasks = (Task("x", "a", "compute"), Task("y", "b", "copy", (0,)), Task("z", "b", "compute", (0, 1)))
    assert crossings(tasks) == 2


def test_of_paths_without_times_the_longest_is_taken() -> None:
    tasks = (Task("x", "a", "compute"), Task("y", "a", "compute", (0,)), Task("z", "a", "compute"))
    assert longest_path(tasks) == (0, 1)
