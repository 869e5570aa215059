"""How far accuracies are apart by chance: what seeds do to one point and not to another.

A point is a learning rate with a kind of batch on some devices; its trainings differ in their seed, and those of a seed
start alike at all points. What a seed does to all points that are compared is no noise; the variance that is left is.
As many differences are looked at together, so the bound is that which all of them keep to (Bonferroni).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist, fmean

from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import FIXED
from parallel_core.measurement.confidence_intervals import student_t

__all__ = ["CHANCE", "MIN_NOISE", "Seeds", "noise_of"]

CHANCE = 0.2
"""An accuracy below this is guessing among ten classes, or hardly better."""
MIN_NOISE = 0.01
MISTAKEN = 0.03
"""How often one difference at least, of all that are looked at, may be called one by chance. Well below one in twenty,
for the quantiles are expansions and accuracies are not quite normal."""


@dataclass(frozen=True)
class Seeds:
    """The accuracies of all points, seed by seed, of so many test images."""

    accuracies: Mapping[tuple[str, int], Mapping[float, Sequence[float]]]
    images: int

    @cached_property
    def between_rates(self) -> float:
        """What mean accuracies of two rates must differ by to count as different; of points at which all learnt."""
        rows = [each for row in self.accuracies.values() for each in row.values()]
        rates = len(next(iter(self.accuracies.values())))
        learnt = [rounds for rounds in rows if min(rounds) >= CHANCE]
        return noise_of(learnt if len(learnt) > 1 else [], len(rows[0]), self.images, max(1, rates - 1))

    def between_devices(self, rate: float) -> float:
        """What mean accuracies of two numbers of devices must differ by at this rate, with the same batch."""
        rows = [row[rate] for (kind, _), row in self.accuracies.items() if kind == FIXED]
        rates = len(next(iter(self.accuracies.values())))
        return noise_of(rows, len(rows[0]), self.images, max(1, rates * (len(rows) - 1)))


def noise_of(points: Sequence[Sequence[float]], count: int, images: int, differences: int = 1) -> float:
    """Return what two mean accuracies of `count` seeds must differ by to count as different.

    `points` holds the accuracies of each point, seed by seed, and `differences` are looked at. Where there are too few
    points or seeds, there is only the variance of counting so many test images.
    """
    quantile = 1 - MISTAKEN / 2 / differences
    if count < 2 or len(points) < 2:
        return max(MIN_NOISE, NormalDist().inv_cdf(quantile) * (2 * 0.25 / images / count) ** 0.5)
    grand = fmean(map(fmean, points))
    of_seed = [fmean(column) - grand for column in zip(*points, strict=True)]
    left = [x - fmean(own) - shift for own in points for x, shift in zip(own, of_seed, strict=True)]
    freedom = (len(points) - 1) * (count - 1)
    variance = sum(x**2 for x in left) / freedom
    return max(MIN_NOISE, student_t(freedom, quantile) * (2 * variance / count) ** 0.5)
