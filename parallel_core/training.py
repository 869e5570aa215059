"""Data-parallel training as the book does it: split the batch, differentiate everywhere, add up, update everywhere.

Book: Dive into Deep Learning, "Training on Multiple GPUs". No framework is named here; every value passes from verb
to verb, so that the schedule can be read off the text.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from backends import Array, Backend, Device
from parallel_core.dataset import Dataset
from parallel_core.errors import MeasurementError
from parallel_core.exchange import Bucket, Exchange, buckets_of, exchange
from parallel_core.lenet import count_correct, initial_parameters, loss_and_gradients, shapes

__all__ = [
    "Epoch",
    "LossIsNotFiniteError",
    "Settings",
    "batches",
    "evaluate",
    "get_params",
    "ignore",
    "launch_gradients",
    "split_batch",
    "train",
    "train_batch",
    "train_epoch",
]

EVALUATION_BATCH = 1000
PARAMETERS = len(shapes())
EXCHANGED_TOGETHER = buckets_of("after", PARAMETERS)


class LossIsNotFiniteError(MeasurementError):
    """Training diverged."""

    def __init__(self, epoch: int, step: int, device: Device, loss: float) -> None:
        super().__init__(
            f"the loss is {loss} on {device} in epoch {epoch}, step {step}: lower the learning rate (--lr)"
        )
        self.epoch, self.step, self.device, self.loss = epoch, step, device, loss


@dataclass(frozen=True)
class Settings:
    """How to train; the book's values."""

    epochs: int = 10
    batch_size: int = 256
    learning_rate: float = 0.2
    limit: int | None = None
    """Batches an epoch; None for all."""
    seed: int = 0
    exchange: Exchange = "after"
    """When gradients are exchanged: after the backward pass, or bucket by bucket during it."""
    width: int = 1
    """How many times the book's channels and units the network has."""


@dataclass(frozen=True)
class Epoch:
    """What one epoch gave. `losses` are the batches' average losses per image; `accuracy` is of the test set."""

    number: int
    seconds: float
    dispatch_seconds: float
    images: int
    losses: tuple[float, ...]
    accuracy: float = math.nan


def ignore(*_: object) -> None:
    """Take no notice of progress."""


def get_params(backend: Backend, device: Device, seed: int = 0, width: int = 1) -> Array:
    """Load the initial parameters on a device."""
    return backend.asarray(initial_parameters(seed, width), device)


def split_batch(
    backend: Backend, images: np.ndarray, labels: np.ndarray, devices: Sequence[Device]
) -> list[tuple[Array, Array]]:
    """Divide a batch's rows over the devices: (images, labels) for each."""
    return list(zip(backend.split_and_load(images, devices), backend.split_and_load(labels, devices), strict=True))


def train_batch(
    backend: Backend,
    params: Sequence[Array],
    images: np.ndarray,
    labels: np.ndarray,
    learning_rate: float,
    buckets: Sequence[Bucket] = EXCHANGED_TOGETHER,
) -> tuple[list[Array], list[Array]]:
    """Launch one step on the global batch; return the new parameters and the summed losses, one per device.

    The gradients are of the sum over the global batch, so dividing the rate by its size makes the step the same for
    any number of devices. The parameters are consumed.
    """
    steps = launch_gradients(backend, params, images, labels)
    gradients = exchange(backend, [step[1] for step in steps], buckets)
    rate = learning_rate / len(images)
    updated = [backend.launch(backend.ops.sgd, p, g, rate) for p, g in zip(params, gradients, strict=True)]
    return updated, [step[0] for step in steps]


def devices_of(backend: Backend, params: Sequence[Array]) -> tuple[Device, ...]:
    """Return the devices that hold the parameters: the first ones, as many as there are values."""
    return backend.devices[: len(params)]


def launch_gradients(backend: Backend, params: Sequence[Array], images: np.ndarray, labels: np.ndarray) -> list[Array]:
    """Launch (sum of the rows' losses, its gradients) for each device's share of a batch."""
    compute = loss_and_gradients(backend.ops)
    shards = split_batch(backend, images, labels, devices_of(backend, params))
    return [backend.launch(compute, p, x, y) for p, (x, y) in zip(params, shards, strict=True)]


def batches(data: Dataset, settings: Settings, epoch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Iterate over an epoch's batches in an order that depends on seed and epoch only; the last may be smaller."""
    order = np.random.default_rng((settings.seed, epoch)).permutation(len(data.train_labels))
    starts = range(0, len(order), settings.batch_size)[: settings.limit]
    for start in starts:
        rows = order[start : start + settings.batch_size]
        yield as_input(data.train_images[rows]), data.train_labels[rows]


def as_input(images: np.ndarray) -> np.ndarray:
    """Turn grey levels, uint8 (n, 28, 28), into what the network takes: float32 (n, 1, 28, 28) from 0 to 1."""
    return images[:, None].astype(np.float32) / np.float32(255)


def evaluate(backend: Backend, params: Sequence[Array], data: Dataset) -> float:
    """Return the share of test images that the network labels rightly, computed on all devices that `params` are on."""
    count = count_correct(backend.ops)
    devices = devices_of(backend, params)
    counts: list[Array] = []
    for start in range(0, len(data.test_labels), EVALUATION_BATCH):
        rows = slice(start, start + EVALUATION_BATCH)
        shards = split_batch(backend, as_input(data.test_images[rows]), data.test_labels[rows], devices)
        counts += [backend.launch(count, p, x, y) for p, (x, y) in zip(params, shards, strict=True)]
    return sum(int(backend.to_numpy(counted)) for counted in counts) / len(data.test_labels)


def train(
    backend: Backend,
    params: list[Array],
    data: Dataset,
    settings: Settings,
    on_batch: Callable[[int, int], object] = ignore,
) -> Iterator[Epoch]:
    """Train epoch by epoch, yielding each epoch's numbers; `params`, one value per device, is kept up to date.

    Fewer values than the backend has devices train on the first of them alone.

    `on_batch(epoch, images)` is called for every batch that is done. Raises LossIsNotFiniteError at the first batch
    whose loss on any device is NaN or infinite.
    """
    for number in range(1, settings.epochs + 1):
        epoch = train_epoch(backend, params, data, settings, number, on_batch)
        yield replace(epoch, accuracy=evaluate(backend, params, data))


def train_epoch(
    backend: Backend,
    params: list[Array],
    data: Dataset,
    settings: Settings,
    number: int,
    on_batch: Callable[[int, int], object] = ignore,
) -> Epoch:
    """Train for one epoch, whose accuracy is then still to be found; see `train`."""
    losses: list[float] = []
    images = 0
    dispatched = 0.0
    backend.waitall()
    start = perf_counter()
    # Reading a loss waits for its step, so it is read when the next step is queued already: no device runs dry.
    for step in one_behind(launch_steps(backend, params, data, settings, number)):
        losses.append(read_loss(backend, step, number, len(losses) + 1))
        images += step.images
        dispatched += step.dispatch_seconds
        on_batch(number, step.images)
    backend.waitall()
    return Epoch(number, perf_counter() - start, dispatched, images, tuple(losses))


@dataclass(frozen=True)
class Step:
    """A step that was launched: the devices' losses, still to be computed, and the number of images."""

    losses: list[Array]
    images: int
    dispatch_seconds: float


def launch_steps(
    backend: Backend, params: list[Array], data: Dataset, settings: Settings, epoch: int
) -> Iterator[Step]:
    """Launch an epoch's steps, one for each item that is asked for."""
    buckets = buckets_of(settings.exchange, PARAMETERS)
    for images, labels in batches(data, settings, epoch):
        start = perf_counter()
        params[:], losses = train_batch(backend, params, images, labels, settings.learning_rate, buckets)
        yield Step(losses, len(images), perf_counter() - start)


def one_behind(steps: Iterator[Step]) -> Iterator[Step]:
    """Yield each step when the next one has been launched."""
    previous = next(steps, None)
    for step in steps:
        if previous is not None:
            yield previous
        previous = step
    if previous is not None:
        yield previous


def read_loss(backend: Backend, step: Step, epoch: int, number: int) -> float:
    """Wait for a step's losses and return their average over its images; LossIsNotFiniteError where one is not."""
    values = [float(loss) for loss in backend.to_numpy(tuple(step.losses))]
    for device, value in zip(devices_of(backend, step.losses), values, strict=True):
        if not math.isfinite(value):
            raise LossIsNotFiniteError(epoch, number, device, value)
    return sum(values) / step.images
