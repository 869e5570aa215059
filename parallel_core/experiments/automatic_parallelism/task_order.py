"""The order of tasks in a recorded repetition: did each begin after all that it depends on had
ended, and which ran beside another device's?

A profiler records operations and not tasks. Here the tasks of each device form a chain, in which
each has a known number of operations, so a device's operations, in the order of their start, are
those of its tasks. That leaves the copies to a device, which may overtake each other.
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
"""A share that any count but 0 exceeds."""
Lane = tuple[str, str]
"""A kind of operation, and the device that does it."""


class Extent(NamedTuple):
    """The times at which a task's operations began, and the last one ended, in nanoseconds."""

    starts: Sequence[int]
    end: int


def broken_dependencies(
    tasks: Sequence[Task], operations: Sequence[int], repetition: Repetition
) -> Tally:
    """Count the dependencies that were broken: what needs a value began before its task had ended.

    A task first adds up what it depends on, one after the other, and a framework may begin as soon
    as the first two are there. The tasks' devices are their numbers, and `operations` how many
    operations each task has. Nothing is counted if the repetition has others than these.
    """
    extents = _extents(tasks, operations, repetition)
    if not extents:
        return Tally(0, 0)
    broken = dependencies = 0
    for position, task in enumerate(tasks):
        for number, earlier in enumerate(task.after):
            addition = max(0, number - 1)
            dependencies += 1
            if extents[position].starts[addition] < extents[earlier].end:
                broken += 1
    return Tally(broken, dependencies)


def _extents(
    tasks: Sequence[Task], operations: Sequence[int], repetition: Repetition
) -> dict[int, Extent]:
    """Return when each task ran, by its position; empty if the operations are not the tasks'."""
    names = sorted({span.device for span in repetition.operations})
    # Without queues all may run on the calling thread, whose device has one name.
    on_one_thread = len(names) == 1
    spans_of: dict[Lane, list[Span]] = defaultdict(list)
    for span in repetition.operations:
        number = 0 if on_one_thread else names.index(span.device)
        spans_of[span.kind, str(number)].append(span)
    tasks_of: dict[Lane, list[int]] = defaultdict(list)
    for position, task in enumerate(tasks):
        device = "0" if on_one_thread else task.device
        tasks_of[task.kind, device].append(position)
    expected = {
        lane: sum(operations[position] for position in positions)
        for lane, positions in tasks_of.items()
    }
    if expected != {lane: len(spans) for lane, spans in spans_of.items()}:
        return {}

    extents: dict[int, Extent] = {}
    # What is copied has to be known first.
    for lane in sorted(tasks_of, key=lambda lane: lane[0] == "copy"):
        positions = tasks_of[lane]
        if lane[0] == "copy":
            # The copy whose source was there first began first.
            positions = sorted(positions, key=lambda copy: extents[tasks[copy].after[0]].end)
        spans = iter(spans_of[lane])
        for position in positions:
            of_task = [next(spans) for _ in range(operations[position])]
            extents[position] = Extent([span.start for span in of_task], of_task[-1].end)
    return extents


BESIDE = Count(
    "multiplied_beside_another_device",
    "multiplications of a device ran while another one computed",
    # Smaller operations are shorter than a scheduler's slice and are left out.
    tally=partial(computed_beside_another_device, named="matmul"),
    title="Multiplied beside another",
    bands=(
        Band(LOWEST, "serial", "The devices took turns"),
        Band(0.2, "partly", "Tasks ran beside others in part"),
        # A device has few tasks, and one that begins a slice late has missed some of them.
        Band(0.5, "parallel", "Tasks ran beside others"),
    ),
)
BROKEN = Count(
    "broken_dependencies",
    "were broken",
    bands=(
        Band(LOWEST, "kept", "All dependencies between tasks were kept"),
        Band(ANY, "broken", "Dependencies between tasks were broken"),
    ),
    error="dependencies were broken: a task began before one that it depends on had ended",
)
