"""The settings of a training, the batches of an epoch, and the progress of a training."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from parallel_core.training.dataset import Dataset

Exchange = Literal["after", "during"]
"""The time of the exchange of gradients: after the backward pass, or bucket by bucket during it."""
EVERY_STEP = slice(None)


@dataclass(frozen=True)
class Settings:
    """The settings of a training; the defaults are the book's."""

    epochs: int | None = 10
    """None: one epoch, and an experiment may choose its `limit`."""
    batch_size: int = 256
    learning_rate: float = 0.2
    limit: int | None = None
    """Batches per epoch; None for all."""
    seed: int = 0
    exchange: Exchange = "after"
    width: int = 1
    """The factor by which the network has more channels and units than the book's."""
    initial_scale: float | None = None
    """The factor by which weights are larger at first than the book's.

    None: 1, and an experiment may choose another one.
    """

    @property
    def last_epoch(self) -> int:
        """The number of the last epoch, from 1."""
        return 1 if self.epochs is None else self.epochs


def batches(
    data: Dataset, settings: Settings, epoch: int, steps: slice = EVERY_STEP
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the batches, (images, labels), of an epoch's `steps`; the last one may be smaller.

    Their order depends on the seed and the epoch only.
    """
    order, _ = shuffled(settings.seed, epoch, len(data.train_labels))
    starts_of_batches = range(0, len(order), settings.batch_size)[: settings.limit]
    for start in starts_of_batches[steps]:
        rows = order[start : start + settings.batch_size]
        yield as_input(data.train_images[rows]), data.train_labels[rows]


def steps_of(data: Dataset, settings: Settings) -> int:
    """Return the number of steps in an epoch."""
    all_steps = math.ceil(len(data.train_labels) / settings.batch_size)
    if settings.limit is None:
        return all_steps
    return min(all_steps, settings.limit)


def shuffled(seed: int, epoch: int, images: int) -> tuple[np.ndarray, np.random.Generator]:
    """Draw the order of an epoch's images; return it with the generator that drew it."""
    generator = np.random.default_rng((seed, epoch))
    return generator.permutation(images), generator


def as_input(images: np.ndarray) -> np.ndarray:
    """Convert grey levels, uint8 (n, 28, 28), to float32 (n, 1, 28, 28) from 0 to 1."""
    return images[:, None].astype(np.float32) / np.float32(255)


@dataclass(frozen=True)
class Epoch:
    """The results of one epoch."""

    number: int
    """The number of the epoch, from 1."""
    seconds: float
    dispatch_seconds: float
    """The seconds in which the steps were launched."""
    images: int
    losses: tuple[float, ...]
    """The average loss per image, batch by batch."""
    accuracy: float = math.nan
    """The accuracy on the test images after the epoch."""


@dataclass(frozen=True)
class Stretch:
    """The results of consecutive steps of an epoch, with the fields of `Epoch`."""

    seconds: float = 0.0
    dispatch_seconds: float = 0.0
    images: int = 0
    losses: tuple[float, ...] = ()

    def __add__(self, later: "Stretch") -> "Stretch":
        """Return the stretch of these steps and the later ones."""
        return Stretch(
            self.seconds + later.seconds,
            self.dispatch_seconds + later.dispatch_seconds,
            self.images + later.images,
            self.losses + later.losses,
        )


@dataclass(frozen=True)
class CompletedSteps:
    """The progress of a training: its completed epochs, and the steps of the current epoch."""

    epochs: tuple[Epoch, ...] = ()
    begun: Stretch = Stretch()
    """The completed steps of the current epoch."""

    @property
    def epoch(self) -> int:
        """The number of the current epoch, from 1."""
        return len(self.epochs) + 1

    @property
    def losses(self) -> tuple[float, ...]:
        """The losses of all completed steps."""
        losses: list[float] = []
        for epoch in self.epochs:
            losses += epoch.losses
        return (*losses, *self.begun.losses)

    @property
    def step(self) -> int:
        """The number of completed steps of the current epoch."""
        return len(self.begun.losses)
