"""How far a training is: the epochs that are done, and the steps of the next one."""

import math
from dataclasses import dataclass

__all__ = ["CompletedSteps", "Epoch", "Stretch"]


@dataclass(frozen=True)
class Epoch:
    """The numbers of one epoch. `losses` are the batches' average losses per image; `accuracy` is of the test set."""

    number: int
    seconds: float
    dispatch_seconds: float
    images: int
    losses: tuple[float, ...]
    accuracy: float = math.nan


@dataclass(frozen=True)
class Stretch:
    """The numbers of consecutive steps of an epoch, as in `Epoch`; the stretches of an epoch add up to it."""

    seconds: float = 0.0
    dispatch_seconds: float = 0.0
    images: int = 0
    losses: tuple[float, ...] = ()

    def __add__(self, other: "Stretch") -> "Stretch":
        """Return both, one after the other."""
        return Stretch(
            self.seconds + other.seconds,
            self.dispatch_seconds + other.dispatch_seconds,
            self.images + other.images,
            self.losses + other.losses,
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
        """The losses of all steps that are done, in all epochs."""
        return (*(loss for epoch in self.epochs for loss in epoch.losses), *self.begun.losses)

    @property
    def step(self) -> int:
        """The number of steps of that epoch that are done."""
        return len(self.begun.losses)
