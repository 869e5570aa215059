"""A few steps of a training: timed, profiled in place of an epoch, as units for their kernels, and
in sweeps.

Sweeps take the same steps on 1, 2, 4, … of the loaded devices, with two kinds of batches: a fixed
batch is divided further, and a scaled batch grows with the devices. The first losses equal NumPy's
either way.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from time import perf_counter
from typing import Any

import numpy as np

import backends
from backends import Array, Backend, Ops
from backends.process_groups import grouped
from parallel_core.experiments.runner.trial import TIMED_SHARE, Trial
from parallel_core.experiments.runner.work import Work
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
from parallel_core.training.lenet import start_of
from parallel_core.training.loop import OnBatch, continue_training, ignore, train_epoch
from parallel_core.training.step import (
    buckets_of,
    count_reduced_early,
    guards,
    split_batch,
    train_batch,
)

FIXED, SCALED = "fixed batch", "scaled batch"
CHECKED_BATCHES = 2
"""The second loss follows from the first step, so both losses and gradients are compared."""
ENLARGED = 8.0
"""Times the book's initial weights: the loss falls within a hundred steps, and not after 300."""
NUMPY_SECONDS = 2.0
"""The seconds after which NumPy begins no further batch: a large one alone may take as long."""

UNIT = "device {}, as one unit"
"""The name of a device's share of a step, by the number of the device."""
REPEATED_STEPS = 5
BARE_ROUNDS, BARE_SECONDS = 5, 0.75

Parameters = tuple[np.ndarray, ...]
Batch = tuple[np.ndarray, np.ndarray]
"""Inputs (n, …) and their labels (n,)."""
Gradients = Callable[[Backend, Sequence[Array], Sequence[Array]], Sequence[Array]]
"""A function (backend, every device's parameters, its (x, labels)) -> every device's gradients."""


@dataclass(frozen=True)
class Strategy:
    """A way to divide a step over devices.

    By default each device has all parameters and a share of the rows. `placed` is what `place`
    returns, and `loaded` what `load` returns; only the strategy itself knows their form.
    """

    step: Callable[[Backend, Array, Array, float], Array]
    """Launch a step of gradient descent: (backend, placed, loaded, rate) -> new placed.

    The step consumes the old parameters.
    """
    place: Callable[[Backend, Parameters], Array] = lambda backend, parameters: placed(
        backend, parameters
    )
    """Load the parameters on the devices, or each device's part of the parameters."""
    load: Callable[[Backend, np.ndarray, np.ndarray], Array] = lambda backend, x, labels: (
        split_batch(backend, x, labels, backend.devices)
    )
    """Load inputs and labels on the devices that need them."""
    # All devices have the same parameters, so those of the last one are enough.
    gather: Callable[[Backend, Array], Parameters] = lambda backend, placed: tuple(
        backend.to_numpy(placed[-1])
    )
    """Wait for the parameters and put them together in NumPy."""

    def in_single_precision(self, parameters: Parameters, batch: Batch, rate: float) -> Program:
        """Make the program of one step in float32: from (placed, loaded) to the new placed."""
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
        placed = self.place(backend, parameters)
        loaded = self.load(backend, *batch)
        for _ in range(steps):
            placed = self.step(backend, placed, loaded, rate)
        new_parameters = self.gather(backend, placed)
        return [new - old for new, old in zip(new_parameters, parameters, strict=True)]


def step_by(
    gradients: Gradients,
) -> Callable[[Backend, Sequence[Array], Sequence[Array], float], Array]:
    """Make a strategy's step: sum the gradients of all devices, then update every replica.

    The step returns a list of the new replicas.
    """

    def step(
        backend: Backend, replicas: Sequence[Array], shards: Sequence[Array], rate: float
    ) -> Array:
        own_gradients = gradients(backend, replicas, shards)
        # A single device has nothing to add.
        sums = backend.allreduce(own_gradients) if len(own_gradients) > 1 else own_gradients
        return [
            backend.launch(backend.ops.sgd, parameters, summed, rate)
            for parameters, summed in zip(replicas, sums, strict=True)
        ]

    return step


def of_own_rows(loss: Callable[[Ops], Callable[..., Array]]) -> Gradients:
    """Make the function that launches, on each device, the gradients of the loss of its own rows.

    `loss(ops)` returns the function (parameters, x, labels) -> loss.
    """

    def gradients(
        backend: Backend, replicas: Sequence[Array], shards: Sequence[Array]
    ) -> list[Array]:
        differentiate = backend.ops.value_and_grad(loss(backend.ops))
        gradients_by_device = []
        for parameters, shard in zip(replicas, shards, strict=True):
            # The first item is the loss, the second one the gradients.
            loss_and_gradients = backend.launch(differentiate, parameters, *shard)
            gradients_by_device.append(loss_and_gradients[1])
        return gradients_by_device

    return gradients


def time_steps_in_a_row(trial: Trial, name: str, step: Program, count: int, **curve: Any) -> None:
    """Register the case of one step, which is timed as `count` steps in a row.

    Each step starts from the parameters that the step before it returned.
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

    A bucket is summed early if that is done before the backward pass has ended. The number is that
    of the middle one of a few steps, none of which trains. If there is only one bucket, it holds
    the last gradient and cannot be early; a step is taken all the same, as a warm-up, unless it
    would wait for other processes.
    """
    buckets = buckets_of(settings.exchange)
    if len(buckets) > 1:
        steps = min(5, settings.limit or 5)
    elif grouped(trial.backend) is not None:
        steps = 0
    else:
        steps = 1
    numbers_of_early = []
    for x, labels in batches(data, replace(settings, limit=steps), epoch=0):
        early = count_reduced_early(trial.backend, params, x, labels, buckets)
        numbers_of_early.append(early)
    trial.found("buckets", len(buckets))
    trial.found("buckets_reduced_early", median_low(numbers_of_early or [0]))


def one_step(devices: int, data: Dataset, settings: Settings) -> Callable[[Backend], object]:
    """Make the function that takes a training's first step on the first `devices` of a backend.

    Each call places new parameters.
    """

    def take(backend: Backend) -> object:
        params = placed(backend, start_of(settings), devices)
        (first_batch,) = batches(data, settings, epoch=1, steps=slice(1))
        # At rate 0 the parameters keep their values, however often the step is repeated.
        return train_batch(backend, params, *first_batch, 0.0, guards(backend, params))

    return take


def time_steps(backend: Backend, params: list[Array], data: Dataset, settings: Settings) -> Timing:
    """Train for one epoch, which the settings may limit; return its timing."""
    epoch = train_epoch(backend, params, data, settings, number=settings.last_epoch + 1)
    return epoch.dispatch_seconds, epoch.seconds


def time_units(
    backend: Backend, devices: int, data: Dataset, settings: Settings, *, beside: bool = False
) -> Mapping[str, Case]:
    """Time each device's gradients and update of one step as one unit; return the cases by name.

    Loading and exchange are left out. With `beside` there is also the case `BESIDE`: the first
    device's unit while the other devices compute theirs. It needs a queue and two devices.
    """
    units = units_of_step(backend, one_step(devices, data, settings))
    probe = Trial(backend, {}, BARE_ROUNDS, BARE_SECONDS)
    for number, unit in enumerate(units):
        probe.time(UNIT.format(number), unit, bare=())
    if beside and len(units) > 1:
        time_beside(probe, UNIT.format(0), *units)
    # A unit is a new function: a framework that compiles it takes long for the first launch.
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
    """Add the case of a training's epochs, with the bare time of an epoch.

    The bare time follows from the times of a step's `units`. To repeat the case is to take a few
    steps from the parameters that `place` returns.
    """
    first = epochs[0]
    repeated_steps = min(REPEATED_STEPS, len(first.losses))
    short_settings = replace(settings, limit=repeated_steps)
    # Steps are counted in images, because the last batch may be smaller.
    images_of_step = min(settings.batch_size, len(data.train_labels))
    steps_of_epoch = first.images / images_of_step
    seconds_of_units = [unit.seconds for case, unit in units.items() if case != BESIDE]
    slowest_by_round = map(max, zip(*seconds_of_units, strict=True))
    if grouped(trial.backend) is not None:
        # The watch would take the other ranks of the job for other programs.
        watch = None
    trial.cases[name] = Case(
        name,
        tuple(epoch.seconds for epoch in epochs),
        tuple(epoch.dispatch_seconds for epoch in epochs),
        bare_seconds=tuple(steps_of_epoch * seconds for seconds in slowest_by_round),
        again=if_repeatable(lambda: time_steps(trial.backend, place(), data, short_settings)),
        share=repeated_steps / len(first.losses),
        watch=watch,
    )


def swept(trial: Trial, points: Sequence[int], weights: Sequence[float]) -> Iterator[int]:
    """Iterate over the points of a sweep, and time at the end of a loop's body what it registered.

    Each point has a share of the budget as large as its weight. What a point leaves over belongs to
    the next one. The progress of a point is shown as a part of the sweep's.
    """
    total = sum(weights)
    begun = 0.0
    for point, weight in zip(points, weights, strict=True):
        start_share = begun / total
        begun += weight
        end_share = begun / total
        with part(start_share, end_share):
            yield point
            trial.run(TIMED_SHARE * end_share)


def plans(batch_size: int, loaded: int) -> dict[tuple[str, int], int]:
    """Return the size of the global batch, by its kind and the number of devices.

    On one device there is only the fixed batch.
    """
    global_batches = {}
    for count in doublings(loaded):
        global_batches[FIXED, count] = batch_size
        if count > 1:
            global_batches[SCALED, count] = batch_size * count
    return global_batches


def counted_devices(count: int) -> str:
    """Write a number of devices: `1 device`, `2 devices`."""
    return "1 device" if count == 1 else f"{count} devices"


def case_name(kind: str, count: int, loaded: int = 0) -> str:
    """Name the case of a kind of batch on `count` devices: `2 devices, scaled batch`.

    If all `loaded` devices are meant, the name is `all devices, …`, however many there are.
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
    """Compare the first `losses` of each of several trainings with those of NumPy on one device.

    All trainings begin at `start`. NumPy's `on_batch` is called as in `training.train`. Batches
    that NumPy does not begin within `NUMPY_SECONDS` are not compared.
    """
    reference = backends.load("numpy", devices=1, threads_per_device=1)
    count = min(CHECKED_BATCHES, *map(len, losses))
    expected = first_losses(reference, 1, data, settings, start, count, NUMPY_SECONDS, on_batch)
    compared = [np.array(losses_of_training[: len(expected)]) for losses_of_training in losses]
    trial.check("first losses", compared, [np.array(expected)] * len(losses))


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
    """Train on the first devices for `count` batches, and return the loss of each batch.

    No batch is begun after `seconds`, so there may be fewer losses.
    """
    deadline = perf_counter() + seconds
    short_settings = replace(settings, epochs=1, limit=count)
    params = placed(backend, start, devices)
    one_image = data.tested_on(1)
    training = continue_training(backend, params, one_image, short_settings, on_batch, every=1)
    for progress in training:
        losses = progress.losses
        if perf_counter() > deadline:
            break
    return losses


def placed(backend: Backend, parameters: Parameters, count: int | None = None) -> list[Array]:
    """Load the parameters on each of the first `count` devices, or on all devices."""
    return [backend.asarray(parameters, device) for device in backend.devices[:count]]
