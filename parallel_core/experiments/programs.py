"""Programs of several operations on a backend: recorded as tasks, and as a unit for each device."""

from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import Any, NamedTuple

from backends import Array, Backend, Device
from parallel_core.experiments.runner.trial import Work
from parallel_core.measurement.recording import Recording
from parallel_core.measurement.task_graph import Task


class Program(NamedTuple):
    """Operations on a backend: `inputs` loads what they need, untimed, and `run` launches them."""

    inputs: Callable[[Backend], Any]
    run: Callable[[Backend, Any], Array]

    def launch(self, backend: Backend) -> Array:
        """Load the inputs and launch the operations."""
        return self.run(backend, self.inputs(backend))


def record(backend: Backend, program: Program, one_by_one: bool = False) -> tuple[Task, ...]:
    """Run a program and return what it did, the loading of its inputs included."""
    recording = Recording(backend, one_by_one)
    _kept = program.launch(recording)
    return recording.tasks


def works_of_step(
    backend: Backend,
    step: Callable[[Backend], object],
    times: int = 1,
    as_unit: Callable[[Callable[..., Array]], Callable[..., Array]] = lambda compute: compute,
) -> list[Work]:
    """Take a step once, and return each device's share of it as a unit, for a case that takes it so many times.

    It is taken on a recording, and a unit launches all that the step launched on a device again, as one function with
    the same arguments. Copies and sums between devices are left out: they are exchange, and belong to the schedule. A
    unit returns all that was launched, because a framework that compiles it leaves out what nobody can see; what two
    launches have in common may be merged, unless `ops.as_unit` is given. MXNet has no graph of gradients, and queues a
    unit's operators one by one.
    """
    launched: dict[Device, list[tuple[Callable[..., Array], tuple[Any, ...]]]] = {}
    step(Recording(backend, on_launch=lambda device, fn, args: launched.setdefault(device, []).append((fn, args))))
    # What is timed later must not wait for it.
    backend.waitall()

    def as_one(functions: Sequence[Callable[..., Array]], arguments: Sequence[Array]) -> Work:
        def compute(*arrays: Array) -> Array:
            given = iter(arrays)
            fill = [tuple(one if isinstance(one, Real) else next(given) for one in args) for args in arguments]
            return tuple(fn(*args) for fn, args in zip(functions, fill, strict=True))

        arrays = [one for args in arguments for one in args if not isinstance(one, Real)]
        launch = partial(backend.launch, as_unit(compute), *arrays)
        return Work(launch, launch, times)

    return [as_one(*zip(*calls, strict=True)) for calls in launched.values()]
