"""Sweep over a few points within a budget of seconds: each point has a share of what is left of it."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import TypeVar

from parallel_core.measurement.progress import part

__all__ = ["swept"]

Point = TypeVar("Point")


def swept(
    points: Sequence[Point], weights: Sequence[float], budget: float
) -> Iterator[tuple[Point, Callable[[], float]]]:
    """Iterate over the points, each with a function that returns the seconds which are left to it.

    Shares are as the weights, one a point. What is told of the progress of a point is told as its part of the sweep.
    """
    end = perf_counter() + budget
    for place, point in enumerate(points):
        before, own, after = sum(weights[:place]), weights[place], sum(weights[place + 1 :])
        now, total = perf_counter(), before + own + after
        until = now + (end - now) * own / (own + after)
        with part(before / total, (before + own) / total):
            yield point, partial(_left, until)


def _left(until: float) -> float:
    return max(0.0, until - perf_counter())
