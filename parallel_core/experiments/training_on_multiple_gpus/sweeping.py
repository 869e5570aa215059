"""Sweep over a few points, of which each has its share of a trial's budget."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from parallel_core.experiments.runner.trial import TIMED_SHARE, Trial
from parallel_core.measurement.progress import part

__all__ = ["doublings", "swept"]

Point = TypeVar("Point")


def doublings(first: int, last: int) -> Iterator[int]:
    """Count from first to last by doubling; `last` is left out if it is not reached exactly."""
    while first <= last:
        yield first
        first *= 2


def swept(
    trial: Trial, points: Sequence[Point], weights: Sequence[float], share: float = TIMED_SHARE
) -> Iterator[Point]:
    """Iterate over the points; what a loop's body registers is timed when it ends.

    Their shares are as the weights, one a point; what one leaves over is the next one's. What is told of the progress
    of a point is told as its part of the sweep.
    """
    total, done = sum(weights), 0.0
    for point, weight in zip(points, weights, strict=True):
        before, done = done, done + weight
        with part(before / total, done / total):
            yield point
            trial.run(share * done / total)
