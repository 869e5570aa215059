"""How near an engine comes to the fastest schedule that the dependencies allow: what experiments on task graphs share.

A program is timed with a wait after every operation, which gives each operation's seconds, and then with none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from types import MappingProxyType
from typing import Any

from backends import Array, Backend
from backends.host import available_cores
from parallel_core.experiments.runner.changes import LESS_NOISE, Change, Found, with_queue
from parallel_core.experiments.runner.metrics import LOWEST, Band, Formula, Metric, ratio
from parallel_core.experiments.runner.trial import Trial, Work
from parallel_core.measurement.recording import Recording
from parallel_core.measurement.task_graph import Bounds, Task, bounds_of, without_loads, work_seconds
from parallel_core.measurement.timing import Timing, measure

__all__ = ["BOUND_FRACTION", "CHANGES", "FREE", "SPEEDUP", "Program", "find_bounds", "record", "time_programs"]

ONE_BY_ONE, FREE = "one by one", "freely scheduled"

BOUND_FRACTION = Metric(
    "bound_fraction",
    means="the least time that any schedule needs over the time taken: 1 is as fast as any could be",
    limits=(0.0, 1.0),
    bands=(
        Band(LOWEST, "slower", "Slower than the fastest schedule"),
        Band(0.8, "near", "About as fast as any schedule can be"),
        Band(1.25, "beyond", "Faster than the bound, since an operation that is timed separately is also waited for"),
    ),
)
SPEEDUP = Metric(
    "speedup",
    bands=(
        Band(LOWEST, "cost", "Launching without waits in between cost time"),
        Band(0.9, "no-difference", "Launching without waits in between made little difference"),
        Band(1.1, "paid", "Launching without waits in between paid"),
    ),
)


@dataclass(frozen=True)
class Program:
    """Operations on a backend: `inputs` loads what they need, untimed, and `run` launches them.

    `units` returns what launches each device's computations as one unit, on values such as they are given.
    """

    inputs: Callable[[Backend], Any]
    run: Callable[[Backend, Any], Array]
    units: Callable[[Backend], Sequence[Callable[[], object]]]


@dataclass(frozen=True)
class Scheduled:
    """A program's tasks, each with the median of its own seconds, and what follows from them and its two cases."""

    tasks: tuple[Task, ...]
    bounds: Bounds
    bound_fraction: Formula
    """The bound over the time freely scheduled."""


def record(backend: Backend, program: Program, one_by_one: bool = False) -> tuple[Task, ...]:
    """Run a program and return what it did, the loading of its inputs included."""
    recording = Recording(backend, one_by_one)
    kept = program.run(recording, program.inputs(recording))
    tasks = recording.tasks
    del kept
    return tasks


def time_programs(trial: Trial, programs: Mapping[str, Program]) -> dict[str, Scheduled]:
    """Time programs both ways, interleaved. A case's name begins with its program's, if that has one.

    Its bare time is that of the device with the most to compute: what passes between devices, and waiting for each
    other, is a matter of scheduling.
    """
    recorded: dict[str, list[tuple[Task, ...]]] = {name: [] for name in programs}

    def one_by_one(name: str) -> Timing:
        tasks = without_loads(record(trial.backend, programs[name], one_by_one=True))
        recorded[name].append(tasks)
        return work_seconds(tasks), work_seconds(tasks)

    def freely(name: str) -> Timing:
        inputs = programs[name].inputs(trial.backend)
        return measure(trial.backend, partial(programs[name].run, trial.backend, inputs))

    for name, program in programs.items():
        units = [Work(launch, launch) for launch in program.units(trial.backend)]
        trial.time(_case(name, ONE_BY_ONE), take=partial(one_by_one, name), bare=units)
        trial.time(_case(name, FREE), take=partial(freely, name), bare=units)
    trial.run(0.85)
    return {name: _scheduled(trial, name, runs) for name, runs in recorded.items()}


def _case(program: str, how: str) -> str:
    return ", ".join(filter(None, (program, how)))


def _scheduled(trial: Trial, name: str, runs: Sequence[tuple[Task, ...]]) -> Scheduled:
    separate, free = _case(name, ONE_BY_ONE), _case(name, FREE)
    # The first was the warm-up.
    same = zip(*runs[-len(trial.cases[separate].seconds) :], strict=True)
    tasks = tuple(replace(of[-1], seconds=median(task.seconds for task in of)) for of in same)
    bounds = bounds_of(tasks, places(trial.backend), trial.backend.workers_per_device)
    # The bound is made of the times one by one, and as uncertain as they are.
    share = bounds.seconds / trial.cases[separate].median
    return Scheduled(tasks, bounds, lambda times: share * times[separate] / times[free])


def places(backend: Backend) -> int:
    """Count what can work at once: all on GPUs, and the CPU devices' workers, but no more than there are cores for."""
    on_cpus = sum(device.kind == "cpu" for device in backend.devices)
    workers = min(on_cpus * backend.workers_per_device, max(1, available_cores() // backend.threads_per_device))
    return len(backend.devices) - on_cpus + workers


LOWER_BOUND: Mapping[str, str] = MappingProxyType(
    {
        "critical_path_seconds": "A shorter chain of dependent operations: no number of devices or workers beats it.",
        "busiest_device_seconds": "Less work on the busiest device, or a second worker for its queue (--workers 2).",
        "work_per_device_seconds": "More devices that can work at once (--devices), with a core for each.",
    }
)
"""The bounds, and what would lower the largest one."""


def find_bounds(trial: Trial, name: str, scheduled: Scheduled) -> None:
    """Find how near a program came to its bound, what bounds it, and what waiting for nothing in between gained."""
    trial.found_by(BOUND_FRACTION.name, scheduled.bound_fraction)
    trial.found_by(SPEEDUP.name, ratio(_case(name, ONE_BY_ONE), _case(name, FREE)))
    for bound in LOWER_BOUND:
        trial.found(bound, getattr(scheduled.bounds, bound.removesuffix("_seconds")))


def waits_in_order(found: Found) -> bool:
    """Return whether a second worker could start an operation behind one that waits."""
    in_order = found.backend.workers_per_device == 1 and found.backend.devices[0].kind == "cpu"
    return in_order and found.is_in(BOUND_FRACTION.name, "slower") and found.is_in(SPEEDUP.name, "paid")


CHANGES = (
    with_queue("operations that do not depend on each other should run at the same time"),
    Change(
        lambda found: found.is_in(BOUND_FRACTION.name, "near"),
        lambda found: LOWER_BOUND[max(LOWER_BOUND, key=found.result.metrics.__getitem__)],
    ),
    LESS_NOISE,
    Change(waits_in_order, "A second worker for each queue (--workers 2), which passes over what has to wait."),
)
