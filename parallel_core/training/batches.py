"""The settings of a training, an epoch's batches in the order that the settings fix, and how far a
training is.
"""

import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Literal

import numpy as np

from parallel_core.training.dataset import Dataset

Exchange = Literal["after", "during"]
"""When gradients are exchanged: after the backward pass, or bucket by bucket during it."""
EVERY_STEP = slice(None)


@dataclass(frozen=True)
class Settings:
    """The settings of a training; the defaults are the book's."""

    epochs: int | None = 10
    """None: one epoch, of as many batches as an experiment chooses if there is no `limit`."""
    batch_size: int = 256
    learning_rate: float = 0.2
    limit: int | None = None
    """Batches per epoch; None for all."""
    seed: int = 0
    exchange: Exchange = "after"
    width: int = 1
    """How many times the book's channels and units the network has."""

    @property
    def last_epoch(self) -> int:
        """The number of the last epoch, from 1."""
        return 1 if self.epochs is None else self.epochs


def batches(
    data: Dataset, settings: Settings, epoch: int, steps: slice = EVERY_STEP
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Iterate over an epoch's batches in an order that depends on seed and epoch only.

    The last may be smaller.
    """
    order, _ = shuffled(settings.seed, epoch, len(data.train_labels))
    for start in range(0, len(order), settings.batch_size)[: settings.limit][steps]:
        rows = order[start : start + settings.batch_size]
        yield as_input(data.train_images[rows]), data.train_labels[rows]


def steps_of(data: Dataset, settings: Settings) -> int:
    """Return the number of steps in an epoch."""
    return len(range(0, len(data.train_labels), settings.batch_size)[: settings.limit])


def shuffled(seed: int, epoch: int, images: int) -> tuple[np.ndarray, np.random.Generator]:
    """Draw the order of an epoch's images; return it with the generator that drew it."""
    generator = np.random.default_rng((seed, epoch))
    return generator.permutation(images), generator


def as_input(images: np.ndarray) -> np.ndarray:
    """Convert grey levels, uint8 (n, 28, 28), to the network's input: float32 (n, 1, 28, 28) from 0
    to
    1.
    """
    return images[:, None].astype(np.float32) / np.float32(255)


@dataclass(frozen=True)
class Epoch:
    """The numbers of one epoch.

    `losses` are the batches' average losses per image; `accuracy`, the test set's.
    """

    number: int
    seconds: float
    dispatch_seconds: float
    images: int
    losses: tuple[float, ...]
    accuracy: float = math.nan


@dataclass(frozen=True)
class Stretch:
    """The numbers of consecutive steps of an epoch, as in `Epoch`.

    The stretches of an epoch add up to it.
    """

    seconds: float = 0.0
    dispatch_seconds: float = 0.0
    images: int = 0
    losses: tuple[float, ...] = ()

    def __add__(self, other: "Stretch") -> "Stretch":
        return Stretch(
            *(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True))
        )


@dataclass(frozen=True)
class CompletedSteps:
    """The epochs that are done, and the steps of the next one, which has `begun`."""

    epochs: tuple[Epoch, ...] = ()
    begun: Stretch = Stretch()

    @property
    def epoch(self) -> int:
        """The number of the epoch that is under way, from 1."""
        return len(self.epochs) + 1

    @property
    def losses(self) -> tuple[float, ...]:
        return (*(loss for epoch in self.epochs for loss in epoch.losses), *self.begun.losses)

    @property
    def step(self) -> int:
        """The number of steps of that epoch that are done."""
        return len(self.begun.losses)
