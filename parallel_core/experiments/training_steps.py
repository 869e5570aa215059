"""A few steps of a training: timed, in place of an epoch to be profiled, as units for their
kernels, and in sweeps.

On 1, 2, 4, … of the loaded devices there are two ways: divide the same batch further, or give every
device the whole of it. The first losses equal NumPy's either way.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

import backends
from backends import Array, Backend, Ops
from backends.process_groups import GroupedBackend
from parallel_core.experiments.runner.trial import TIMED_SHARE, Trial, Work
from parallel_core.experiments.workloads import (
    BESIDE,
    Program,
    doublings,
    time_beside,
    units_of_step,
)
from parallel_core.measurement.progress import part
from parallel_core.measurement.result import Case, Timing
from parallel_core.measurement.timing import if_repeatable
from parallel_core.system.machine import MachineWatch
from parallel_core.training.batches import Epoch, Settings, batches
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import initial_parameters
from parallel_core.training.loop import OnBatch, continue_training, ignore, train_epoch
from parallel_core.training.step import (
    buckets_of,
    count_reduced_early,
    guards,
    split_batch,
    train_batch,
)

FIXED, SCALED = "fixed batch", "scaled batch"
CHECKED_BATCHES = 3
NUMPY_SECONDS = 2.0
"""NumPy takes seconds for a large batch, or for a wide network."""

UNIT = "device {}, as one unit"
"""The name of a device's share of a step, by the number of the device."""
REPEATED_STEPS = 5
BARE_ROUNDS, BARE_SECONDS = 5, 0.75

Parameters: TypeAlias = "tuple[np.ndarray, ...]"
Batch: TypeAlias = "tuple[np.ndarray, np.ndarray]"
"""Inputs (n, …) and their labels (n,)."""
Gradients: TypeAlias = Callable[[Backend, Sequence[Array], Sequence[Array]], Sequence[Array]]
"""A function (backend, every device's parameters, its (x, labels)) -> every device's gradients."""


@dataclass(frozen=True)
class Strategy:
    """A way to divide a step over devices.

    Unless it says otherwise, each device has all parameters and a share of the rows. What is placed
    and loaded is the strategy's own affair.
    """

    step: Callable[[Backend, Array, Array, float], Array]
    """Launch a step of gradient descent: (backend, placed, loaded, rate) -> placed.

    What was placed is consumed.
    """
    place: Callable[[Backend, Parameters], Array] = lambda backend, parameters: placed(
        backend, parameters
    )
    """Load the parameters, or each device's part of them."""
    load: Callable[[Backend, np.ndarray, np.ndarray], Array] = lambda backend, x, labels: (
        split_batch(backend, x, labels, backend.devices)
    )
    """Load inputs and labels to where they are needed."""
    # The last device's parameters are like all others'.
    gather: Callable[[Backend, Array], Parameters] = lambda backend, placed: tuple(
        backend.to_numpy(placed[-1])
    )
    """Wait for the parameters and put them together."""

    def in_single_precision(self, parameters: Parameters, batch: Batch, rate: float) -> Program:
        """Make the program of a step in float32, which returns what is placed then.

        Its inputs are (placed, loaded).
        """
        x, labels = batch
        single_x = x.astype(np.float32)
        single_parameters = tuple(parameter.astype(np.float32) for parameter in parameters)

        def inputs(backend: Backend) -> tuple[Array, Array]:
            placed = self.place(backend, single_parameters)
            return placed, self.load(backend, single_x, labels)

        def run(backend: Backend, inputs: tuple[Array, Array]) -> Array:
            placed, loaded = inputs
            return self.step(backend, placed, loaded, rate)

        return Program(inputs, run)

    def changes(
        self, backend: Backend, parameters: Parameters, batch: Batch, rate: float, steps: int = 1
    ) -> list[np.ndarray]:
        """Take steps on a batch, in its dtype, and return by how much each parameter changes."""
        placed, loaded = self.place(backend, parameters), self.load(backend, *batch)
        for _ in range(steps):
            placed = self.step(backend, placed, loaded, rate)
        return [
            new - old for new, old in zip(self.gather(backend, placed), parameters, strict=True)
        ]


def step_by(
    gradients: Gradients,
) -> Callable[[Backend, Sequence[Array], Sequence[Array], float], Array]:
    """Make the step that adds up every device's gradients and updates the parameters of each."""

    def step(
        backend: Backend, replicas: Sequence[Array], shards: Sequence[Array], rate: float
    ) -> Array:
        sums: Sequence[Array] = gradients(backend, replicas, shards)
        if len(sums) > 1:
            sums = backend.allreduce(sums)
        return [
            backend.launch(backend.ops.sgd, parameters, total, rate)
            for parameters, total in zip(replicas, sums, strict=True)
        ]

    return step


def of_own_rows(loss: Callable[[Ops], Callable[..., Array]]) -> Gradients:
    """Make the function that launches each device's gradients of a loss by its own rows.

    `loss` makes the function (parameters, x, labels) -> loss.
    """

    def gradients(
        backend: Backend, replicas: Sequence[Array], shards: Sequence[Array]
    ) -> list[Array]:
        differentiate = backend.ops.value_and_grad(loss(backend.ops))
        computed = [
            backend.launch(differentiate, parameters, *shard)
            for parameters, shard in zip(replicas, shards, strict=True)
        ]
        return [of_device[1] for of_device in computed]

    return gradients


def time_steps_in_a_row(trial: Trial, name: str, step: Program, count: int, **curve: Any) -> None:
    """Register the case of a step, which is timed as `count` in a row.

    Each step goes on where the one before led.
    """
    bare = units_of_step(trial.backend, step.launch, count)
    parameters, batch = step.inputs(trial.backend)

    def launch() -> Any:
        nonlocal parameters
        for _ in range(count):
            parameters = step.run(trial.backend, (parameters, batch))
        return parameters

    trial.time(name, Work(launch), bare=bare, repeats=count, **curve)


def find_early_buckets(
    trial: Trial, params: Sequence[Array], data: Dataset, settings: Settings
) -> None:
    """Find how many buckets of gradients there are, and how many are summed early.

    Those are done before the backward pass has ended: their number is the median of a few steps,
    none of which trains. An only bucket holds the last gradient too, but a step warms up all the
    same, where it waits for no other process.
    """
    buckets = buckets_of(settings.exchange)
    if len(buckets) > 1:
        steps = min(5, settings.limit or 5)
    else:
        steps = 0 if isinstance(trial.backend, GroupedBackend) else 1
    few_batches = batches(data, replace(settings, limit=steps), epoch=0)
    early = [count_reduced_early(trial.backend, params, *batch, buckets) for batch in few_batches]
    trial.found("buckets", len(buckets))
    trial.found("buckets_reduced_early", median(early or [0]))


def one_step(devices: int, data: Dataset, settings: Settings) -> Callable[[Backend], object]:
    """Make the function that takes the first step of a training on the first devices.

    It has parameters of its own.
    """

    def take(backend: Backend) -> object:
        params = placed(backend, initial_parameters(settings.seed, settings.width), devices)
        (batch,) = batches(data, settings, epoch=1, steps=slice(1))
        # At rate 0 the numbers stay as they are however often it is repeated.
        return train_batch(backend, params, *batch, 0.0, guards(backend, params))

    return take


def time_steps(backend: Backend, params: list[Array], data: Dataset, settings: Settings) -> Timing:
    """Train for an epoch, as short as the settings limit it; return its timing."""
    epoch = train_epoch(backend, params, data, settings, number=settings.last_epoch + 1)
    return epoch.dispatch_seconds, epoch.seconds


def time_units(
    backend: Backend, devices: int, data: Dataset, settings: Settings, *, beside: bool = False
) -> Mapping[str, Case]:
    """Time each device's gradients and update of a step as one unit.

    If `beside` is wanted, the first device's unit is also timed `BESIDE` the others'. Loading and
    exchange are left out. Without a queue, or on one device, there is nothing beside.
    """
    units = units_of_step(backend, one_step(devices, data, settings))
    probe = Trial(backend, {}, BARE_ROUNDS, BARE_SECONDS)
    for number, unit in enumerate(units):
        probe.time(UNIT.format(number), unit, bare=())
    if beside and len(units) > 1:
        time_beside(probe, *units)
    # A unit is a new function: where functions are compiled, its first launch takes that long.
    return probe.run(1.0)


def add_case_of_epochs(
    trial: Trial,
    name: str,
    place: Callable[[], list[Array]],
    units: Mapping[str, Case],
    data: Dataset,
    settings: Settings,
    epochs: Sequence[Epoch],
    watch: MachineWatch | None,
) -> None:
    """Add the case of a training's epochs, with the bare time of the first one from a step's units.

    What repeats the case takes some steps from the parameters that `place` gives.
    """
    first = epochs[0]
    steps = min(REPEATED_STEPS, len(first.losses))
    few = replace(settings, limit=steps)
    # The last batch may be smaller, so it is images that are counted.
    share = first.images / min(settings.batch_size, len(data.train_labels))
    seconds_of_units = [unit.seconds for case, unit in units.items() if case != BESIDE]
    slowest_by_round = map(max, zip(*seconds_of_units, strict=True))
    trial.cases[name] = Case(
        name,
        tuple(epoch.seconds for epoch in epochs),
        tuple(epoch.dispatch_seconds for epoch in epochs),
        bare_seconds=tuple(share * seconds for seconds in slowest_by_round),
        again=if_repeatable(lambda: time_steps(trial.backend, place(), data, few)),
        share=steps / len(first.losses),
        # The other ranks of a job on this host would be taken for strangers.
        watch=None if isinstance(trial.backend, GroupedBackend) else watch,
    )


def swept(trial: Trial, points: Sequence[int], weights: Sequence[float]) -> Iterator[int]:
    """Iterate over the points; what a loop's body registers is timed when it ends.

    Their shares are as the weights, one a point; what one leaves over is the next one's. What is
    told of the progress of a point is told as its part of the sweep.
    """
    total, done = sum(weights), 0.0
    for point, weight in zip(points, weights, strict=True):
        before, done = done, done + weight
        with part(before / total, done / total):
            yield point
            trial.run(TIMED_SHARE * done / total)


def plans(batch_size: int, loaded: int) -> dict[tuple[str, int], int]:
    """Return the global batch for each kind of batch and number of devices.

    On one device there is one kind.
    """
    global_batches = {}
    for count in doublings(loaded):
        global_batches[FIXED, count] = batch_size
        if count > 1:
            global_batches[SCALED, count] = batch_size * count
    return global_batches


def counted_devices(count: int) -> str:
    """Write a number of devices."""
    return "1 device" if count == 1 else f"{count} devices"


def case_name(kind: str, count: int, loaded: int = 0) -> str:
    """Name a kind of batch on a number of devices.

    All that are loaded have the same name however many they are.
    """
    if count == 1:
        return counted_devices(1)
    devices = "all devices" if count == loaded else counted_devices(count)
    return f"{devices}, {kind}"


def check_first_losses(
    trial: Trial,
    data: Dataset,
    settings: Settings,
    start: Parameters,
    *losses: Sequence[float],
    on_batch: OnBatch = ignore,
) -> None:
    """Compare the first losses of trainings from a start with those of NumPy on one device.

    `on_batch` is called as in `training.train`. What NumPy does not begin within `NUMPY_SECONDS` is
    not compared.
    """
    reference = backends.load("numpy", devices=1, threads_per_device=1)
    count = min(CHECKED_BATCHES, *map(len, losses))
    expected = first_losses(reference, 1, data, settings, start, count, NUMPY_SECONDS, on_batch)
    first_losses_of_each = [np.array(of_training[: len(expected)]) for of_training in losses]
    trial.check("first losses", first_losses_of_each, [np.array(expected)] * len(losses))


def first_losses(
    backend: Backend,
    devices: int,
    data: Dataset,
    settings: Settings,
    start: Parameters,
    count: int = CHECKED_BATCHES,
    seconds: float = math.inf,
    on_batch: OnBatch = ignore,
) -> tuple[float, ...]:
    """Train on the first devices for `count` batches, and return their losses.

    There are fewer if no more begin within the seconds.
    """
    until = perf_counter() + seconds
    few = replace(settings, epochs=1, limit=count)
    params = placed(backend, start, devices)
    for so_far in continue_training(backend, params, data.tested_on(1), few, on_batch, every=1):
        losses = so_far.losses
        if perf_counter() > until:
            break
    return losses


def placed(backend: Backend, parameters: Parameters, count: int | None = None) -> list[Array]:
    """Load a network on each of the first `count` devices, or on all."""
    return [backend.asarray(parameters, device) for device in backend.devices[:count]]


def enlarged_start(seed: int, scale: float) -> Parameters:
    """Draw the book's initial parameters, enlarged by `scale`.

    From the book's own, the first losses hardly depend on the gradients: a wrong sum of them would
    not show.
    """
    return tuple(np.float32(scale) * parameter for parameter in initial_parameters(seed))
