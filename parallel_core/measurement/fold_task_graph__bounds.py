"""How fast tasks could be with the devices that there are, each task on the device where it was placed."""

from collections.abc import Sequence
from dataclasses import dataclass

from parallel_core.measurement.task_graph import Task, critical_path_seconds, work_by_device, work_seconds

__all__ = ["Bounds", "bounds_of"]


@dataclass(frozen=True)
class Bounds:
    """Three times, in seconds, that no schedule of some tasks can beat."""

    critical_path: float
    work_per_device: float
    """All work, divided by the number of devices that can work at once."""
    busiest_device: float
    """The computing that was placed on one device, divided by its workers: no other device can take it over."""

    @property
    def seconds(self) -> float:
        """The largest of them."""
        return max(self.critical_path, self.work_per_device, self.busiest_device)

    @property
    def name(self) -> str:
        """What the largest one is."""
        if self.seconds == self.critical_path:
            return "its longest chain of dependent operations"
        if self.seconds == self.busiest_device:
            return "the work placed on its busiest device"
        return "its work divided by the devices that can work at once"


def bounds_of(tasks: Sequence[Task], places: int, workers: int = 1) -> Bounds:
    """Return the bounds of tasks of which `places` can run at once, and `workers` on one device.

    GPUs copy beside their work, so copies are none there.
    """
    computing = [task for task in tasks if task.kind == "compute"]
    work = [task for task in tasks if task.kind == "compute" or not task.device.startswith("gpu")]
    return Bounds(
        critical_path_seconds(tasks),
        work_seconds(work) / places,
        max(work_by_device(computing).values(), default=0.0) / workers,
    )
