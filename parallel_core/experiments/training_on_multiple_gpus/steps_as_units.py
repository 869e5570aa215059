"""What each device computes in a step, as one unit: how long the kernels of a step take by themselves.

A step is taken once on a recording, which says what is launched on each device. A device's unit launches all of that
again, as one function with the same arguments. Copies and sums between devices are left out: they are exchange, and
belong to the schedule. MXNet queues the operators of a unit one by one even so, for it has no graph of gradients. A
framework that compiles the unit leaves out what nobody can see, so a unit returns all that was launched; and it may
merge what two launches of a step have in common, which is then in the unit once.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from backends import Array, Backend, Device
from parallel_core.experiments.runner.trial import Work
from parallel_core.measurement.recording import Recording
from parallel_core.measurement.timing import interleave, measure

__all__ = ["Step", "bare_seconds", "works_of_step"]

Step: TypeAlias = Callable[[Backend], object]
"""A function of a backend that loads what it needs and launches one step on it."""


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
