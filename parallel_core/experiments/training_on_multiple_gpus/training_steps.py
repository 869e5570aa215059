"""A few steps of a training: timed, in place of an epoch to be profiled, as units for their kernels, and in sweeps."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from backends import Array, Backend, Device
from backends.process_groups import GroupedBackend
from parallel_core.experiments.runner.trial import TIMED_SHARE, Trial, Work
from parallel_core.measurement.progress import part
from parallel_core.measurement.recording import Recording
from parallel_core.measurement.result import Case, Timing
from parallel_core.measurement.task_graph import Task, without_loads
from parallel_core.measurement.timing import if_repeatable, interleave, measure
from parallel_core.system.machine_watch import MachineWatch
from parallel_core.training.batches import Epoch, Settings, batches
from parallel_core.training.dataset import Dataset
from parallel_core.training.loop import train_epoch
from parallel_core.training.step import get_params, guards, train_batch

__all__ = [
    "Step",
    "Steps",
    "case_of_epochs",
    "doublings",
    "one_step",
    "recorded_step",
    "swept",
    "time_steps",
    "time_steps_in_a_row",
    "works_of_step",
]

REPEATED_STEPS = 5
BARE_ROUNDS, BARE_SECONDS = 5, 0.5

Step: TypeAlias = Callable[[Backend], object]
"""A function of a backend that loads what it needs and launches one step on it."""
Point = TypeVar("Point")


def works_of_step(backend: Backend, step: Step, times: int = 1) -> list[Work]:
    """Take a step once, and return each device's share of it as a unit, for a case that takes it so many times.

    It is taken on a recording, and a unit launches all that the step launched on a device again, as one function with
    the same arguments. Copies and sums between devices are left out: they are exchange, and belong to the schedule. A
    unit returns all that was launched, because a framework that compiles it leaves out what nobody can see; what two
    launches have in common may be merged. MXNet has no graph of gradients, and queues a unit's operators one by one.
    """
    launched: dict[Device, list[tuple[Callable[..., Array], tuple[Any, ...]]]] = {}
    step(Recording(backend, on_launch=lambda device, fn, args: launched.setdefault(device, []).append((fn, args))))
    # What is timed later must not wait for it.
    backend.waitall()

    def as_one(functions: Sequence[Callable[..., Array]], arguments: Sequence[Array]) -> Work:
        def compute(each: Array) -> Array:
            return tuple(fn(*args) for fn, args in zip(functions, each, strict=True))

        launch = partial(backend.launch, compute, arguments)
        return Work(launch, launch, times)

    return [as_one(*zip(*calls, strict=True)) for calls in launched.values()]


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


def one_step(devices: int, data: Dataset, settings: Settings) -> Step:
    """Make the function that takes the first step of a training on the first devices, with parameters of its own."""

    def take(backend: Backend) -> object:
        params = [get_params(backend, d, settings.seed, settings.width) for d in backend.devices[:devices]]
        (batch,) = batches(data, settings, epoch=1, steps=slice(1))
        # At rate 0 the numbers stay as they are however often it is repeated.
        return train_batch(backend, params, *batch, 0.0, guards(backend, params))

    return take


def time_steps(backend: Backend, params: list[Array], data: Dataset, settings: Settings) -> Timing:
    """Train for an epoch, as short as the settings limit it; return its timing."""
    epoch = train_epoch(backend, params, data, settings, number=settings.epochs + 1)
    return epoch.dispatch_seconds, epoch.seconds


def case_of_epochs(
    name: str,
    backend: Backend,
    place: Callable[[], list[Array]],
    devices: int,
    data: Dataset,
    settings: Settings,
    epochs: Sequence[Epoch],
    watch: MachineWatch | None,
) -> Case:
    """Return the case of some epochs of a training on the first devices, with the bare time of the first one of them.

    That is timed on a step's gradients and updates on each device. Neither loading and exchange nor the test set, which
    the epochs' seconds do not include, are part of it. If cases are to keep what repeats them, it is some steps, which
    are all alike, from the parameters that `place` gives: one value per device, which is kept up to date.
    """
    first = epochs[0]
    steps = min(REPEATED_STEPS, len(first.losses))
    few = replace(settings, limit=steps)
    works = works_of_step(backend, one_step(devices, data, settings))
    takes = {
        f"a step on {device}, as one unit": partial(measure, backend, work.launch)
        for device, work in zip(backend.devices, works, strict=False)
    }
    # Taking the step once was their warm-up.
    units = interleave(takes, BARE_ROUNDS, warmups=0, budget=BARE_SECONDS)
    # The last batch may be smaller, so it is images that are counted.
    share = first.images / min(settings.batch_size, len(data.train_labels))
    return Case(
        name,
        tuple(epoch.seconds for epoch in epochs),
        tuple(epoch.dispatch_seconds for epoch in epochs),
        bare_seconds=tuple(share * max(at_once) for at_once in zip(*(unit.seconds for unit in units), strict=True)),
        again=if_repeatable(lambda: time_steps(backend, place(), data, few)),
        share=steps / len(first.losses),
        # The other ranks of a job on this host would be taken for strangers.
        watch=None if isinstance(backend, GroupedBackend) else watch,
    )


def doublings(first: int, last: int) -> Iterator[int]:
    """Count from first to last by doubling; `last` is left out if it is not reached exactly."""
    while first <= last:
        yield first
        first *= 2


def swept(
    trial: Trial, points: Sequence[Point], weights: Sequence[float], share: float = TIMED_SHARE
) -> Iterator[Point]:
    """Iterate over the points; what a loop's body registers is timed when it ends.

    Their shares are as the weights, one a point; what one leaves over is the next one's. What is told of the progress
    of a point is told as its part of the sweep.
    """
    total, done = sum(weights), 0.0
    for point, weight in zip(points, weights, strict=True):
        before, done = done, done + weight
        with part(before / total, done / total):
            yield point
            trial.run(share * done / total)
