"""Sweep over a few points within a trial's budget, each of which has a share of it."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from parallel_core.experiments.runner.trial import TIMED_SHARE, Trial
from parallel_core.measurement.progress import part

__all__ = ["swept"]

Point = TypeVar("Point")


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
