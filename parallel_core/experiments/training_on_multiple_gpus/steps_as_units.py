"""What each device computes in a step, as one unit: how long the kernels of a step take by themselves.

A step is taken once on a recording, which says what is launched on each device. A device's unit launches all of that
again, as one function with the same arguments. Copies and sums between devices are left out: they are exchange, and
belong to the schedule. MXNet queues the operators of a unit one by one even so, for it has no graph of gradients. A
framework that compiles the unit leaves out what nobody can see, so a unit returns all that was launched; and it may
merge what two launches of a step have in common, which is then in the unit once.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from backends import Array, Backend, Device
from parallel_core.experiments.runner.trial import Trial, Work
from parallel_core.measurement.recording import Recording
from parallel_core.measurement.task_graph import Task, without_loads
from parallel_core.measurement.timing import interleave, measure

__all__ = ["Step", "Steps", "bare_seconds", "recorded_step", "time_steps_in_a_row", "works_of_step"]

Step: TypeAlias = Callable[[Backend], object]
"""A function of a backend that loads what it needs and launches one step on it."""


class Steps(NamedTuple):
    """Steps of gradient descent: what loads (parameters, batch) on a backend, and what launches a step from there."""

    load: Callable[[Backend], tuple[Any, Any]]
    take: Callable[[Backend, Any, Any], Any]
    """(backend, parameters, batch) -> parameters."""


def recorded_step(backend: Backend, steps: Steps) -> tuple[Task, ...]:
    """Take a step and return its tasks, without the loading of parameters and batch."""
    recording = Recording(backend)
    steps.take(recording, *steps.load(recording))
    return without_loads(recording.tasks)


def time_steps_in_a_row(trial: Trial, name: str, steps: Steps, count: int, **curve: Any) -> None:
    """Register the case of a step, which is timed as so many in a row, each from where the last one led."""
    bare = works_of_step(trial.backend, lambda backend: steps.take(backend, *steps.load(backend)), count)
    parameters, batch = steps.load(trial.backend)

    def launch() -> Any:
        nonlocal parameters
        for _ in range(count):
            parameters = steps.take(trial.backend, parameters, batch)
        return parameters

    trial.time(name, Work(launch), bare=bare, repeats=count, **curve)


def works_of_step(backend: Backend, step: Step, times: int = 1) -> list[Work]:
    """Take a step once, and return each device's share of it as a unit, for a case that takes it so many times."""
    return [Work(launch, launch, times) for launch in _by_device(backend, step).values()]


def bare_seconds(backend: Backend, step: Step, rounds: int, budget: float) -> tuple[float, ...]:
    """Time a step's units in turn and return those of the slowest device, round by round.

    There are fewer rounds, but one at least, if they would take more than the budget of seconds.
    """
    units = _by_device(backend, step)
    takes = {f"a step on {device}, as one unit": partial(measure, backend, launch) for device, launch in units.items()}
    # Taking the step once was their warm-up.
    cases = interleave(takes, rounds, warmups=0, budget=budget)
    return tuple(max(at_once) for at_once in zip(*(case.seconds for case in cases), strict=True))


def _by_device(backend: Backend, step: Step) -> dict[Device, Callable[[], Array]]:
    launched: dict[Device, list[tuple[Callable[..., Array], tuple[Any, ...]]]] = {}
    step(Recording(backend, on_launch=lambda device, fn, args: launched.setdefault(device, []).append((fn, args))))
    # What is timed later must not wait for it.
    backend.waitall()

    def as_one(device: Device) -> Callable[[], Array]:
        functions, arguments = zip(*launched[device], strict=True)

        def compute(each: Array) -> Array:
            return tuple(fn(*args) for fn, args in zip(functions, each, strict=True))

        return partial(backend.launch, compute, arguments)

    return {device: as_one(device) for device in launched}
