"""How near an engine comes to the fastest schedule that the dependencies allow: what the labs on task graphs share."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from backends import Array, Backend
from backends.host import available_cores
from parallel_core.experiments.changes import LESS_NOISE, with_queue
from parallel_core.experiments.measuring import Units, take_in_turn
from parallel_core.measurement.confidence_intervals import Interval, decide, exponential, with_bounds
from parallel_core.measurement.recording import Recording
from parallel_core.measurement.result import Case
from parallel_core.measurement.task_graph import Bounds, Task, bounds_of, without_loads, work_seconds
from parallel_core.measurement.timing import Timing, measure
from parallel_core.measurement.verdicts import MIN_NOISE, over_rounds, times_as_long
from parallel_core.system.formatting import figure

__all__ = [
    "FREE",
    "ONE_BY_ONE",
    "Program",
    "Scheduled",
    "about_schedule",
    "case_name",
    "record",
    "time_programs",
    "what_would_change",
]

ONE_BY_ONE = "one by one"
FREE = "freely scheduled"
NEAR = 0.8
"""From this share of its bound on, and up to its inverse, a time is about as long as the bound."""


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
    """A program's times one operation after the other and freely scheduled, its tasks, and their bounds."""

    alone: Case
    free: Case
    tasks: tuple[Task, ...]
    bounds: Bounds

    @property
    def bound_fraction(self) -> float:
        """The bound over the time freely scheduled: 1 is as fast as any schedule could be."""
        return self.bounds.seconds / self.free.median

    @property
    def of_bound(self) -> Interval:
        """How many times as long as its bound it took, freely scheduled."""
        # The bound is made of the times alone, and as uncertain as they are.
        share = self.bounds.seconds / self.alone.median
        times = self.free.seconds, self.alone.seconds
        return exponential(over_rounds(lambda free, alone: np.log(free / (share * alone)), *times))

    @property
    def bound_interval(self) -> Interval:
        """The bound fraction with its interval."""
        inverse = self.of_bound
        return Interval(self.bound_fraction, 1 / inverse.high, 1 / inverse.low if inverse.low else math.inf)


def record(backend: Backend, program: Program, one_by_one: bool = False) -> tuple[Task, ...]:
    """Run a program and return what it did, the loading of its inputs included."""
    recording = Recording(backend, one_by_one)
    kept = program.run(recording, program.inputs(recording))
    tasks = recording.tasks
    del kept
    return tasks


def time_programs(
    backend: Backend, programs: Mapping[str, Program], rounds: int, budget: float = math.inf
) -> dict[str, Scheduled]:
    """Time programs both ways, interleaved; a task's seconds are the median of its own over the rounds.

    A case's name begins with its program's, if that has one. Its bare time is that of the device with the most to
    compute: what passes between devices, and waiting for each other, is a matter of scheduling.
    """
    recorded: dict[str, list[tuple[Task, ...]]] = {name: [] for name in programs}

    def one_by_one(name: str) -> Timing:
        tasks = without_loads(record(backend, programs[name], one_by_one=True))
        recorded[name].append(tasks)
        return work_seconds(tasks), work_seconds(tasks)

    def freely(name: str) -> Timing:
        inputs = programs[name].inputs(backend)
        return measure(backend, partial(programs[name].run, backend, inputs))

    takes = {
        case_name(name, how): partial(take, name)
        for name in programs
        for how, take in ((ONE_BY_ONE, one_by_one), (FREE, freely))
    }
    units = {
        name: {case_name(name, f"share {number}"): launch for number, launch in enumerate(program.units(backend), 1)}
        for name, program in programs.items()
    }
    timed = take_in_turn(
        backend,
        takes,
        rounds,
        units=Units(
            {unit: launch for own in units.values() for unit, launch in own.items()},
            {case_name(name, how): list(own) for name, own in units.items() for how in (ONE_BY_ONE, FREE)},
        ),
        budget=budget,
    )
    scheduled = {}
    for name in programs:
        alone, free = timed[case_name(name, ONE_BY_ONE)], timed[case_name(name, FREE)]
        # The first one was the warm-up.
        tasks = _with_medians(recorded[name][-len(alone.seconds) :])
        scheduled[name] = Scheduled(
            alone,
            free,
            tasks,
            bounds_of(tasks, _places(backend), backend.workers_per_device),
        )
    return scheduled


def case_name(program: str, how: str) -> str:
    """Name a case."""
    return ", ".join(filter(None, (program, how)))


def _with_medians(runs: list[tuple[Task, ...]]) -> tuple[Task, ...]:
    """Return the tasks of the last of several equal runs, each with the median of its seconds."""
    return tuple(replace(same[-1], seconds=median(task.seconds for task in same)) for same in zip(*runs, strict=True))


def _places(backend: Backend) -> int:
    """Count what can work at once: all on GPUs, and the CPU devices' workers, but no more than there are cores for."""
    on_cpus = sum(device.kind == "cpu" for device in backend.devices)
    workers = min(on_cpus * backend.workers_per_device, max(1, available_cores() // backend.threads_per_device))
    return len(backend.devices) - on_cpus + workers


def about_schedule(name: str, program: Scheduled) -> str:
    """Say how near a program, `name` in a sentence, came to its bound, and whether anything ran at the same time."""
    alone, free, bounds = program.alone, program.free, program.bounds
    share, of_bound, of_alone = bounds.seconds / alone.median, program.of_bound, times_as_long(free, alone)
    bound = f"{with_bounds(of_bound)} × as long as {bounds.name} ({figure(bounds.seconds * 1e3)} ms)"
    both = f"{name} took {bound} and {with_bounds(of_alone)} × as long as its operations one by one"
    faster = decide(of_alone, 1.0)
    # A chain, or a single device, leaves nothing to be gained: then the two are one.
    if share > 1 / (1 + MIN_NOISE) and decide(of_bound, NEAR, 1 / NEAR) == 1:
        return f"{name} was about as fast as any schedule can be: it took {bound}."
    match decide(of_bound, NEAR, 1 / NEAR):
        case 0:
            return (
                f"{name} took {bound}, less than is possible: an operation that is timed alone is also called and "
                "waited for."
            )
        case 1 if faster == 0:
            return f"{name} was about as fast as any schedule can be: it took {bound}."
    match faster:
        case 0:
            return f"{both}: queueing them paid."
        case 1:
            return f"{both}: queueing them did not pay."
    return f"{both}: the noise leaves open whether that paid."


def what_would_change(backend: Backend, program: Scheduled, larger: str) -> str:
    """Say what would bring a program nearer to its bound, or lower that; `larger` makes its operations longer."""
    if backend.engine == "sync":
        return with_queue(backend, "operations that do not depend on each other should run at the same time")
    near = decide(program.of_bound, NEAR, 1 / NEAR)
    faster = decide(times_as_long(program.free, program.alone), 1.0)
    bounds = program.bounds
    if near == 1:
        if bounds.seconds == bounds.critical_path:
            return "A shorter chain of dependent operations: no number of devices or workers beats the longest one."
        if bounds.seconds == bounds.busiest_device:
            return "Less work on the busiest device, or a second worker for its queue (--workers 2) and cores for it."
        return f"More devices that can work at once than {_places(backend)}, with a core for each (--devices)."
    if near is None and faster is None:
        return LESS_NOISE
    if (
        near != 0
        and faster == 0
        and backend.workers_per_device == 1
        and all(device.kind == "cpu" for device in backend.devices)
    ):
        return "A second worker for each queue (--workers 2), which passes over an operation that has to wait."
    return f"Longer operations ({larger}), beside which handing them over weighs less."
