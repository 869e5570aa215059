"""A graph of tasks, each with the tasks that it depends on, and bounds on every schedule of them.

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
    """Return the positions of the chain of dependent tasks that takes longest.

    Of equals it is one with the most tasks.
    """
    # For each task: the seconds and the number of tasks of the longest chain that ends with it.
    longest: list[tuple[float, int]] = []
    before: list[int | None] = []
    for task in tasks:
        predecessor = max(task.after, key=longest.__getitem__, default=None)
        seconds, count = (0.0, 0) if predecessor is None else longest[predecessor]
        longest.append((seconds + task.seconds, count + 1))
        before.append(predecessor)
    path = []
    position = max(range(len(tasks)), key=longest.__getitem__, default=None)
    while position is not None:
        path.append(position)
        position = before[position]
    return tuple(reversed(path))


def work_seconds(tasks: Sequence[Task]) -> float:
    """Return the duration of all tasks one after the other: the minimum with one device."""
    return sum(task.seconds for task in tasks)


def crossings(tasks: Sequence[Task]) -> int:
    """Count the dependencies between tasks of different devices.

    At each of them one device waits for another.
    """
    count = 0
    for task in tasks:
        devices = [tasks[earlier].device for earlier in task.after]
        count += len(devices) - devices.count(task.device)
    return count


def levels(tasks: Sequence[Task]) -> tuple[int, ...]:
    """Return how many tasks must be done before each task, counted along the longest chain."""
    depths: list[int] = []
    for task in tasks:
        depths.append(max((depths[earlier] + 1 for earlier in task.after), default=0))
    return tuple(depths)


def without_loads(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Leave out tasks that only load inputs; the rest keep their order and are renumbered."""
    remaining: list[Task] = []
    new_position: dict[int, int] = {}
    for position, task in enumerate(tasks):
        if task.kind != "load":
            new_position[position] = len(remaining)
            after = [new_position[earlier] for earlier in task.after if earlier in new_position]
            remaining.append(replace(task, after=tuple(after)))
    return tuple(remaining)


def without_implied(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Leave out every dependency that follows from other dependencies.

    Each task still waits for the same tasks.
    """
    before: list[set[int]] = []
    reduced = []
    for task in tasks:
        implied: set[int] = set()
        for earlier in task.after:
            implied |= before[earlier]
        before.append(implied | set(task.after))
        after = [earlier for earlier in task.after if earlier not in implied]
        reduced.append(replace(task, after=tuple(after)))
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
        critical_path=work_seconds([tasks[position] for position in longest_path(tasks)]),
        work_per_device=work_seconds(work) / places,
        busiest_device=max(on_device.values(), default=0.0) / workers,
    )
