"""Data-parallel training: epochs of steps, and the accuracy after each epoch.

Book: Dive into Deep Learning, "Training on Multiple GPUs". The module `step` holds a single step.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from time import perf_counter
from typing import Any

import numpy as np

from backends import Array, Backend, Device
from parallel_core.system.errors import MeasurementError
from parallel_core.training.batches import (
    CompletedSteps,
    Epoch,
    Settings,
    Stretch,
    as_input,
    batches,
    steps_of,
)
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import count_correct
from parallel_core.training.step import (
    buckets_of,
    devices_of,
    guards,
    launch_gradients,
    split_batch,
    sum_over_devices,
    train_batch,
)

OnBatch = Callable[[int, int], object]
"""A function (epoch, images) that is called after every batch, with its number of images."""
EVALUATION_BATCH = 1000
START = CompletedSteps()


class NotFiniteError(MeasurementError):
    """A loss is not finite on one of `devices`, or the sum of the gradients is not finite.

    If it is the sum, `devices` are those whose gradients are not finite when they are computed
    again. There may be none: the cause may be another process or the sum, or may not recur.
    """

    def __init__(
        self, cause: str, step: str, devices: Sequence[Device], updated: bool = False
    ) -> None:
        """Name the cause and the step; `updated` tells whether the step changed the parameters."""
        parameters = "" if updated else " (the parameters are those before the step)"
        super().__init__(f"{cause} in {step}{parameters}: lower the learning rate (--lr)")
        self.devices = tuple(devices)


def ignore(*_: object) -> None:
    """Do nothing: the default of functions that are called on progress."""


def train(
    backend: Backend,
    params: list[Array],
    data: Dataset,
    settings: Settings,
    on_batch: OnBatch = ignore,
) -> Iterator[Epoch]:
    """Train epoch by epoch, and yield each epoch's results.

    `params` has one value per device, and is updated in place. If it has fewer values than the
    backend has devices, only the first devices train. `on_batch(epoch, images)` is called after
    every batch. Raises NotFiniteError at the first batch with a loss on any device, or a gradient,
    that is NaN or infinite; `params` are then those before that batch.
    """
    for progress in continue_training(backend, params, data, settings, on_batch):
        yield progress.epochs[-1]


def continue_training(
    backend: Backend,
    params: list[Array],
    data: Dataset,
    settings: Settings,
    on_batch: OnBatch = ignore,
    start: CompletedSteps = START,
    every: int | None = None,
) -> Iterator[CompletedSteps]:
    """Continue a training from `start`, and yield its progress at each epoch's end; see `train`.

    `params` are the parameters at `start`. With `every`, the progress is also yielded after every
    `every` steps of an epoch. Whenever it is yielded, all launched steps are done, and a training
    that is continued from there later gives the same numbers.
    """
    progress = start
    steps_of_epoch = steps_of(data, settings)
    while progress.epoch <= settings.last_epoch:
        while progress.step < steps_of_epoch:
            stop = steps_of_epoch
            if every is not None:
                next_multiple = (progress.step // every + 1) * every
                stop = min(stop, next_multiple)
            steps = slice(progress.step, stop)
            stretch = train_steps(backend, params, data, settings, progress.epoch, steps, on_batch)
            progress = replace(progress, begun=progress.begun + stretch)
            if stop < steps_of_epoch:
                yield progress
        accuracy = evaluate(backend, params, data)
        epoch = Epoch(progress.epoch, **vars(progress.begun), accuracy=accuracy)
        progress = CompletedSteps((*progress.epochs, epoch))
        yield progress


def train_epoch(
    backend: Backend, params: list[Array], data: Dataset, settings: Settings, number: int
) -> Epoch:
    """Train for one epoch, without evaluating the network; see `train`."""
    steps = slice(0, steps_of(data, settings))
    stretch = train_steps(backend, params, data, settings, number, steps, ignore)
    return Epoch(number, **vars(stretch))


def evaluate(backend: Backend, params: Sequence[Array], data: Dataset) -> float:
    """Return the share of test images that the network classifies correctly.

    All devices of `params` take part.
    """
    counts = launch_counts(backend, params, data)
    return add_counts(backend, params, counts) / len(data.test_labels)


def launch_counts(
    backend: Backend, params: Sequence[Array], data: Dataset, batch_size: int = EVALUATION_BATCH
) -> list[list[Array]]:
    """Launch the counts of correctly classified test images.

    Returns a list for each batch, with the count of each device of `params`.
    """
    count = count_correct(backend.ops)
    devices = devices_of(backend, params)
    counts: list[list[Array]] = []
    for start in range(0, len(data.test_labels), batch_size):
        rows = slice(start, start + batch_size)
        images, labels = as_input(data.test_images[rows]), data.test_labels[rows]
        shards = split_batch(backend, images, labels, devices)
        counts_of_batch = [
            backend.launch(count, parameters, x, y)
            for parameters, (x, y) in zip(params, shards, strict=True)
        ]
        counts.append(counts_of_batch)
    return counts


def add_counts(backend: Backend, params: Sequence[Array], counts: Sequence[Sequence[Array]]) -> int:
    """Wait for the counts of `launch_counts`, and return their sum over all devices."""
    correct_by_device = []
    for counts_of_device in zip(*counts, strict=True):
        correct = sum(int(backend.to_numpy(count)) for count in counts_of_device)
        correct_by_device.append([correct])
    (total,) = sum_over_devices(backend, devices_of(backend, params), correct_by_device)
    return int(total)


def train_steps(
    backend: Backend,
    params: list[Array],
    data: Dataset,
    settings: Settings,
    epoch: int,
    steps: slice,
    on_batch: OnBatch,
) -> Stretch:
    """Train for some steps of an epoch, numbered from 0, and wait for them; see `train`."""
    losses: list[list[float]] = []
    images: list[int] = []
    dispatched = 0.0
    devices = devices_of(backend, params)
    backend.waitall()
    start = perf_counter()
    # To read a loss is to wait for its step. So that no device is idle meanwhile, a step's losses
    # are read when the next step is queued; behind the last step there is none.
    launched = chain[Any](_launch_steps(backend, params, data, settings, epoch, steps), (None,))
    for (losses_and_guard, count, launching), _next_step in pairwise(launched):
        number = steps.start + len(losses)
        *losses_of_step, guard = [array.item() for array in backend.to_numpy(losses_and_guard)]
        step = f"epoch {epoch}, step {number + 1}"
        is_updated = math.isfinite(guard)
        for device, loss in zip(devices, losses_of_step, strict=True):
            if not math.isfinite(loss):
                raise NotFiniteError(f"the loss is {loss} on {device}", step, (device,), is_updated)
        if not is_updated:
            faulty = _devices_at_fault(backend, params, data, settings, epoch, number)
            where = f"on {', '.join(map(str, faulty))}" if faulty else "summed over all devices"
            raise NotFiniteError(f"the gradients {where} are not finite", step, faulty)
        losses.append(losses_of_step)
        images.append(count)
        dispatched += launching
        on_batch(epoch, count)
    backend.waitall()
    seconds = perf_counter() - start
    # Each device's losses are of its own rows. All steps are summed at once over all devices, also
    # those of other processes.
    losses_by_device = list(zip(*losses, strict=True))
    sums = sum_over_devices(backend, devices, losses_by_device)
    averages = tuple(float(total) / count for total, count in zip(sums, images, strict=True))
    return Stretch(seconds, dispatched, sum(images), averages)


def _launch_steps(
    backend: Backend,
    params: list[Array],
    data: Dataset,
    settings: Settings,
    epoch: int,
    steps: slice,
) -> Iterator[tuple[tuple[Array, ...], int, float]]:
    """Launch steps of an epoch, one for each item that the caller takes.

    An item is (the devices' losses and a guard, number of images, seconds of launching). The losses
    and the guard may not be computed yet.
    """
    buckets = buckets_of(settings.exchange)
    guarded = guards(backend, params)
    for images, labels in batches(data, settings, epoch, steps):
        start = perf_counter()
        rate = settings.learning_rate
        params[:], guarded, losses = train_batch(
            backend, params, images, labels, rate, guarded, buckets
        )
        # All guards are equal, because every device has the same sum of gradients.
        yield (*losses, guarded[0]), len(images), perf_counter() - start


def _devices_at_fault(
    backend: Backend,
    params: Sequence[Array],
    data: Dataset,
    settings: Settings,
    epoch: int,
    step: int,
) -> list[Device]:
    """Compute a refused step's gradients again; return the devices on which they are not finite."""
    (batch,) = batches(data, settings, epoch, slice(step, step + 1))
    backward_passes = launch_gradients(backend, params, *batch)
    faulty = []
    for device, backward_pass in zip(devices_of(backend, params), backward_passes, strict=True):
        # What is launched cannot be iterated: its items are taken by their places.
        on_host = backend.to_numpy(backward_pass[1])
        if not all(np.isfinite(gradient).all() for gradient in on_host):
            faulty.append(device)
    return faulty
