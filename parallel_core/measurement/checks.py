"""Checks of what was measured: times and figures that cannot be true, errors of numbers."""

from collections.abc import Iterable, Sequence

import numpy as np

from parallel_core.measurement.confidence_intervals import (
    SMALLEST_DIFFERENCE,
    Interval,
    decide,
    with_bounds,
)
from parallel_core.measurement.over_rounds import in_percent, times_as_long
from parallel_core.measurement.result import Case, Note
from parallel_core.system.formatting import figure, percent


def about_excess(
    metric: str, measured: Interval, most: float, is_share: bool = False
) -> Note | None:
    """Say by how much a metric exceeds the most that it can be; None if it does not.

    The figure is impossible unless noise explains it.
    """
    if measured.estimate <= most * (1 + SMALLEST_DIFFERENCE):
        return None
    if is_share:
        excess = f"{metric} is {in_percent(measured)} of at most {percent(most)}"
    else:
        excess = f"{metric} is {with_bounds(measured)} of at most {figure(most)}"
    if decide(measured, most) == 1:
        return Note(
            "impossible-figure",
            f"{excess}, which is beyond the noise: the machine was disturbed, measure again",
        )
    return Note(
        "above-possible",
        f"{excess}: within the noise; parts may be slower in isolation than within the whole.",
    )


def why_impossible(together: Case, parts: Sequence[Case]) -> Note | None:
    """Say why a case cannot be true: it is much faster than its slowest part; None if it can."""
    slowest = max(parts, key=lambda part: part.median)
    ratio = times_as_long(together, slowest)
    if decide(ratio, 1.0) != 0:
        return None
    return Note(
        "faster-than-part",
        f"{together.name!r} took {together.median:.3g} s, less than its part {slowest.name!r} "
        f"in isolation ({slowest.median:.3g} s; ratio {with_bounds(ratio)}): "
        "the machine was disturbed, measure again",
    )


def values_differ(what: str, error: float) -> Note:
    """Say by what share of the largest element values differ from NumPy's."""
    return Note(
        "values-differ", f"{what} differ from NumPy's by {error:.1e} of the largest element"
    )


def devices_differ(what: str, error: float) -> Note:
    """Say by what share of the largest element values on several devices differ."""
    return Note(
        "devices-differ", f"{what} differ between devices by {error:.1e} of the largest element"
    )


def largest_of(errors: Iterable[float]) -> float:
    """Return the largest error, and NaN if one of them is: max() might pass over it."""
    return float(np.max(list(errors)))


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference between two arrays as a share of the largest expected value."""
    if actual.shape != expected.shape:
        return float("inf")
    largest = float(np.max(np.abs(expected), initial=0))
    differences = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    return float(np.max(differences, initial=0)) / (largest or 1.0)
