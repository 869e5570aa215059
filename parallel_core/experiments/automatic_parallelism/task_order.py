"""The order of tasks in a recorded repetition: dependencies that were broken, and tasks that ran
beside another device's.

A profiler records operations and not tasks. A device computes its tasks one after the other, and
each task has a known number of operations, so the operations can be assigned to tasks in the order
of their start. Only copies to a device may overtake each other.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from backends.profiling import Span
from parallel_core.experiments.runner.counts import Count
from parallel_core.experiments.runner.metrics import LOWEST, Band
from parallel_core.experiments.runner.tallies import (
    Repetition,
    Tally,
    computed_beside_another_device,
)
from parallel_core.measurement.task_graph import Task

ANY = 1e-9
"""A share that every count above 0 exceeds."""
Lane = tuple[str, str]
"""A kind of operation, and the device that runs it."""


class Extent(NamedTuple):
    """The times at which a task's operations began, and the last one ended, in nanoseconds."""

    starts: Sequence[int]
    end: int


def broken_dependencies(
    tasks: Sequence[Task], operations: Sequence[int], repetition: Repetition
) -> Tally:
    """Count the broken dependencies: an operation began before the task it needs had ended.

    `operations` are the numbers of operations of the tasks. Nothing is counted if the repetition
    has other operations than these.
    """
    extents = _extents(tasks, operations, repetition)
    if not extents:
        return Tally(0, 0)
    broken = dependencies = 0
    for position, task in enumerate(tasks):
        for number, earlier in enumerate(task.after):
            # A task adds up its operands one by one. The first addition needs operands 0 and 1, the
            # next one operand 2, and so on.
            operation = max(0, number - 1)
            began = extents[position].starts[operation]
            dependencies += 1
            if began < extents[earlier].end:
                broken += 1
    return Tally(broken, dependencies)


def _extents(
    tasks: Sequence[Task], operations: Sequence[int], repetition: Repetition
) -> dict[int, Extent]:
    """Return when each task ran, by the task's position.

    Nothing is returned if a lane has another number of operations than its tasks have.
    """
    names = sorted({span.device for span in repetition.operations})
    # Without queues all operations may run on the calling thread, whose device has one name.
    on_one_thread = len(names) == 1
    spans_by_lane: dict[Lane, list[Span]] = defaultdict(list)
    for span in repetition.operations:
        number = 0 if on_one_thread else names.index(span.device)
        spans_by_lane[span.kind, str(number)].append(span)
    tasks_by_lane: dict[Lane, list[int]] = defaultdict(list)
    for position, task in enumerate(tasks):
        device = "0" if on_one_thread else task.device
        tasks_by_lane[task.kind, device].append(position)
    expected_counts = {}
    for lane, positions in tasks_by_lane.items():
        expected_counts[lane] = sum(operations[position] for position in positions)
    recorded_counts = {lane: len(spans) for lane, spans in spans_by_lane.items()}
    if recorded_counts != expected_counts:
        return {}

    extents: dict[int, Extent] = {}

    def is_of_copies(lane: Lane) -> bool:
        return lane[0] == "copy"

    # The ends of computations come first, for the order of copies follows from them.
    for lane in sorted(tasks_by_lane, key=is_of_copies):
        positions = tasks_by_lane[lane]
        if is_of_copies(lane):
            # The copy whose source ended first began first.
            positions = sorted(positions, key=lambda copy: extents[tasks[copy].after[0]].end)
        spans = iter(spans_by_lane[lane])
        for position in positions:
            spans_of_task = [next(spans) for _ in range(operations[position])]
            starts = [span.start for span in spans_of_task]
            extents[position] = Extent(starts, spans_of_task[-1].end)
    return extents


BESIDE = Count(
    "multiplied_beside_another_device",
    "multiplications of a device ran while another one computed",
    # Smaller operations are shorter than a scheduler's slice and are left out.
    tally=partial(computed_beside_another_device, named="matmul"),
    at_once=True,
    title="Products at the same time",
    bands=(
        Band(LOWEST, "serial", "The devices took turns", overlap="none"),
        Band(0.2, "partly", "Tasks ran beside others in part", overlap="part"),
        # A device has few tasks, and one that begins a slice late has missed some of them.
        Band(0.5, "parallel", "Tasks ran beside others", overlap="all"),
    ),
)
BROKEN = Count(
    "broken_dependencies",
    "were broken",
    bands=(
        Band(LOWEST, "kept", "Right, all dependencies between tasks were kept"),
        Band(ANY, "broken", "Wrong, dependencies between tasks were broken"),
    ),
    error="dependencies were broken: a task began before one that it depends on had ended",
)
