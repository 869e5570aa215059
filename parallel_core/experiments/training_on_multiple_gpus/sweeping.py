"""Sweep over a few points within a budget of seconds: each point has a share of what is left of it."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from backends.host import clock_without_compiling
from parallel_core.measurement.progress import part

__all__ = ["swept"]

Point = TypeVar("Point")


def swept(
    points: Sequence[Point], weights: Sequence[float], budget: float
) -> Iterator[tuple[Point, Callable[[], float]]]:
    """Iterate over the points, each with a function that returns the seconds which are left to it.

    Shares are as the weights, one a point. What is told of the progress of a point is told as its part of the sweep.
    """
    end = clock_without_compiling() + budget
    for place, point in enumerate(points):
        before, own, after = sum(weights[:place]), weights[place], sum(weights[place + 1 :])
        now, total = clock_without_compiling(), before + own + after
        until = now + (end - now) * own / (own + after)
        with part(before / total, (before + own) / total):
            yield point, partial(_left, until)


def _left(until: float) -> float:
    return max(0.0, until - clock_without_compiling())
