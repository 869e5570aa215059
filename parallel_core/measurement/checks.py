"""Checks of what was measured: times and figures that cannot be true, errors of numbers."""

from collections.abc import Iterable, Sequence

import numpy as np

from parallel_core.measurement.confidence_intervals import (
    SMALLEST_DIFFERENCE,
    Interval,
    decide,
    with_bounds,
)
from parallel_core.measurement.result import Case
from parallel_core.measurement.verdicts import in_percent, times_as_long
from parallel_core.system.formatting import figure, percent


def about_excess(
    metric: str, measured: Interval, most: float, is_share: bool = False
) -> tuple[str, bool] | None:
    """Say by how much a metric exceeds the most that it can be, and whether that can be; None if it
    does not.
    """
    if measured.estimate <= most * (1 + SMALLEST_DIFFERENCE):
        return None
    with_interval, plain = (in_percent, percent) if is_share else (with_bounds, figure)
    excess = f"{metric} is {with_interval(measured)} of at most {plain(most)}"
    if decide(measured, most) == 1:
        return (
            f"{excess}, which is beyond the noise: the machine was disturbed, measure again",
            False,
        )
    return (
        f"{excess}: within the noise; parts may be slower in isolation than within the whole.",
        True,
    )


def why_impossible(together: Case, parts: Sequence[Case]) -> str | None:
    """Return why `together` cannot be true: it is significantly faster than its slowest part; else
    None.
    """
    slowest = max(parts, key=lambda part: part.median)
    ratio = times_as_long(together, slowest)
    if decide(ratio, 1.0) == 0:
        return (
            f"{together.name!r} took {together.median:.3g} s, less than its part {slowest.name!r} "
            "in isolation "
            f"({slowest.median:.3g} s; ratio {with_bounds(ratio)}): the machine was disturbed, "
            "measure again"
        )
    return None


def largest_of(errors: Iterable[float]) -> float:
    """Return the largest of some errors, and NaN if one of them is: max() might pass over it."""
    return float(np.max(list(errors)))


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference between two arrays as a share of the largest expected
    magnitude.
    """
    if actual.shape != expected.shape:
        return float("inf")
    scale = float(np.max(np.abs(expected), initial=0)) or 1.0
    difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    return float(np.max(difference, initial=0)) / scale
