"""A graph of tasks, each with the tasks that it depends on, and bounds on how fast any schedule of
them could be.

Two bounds hold for every schedule. A chain of dependent tasks takes as long as the sum of its tasks
(the longest one is the critical path), and n devices cannot do more than n devices' work at once
(work / n). Graham 1969 (Bounds on Multiprocessing Timing Anomalies) shows that a schedule that
never leaves a device idle while a task is ready takes at most the sum of the two.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["compute", "copy", "allreduce", "load"]


@dataclass(frozen=True)
class Task:
    """One operation: the device it runs on and the tasks it waits for.

    `after` are the positions of those tasks, which stand earlier in the sequence. `seconds` is its
    isolated duration, 0 if it was not measured. `bytes` is what it moves between devices.
    """

    name: str
    device: str
    kind: Kind
    after: tuple[int, ...] = ()
    seconds: float = 0.0
    bytes: int = 0


def longest_path(tasks: Sequence[Task]) -> tuple[int, ...]:
    """Return the positions of the chain of dependent tasks that takes longest; of equals, one with
    the most tasks.
    """
    longest: list[tuple[float, int]] = []
    before: list[int | None] = []
    for task in tasks:
        last = max(task.after, key=longest.__getitem__, default=None)
        seconds, count = (0.0, 0) if last is None else longest[last]
        longest.append((seconds + task.seconds, count + 1))
        before.append(last)
    path = []
    place = max(range(len(tasks)), key=longest.__getitem__, default=None)
    while place is not None:
        path.append(place)
        place = before[place]
    return tuple(reversed(path))


def work_seconds(tasks: Sequence[Task]) -> float:
    """Return the duration of all tasks one after the other: the minimum with one device."""
    return sum(task.seconds for task in tasks)


def crossings(tasks: Sequence[Task]) -> int:
    """Count the dependencies between tasks of different devices, at which one device waits for
    another.
    """
    return sum(tasks[earlier].device != task.device for task in tasks for earlier in task.after)


def levels(tasks: Sequence[Task]) -> tuple[int, ...]:
    """Return how many tasks must be done before each, counted along the longest chain."""
    depths: list[int] = []
    for task in tasks:
        depths.append(max((depths[earlier] + 1 for earlier in task.after), default=0))
    return tuple(depths)


def without_loads(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Leave out tasks that only load inputs; the rest keep their order and are renumbered."""
    remaining = [place for place, task in enumerate(tasks) if task.kind != "load"]
    number = {place: count for count, place in enumerate(remaining)}
    after = [
        tuple(number[earlier] for earlier in tasks[place].after if earlier in number)
        for place in remaining
    ]
    return tuple(
        replace(tasks[place], after=own) for place, own in zip(remaining, after, strict=True)
    )


def without_implied(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Leave out every dependency that follows from other dependencies; each task still waits for
    the same tasks.
    """
    before: list[set[int]] = []
    reduced = []
    for task in tasks:
        implied = set().union(*(before[earlier] for earlier in task.after))
        before.append(implied | set(task.after))
        reduced.append(
            replace(task, after=tuple(earlier for earlier in task.after if earlier not in implied))
        )
    return tuple(reduced)


@dataclass(frozen=True)
class Bounds:
    """Three times, in seconds, that no schedule of some tasks can beat."""

    critical_path: float
    work_per_device: float
    """All work, divided by the number of devices that can work at once."""
    busiest_device: float
    """The largest amount of computing that was placed on one device, divided by its workers."""

    @property
    def seconds(self) -> float:
        """The largest of the three."""
        return max(self.critical_path, self.work_per_device, self.busiest_device)


def bounds_of(tasks: Sequence[Task], places: int, workers: int = 1) -> Bounds:
    """Return the bounds of tasks of which `places` can run at once, and `workers` on one device.

    A GPU copies and computes at the same time, so its copies do not count as work.
    """
    computing = [task for task in tasks if task.kind == "compute"]
    work = [task for task in tasks if task.kind == "compute" or not task.device.startswith("gpu")]
    on_device: dict[str, float] = defaultdict(float)
    for task in computing:
        on_device[task.device] += task.seconds
    return Bounds(
        critical_path=work_seconds([tasks[place] for place in longest_path(tasks)]),
        work_per_device=work_seconds(work) / places,
        busiest_device=max(on_device.values(), default=0.0) / workers,
    )
