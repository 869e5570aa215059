"""Data-parallel training: epochs of steps, and what the network has learnt after each.

Book: Dive into Deep Learning, "Training on Multiple GPUs"; one step of it is in `training_step`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from backends import Array, Backend
from parallel_core.training.batches import Settings, as_input, batches, steps_of
from parallel_core.training.dataset import Dataset
from parallel_core.training.divergence import GradientsAreNotFiniteError, LossIsNotFiniteError, NotFiniteError
from parallel_core.training.fold_loop__stretch import sum_over_devices, train_steps
from parallel_core.training.lenet import count_correct
from parallel_core.training.progress import Epoch, Position, Stretch
from parallel_core.training.step import devices_of, get_params, guards, launch_gradients, split_batch, train_batch

__all__ = [
    "Epoch",
    "GradientsAreNotFiniteError",
    "LossIsNotFiniteError",
    "NotFiniteError",
    "Position",
    "Settings",
    "Stretch",
    "as_input",
    "batches",
    "evaluate",
    "get_params",
    "guards",
    "ignore",
    "launch_gradients",
    "positions",
    "split_batch",
    "train",
    "train_batch",
    "train_epoch",
]

EVALUATION_BATCH = 1000
START = Position()


def ignore(*_: object) -> None:
    """Take no notice of progress."""


def train(
    backend: Backend,
    params: list[Array],
    data: Dataset,
    settings: Settings,
    on_batch: Callable[[int, int], object] = ignore,
) -> Iterator[Epoch]:
    """Train epoch by epoch, yielding each epoch's numbers; `params`, one value per device, is kept up to date.

    Fewer values than the backend has devices train on the first of them alone.

    `on_batch(epoch, images)` is called for every batch that is done. Raises NotFiniteError at the first batch whose
    loss on any device, or whose gradients, are NaN or infinite; `params` are then those before it.
    """
    for position in positions(backend, params, data, settings, on_batch):
        yield position.epochs[-1]


def positions(
    backend: Backend,
    params: list[Array],
    data: Dataset,
    settings: Settings,
    on_batch: Callable[[int, int], object] = ignore,
    start: Position = START,
    every: int | None = None,
) -> Iterator[Position]:
    """Go on with a training from `start`, yielding each position at the end of an epoch: `train`, to be continued.

    `params` are those at `start`. With `every`, positions after so many steps of an epoch are yielded too. At each,
    all that was launched is done, and to go on from there later gives the same numbers.
    """
    position = start
    last = steps_of(data, settings)
    while position.epoch <= settings.epochs:
        while position.step < last:
            stop = last if every is None else min(last, (position.step // every + 1) * every)
            steps = slice(position.step, stop)
            stretch = train_steps(backend, params, data, settings, position.epoch, steps, on_batch)
            position = replace(position, begun=position.begun + stretch)
            if stop < last:
                yield position
        epoch = replace(epoch_of(position.epoch, position.begun), accuracy=evaluate(backend, params, data))
        position = Position((*position.epochs, epoch))
        yield position


def train_epoch(
    backend: Backend,
    params: list[Array],
    data: Dataset,
    settings: Settings,
    number: int,
    on_batch: Callable[[int, int], object] = ignore,
) -> Epoch:
    """Train for one epoch, whose accuracy is then still to be found; see `train`."""
    steps = slice(0, steps_of(data, settings))
    return epoch_of(number, train_steps(backend, params, data, settings, number, steps, on_batch))


def epoch_of(number: int, whole: Stretch) -> Epoch:
    """Make an epoch of all its steps, not evaluated yet."""
    return Epoch(number, whole.seconds, whole.dispatch_seconds, whole.images, whole.losses)


def evaluate(backend: Backend, params: Sequence[Array], data: Dataset) -> float:
    """Return the share of test images that the network labels rightly, computed on all devices that `params` are on."""
    count = count_correct(backend.ops)
    devices = devices_of(backend, params)
    counts: list[list[Array]] = []
    for start in range(0, len(data.test_labels), EVALUATION_BATCH):
        rows = slice(start, start + EVALUATION_BATCH)
        shards = split_batch(backend, as_input(data.test_images[rows]), data.test_labels[rows], devices)
        counts.append([backend.launch(count, p, x, y) for p, (x, y) in zip(params, shards, strict=True)])
    by_device = [[sum(int(backend.to_numpy(count)) for count in own)] for own in zip(*counts, strict=True)]
    return int(sum_over_devices(backend, devices, by_device)[0]) / len(data.test_labels)
