"""How near an engine comes to the fastest schedule that the dependencies allow: what the labs on task graphs share."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

from backends import Array, Backend
from backends.host import available_cores
from parallel_core.experiments.measuring import Units, take_in_turn
from parallel_core.measurement.checks import MIN_NOISE
from parallel_core.measurement.recording import Recording
from parallel_core.measurement.result import Case
from parallel_core.measurement.task_graph import Bounds, Task, bounds_of, without_loads, work_seconds
from parallel_core.measurement.timing import Timing, measure
from parallel_core.system.formatting import figure

__all__ = ["FREE", "ONE_BY_ONE", "Program", "Scheduled", "about_schedule", "case_name", "record", "time_programs"]

ONE_BY_ONE = "one by one"
FREE = "freely scheduled"
MAX_NOISE = 0.25
"""A share of a time above which nothing is concluded."""


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
    noise = max(alone.spread, free.spread, MIN_NOISE)
    of_bound, of_alone = free.median / bounds.seconds, free.median / alone.median
    bound = f"{of_bound:.2f} × as long as {bounds.name} ({figure(bounds.seconds * 1e3)} ms)"
    like_bound, like_alone = (abs(math.log(ratio)) <= math.log1p(noise) for ratio in (of_bound, of_alone))
    # A chain, or a single device, leaves nothing to be gained: then the two are one.
    either = like_bound and like_alone and alone.median > bounds.seconds * (1 + MIN_NOISE)
    if either or noise > MAX_NOISE:
        return (
            f"{name} took {bound} and {of_alone:.2f} × as long as its operations one by one: "
            f"the noise ({noise:.0%}) is too large for a verdict."
        )
    if like_bound:
        return f"{name} was as fast as any schedule can be, within the noise ({noise:.0%}): it took {bound}."
    if of_bound < 1:
        return (
            f"{name} took {bound}, less than is possible: an operation that is timed alone is also called and "
            "waited for, and here that is no small part of it."
        )
    if like_alone:
        return f"{name} took as long as its operations one by one, within the noise ({noise:.0%}): {bound}."
    if of_alone > 1:
        return f"{name} took {of_alone:.2f} × as long as its operations one by one: queueing them did not pay."
    return f"{name} was {1 / of_alone:.2f} × as fast as its operations one by one, and took {bound}."
