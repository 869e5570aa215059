"""Data-parallel training: epochs of steps, and the accuracy after each epoch.

A part of an epoch, between two checkpoints, is a stretch of steps. Book: Dive into Deep Learning,
"Training on Multiple GPUs"; its step is in `step`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from time import perf_counter
from typing import Any, TypeAlias

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

OnBatch: TypeAlias = Callable[[int, int], object]
"""Called for every batch that is done, with the epoch and the number of images."""
EVALUATION_BATCH = 1000
START = CompletedSteps()


class NotFiniteError(MeasurementError):
    """A loss is not finite on one of `devices`, or the gradients' sum is not.

    In the latter case `devices` are those whose gradients are not finite when they are computed
    again; none if the cause lies in another process, in the sum, or did not recur.
    """

    def __init__(
        self, cause: str, step: str, devices: Sequence[Device], updated: bool = False
    ) -> None:
        parameters = "" if updated else " (the parameters are those before the step)"
        super().__init__(f"{cause} in {step}{parameters}: lower the learning rate (--lr)")
        self.devices = tuple(devices)


def ignore(*_: object) -> None:
    pass


def train(
    backend: Backend,
    params: list[Array],
    data: Dataset,
    settings: Settings,
    on_batch: OnBatch = ignore,
) -> Iterator[Epoch]:
    """Train epoch by epoch, yielding each epoch's numbers.

    `params`, one value per device, is kept up to date. If there are fewer values than the backend
    has devices, only the first devices train. `on_batch(epoch, images)` is called for every batch
    that is done. Raises NotFiniteError at the first batch whose loss on any device, or whose
    gradients, are NaN or infinite; `params` are then those before it.
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
    """Continue a training from `start`, yielding its progress at each epoch's end; see `train`.

    `params` are those at `start`. With `every`, the progress after so many steps of an epoch is
    yielded too. At each, all that was launched is done, and continuing from there later gives the
    same numbers.
    """
    progress = start
    steps_of_epoch = steps_of(data, settings)
    while progress.epoch <= settings.last_epoch:
        while progress.step < steps_of_epoch:
            stop = steps_of_epoch
            if every is not None:
                stop = min(stop, (progress.step // every + 1) * every)
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
    """Train for one epoch, without evaluating it; see `train`."""
    steps = slice(0, steps_of(data, settings))
    stretch = train_steps(backend, params, data, settings, number, steps, ignore)
    return Epoch(number, **vars(stretch))


def evaluate(backend: Backend, params: Sequence[Array], data: Dataset) -> float:
    """Return the share of test images that the network classifies correctly.

    It is computed on all devices of `params`.
    """
    correct = add_counts(backend, params, launch_counts(backend, params, data))
    return correct / len(data.test_labels)


def launch_counts(
    backend: Backend, params: Sequence[Array], data: Dataset, batch_size: int = EVALUATION_BATCH
) -> list[list[Array]]:
    """Launch the count of correctly classified test images.

    It is returned for each batch and device of `params`.
    """
    count = count_correct(backend.ops)
    devices = devices_of(backend, params)
    counts: list[list[Array]] = []
    for start in range(0, len(data.test_labels), batch_size):
        rows = slice(start, start + batch_size)
        images, labels = as_input(data.test_images[rows]), data.test_labels[rows]
        shards = split_batch(backend, images, labels, devices)
        counts.append(
            [backend.launch(count, p, x, y) for p, (x, y) in zip(params, shards, strict=True)]
        )
    return counts


def add_counts(backend: Backend, params: Sequence[Array], counts: Sequence[Sequence[Array]]) -> int:
    """Wait for what `launch_counts` returned, and add it up.

    Return the number of correctly classified images, of all devices.
    """
    by_device = []
    for of_device in zip(*counts, strict=True):
        correct = sum(int(backend.to_numpy(count)) for count in of_device)
        by_device.append([correct])
    return int(sum_over_devices(backend, devices_of(backend, params), by_device)[0])


def train_steps(
    backend: Backend,
    params: list[Array],
    data: Dataset,
    settings: Settings,
    epoch: int,
    steps: slice,
    on_batch: OnBatch,
) -> Stretch:
    """Train for some steps of an epoch, and wait for them; see `train`.

    `steps` numbers them from 0.
    """
    losses: list[list[float]] = []
    images: list[int] = []
    dispatched = 0.0
    devices = devices_of(backend, params)
    backend.waitall()
    start = perf_counter()
    # Reading a loss waits for its step, so it is read after the next step is queued, if one is: no
    # device runs idle.
    queued = chain[Any](_launch_steps(backend, params, data, settings, epoch, steps), (None,))
    for (computed, count, launching), _ in pairwise(queued):
        number = steps.start + len(losses)
        *values, guard = (value.item() for value in backend.to_numpy(computed))
        step = f"epoch {epoch}, step {number + 1}"
        applied = math.isfinite(guard)
        for device, value in zip(devices, values, strict=True):
            if not math.isfinite(value):
                raise NotFiniteError(f"the loss is {value} on {device}", step, (device,), applied)
        if not applied:
            faulty = _devices_at_fault(backend, params, data, settings, epoch, number)
            where = f"on {', '.join(map(str, faulty))}" if faulty else "summed over all devices"
            raise NotFiniteError(f"the gradients {where} are not finite", step, faulty)
        losses.append(values)
        images.append(count)
        dispatched += launching
        on_batch(epoch, count)
    backend.waitall()
    seconds = perf_counter() - start
    # A device's losses cover its rows only: one sum over all devices, also of other processes, for
    # all steps.
    sums = sum_over_devices(backend, devices, list(zip(*losses, strict=True)))
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
    """Launch some of an epoch's steps, one for each item that the caller takes.

    An item holds the devices' losses and a guard, which may still be computed, the number of
    images, and the seconds that launching took.
    """
    buckets = buckets_of(settings.exchange)
    guarded = guards(backend, params)
    for images, labels in batches(data, settings, epoch, steps):
        start = perf_counter()
        rate = settings.learning_rate
        params[:], guarded, losses = train_batch(
            backend, params, images, labels, rate, guarded, buckets
        )
        # The guards are equal: each device sees the same sum.
        yield (*losses, guarded[0]), len(images), perf_counter() - start


def _devices_at_fault(
    backend: Backend,
    params: Sequence[Array],
    data: Dataset,
    settings: Settings,
    epoch: int,
    step: int,
) -> list[Device]:
    """Compute a refused step's gradients again; return the devices whose own are not finite."""
    (batch,) = batches(data, settings, epoch, slice(step, step + 1))
    backward_passes = launch_gradients(backend, params, *batch)
    faulty = []
    for device, backward_pass in zip(devices_of(backend, params), backward_passes, strict=True):
        gradients = backend.to_numpy(backward_pass[1])
        if not all(np.isfinite(gradient).all() for gradient in gradients):
            faulty.append(device)
    return faulty
