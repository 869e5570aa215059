"""TODO."""

from collections.abc import Iterable, Sequence

import numpy as np

from parallel_core.measurement.result import Case

__all__ = ["MIN_NOISE", "differ_beyond_noise", "largest_of", "relative_error", "why_impossible"]


MIN_NOISE = 0.05
"""A share of a time below which a difference is not called impossible, however quiet the machine seemed."""


def why_impossible(together: Case, parts: Sequence[Case]) -> str | None:
    """Say why `together` cannot be true where it is faster than its slowest part by more than the noise; else None."""
    slowest = max(parts, key=lambda part: part.median)
    noise = max(slowest.spread, together.spread, MIN_NOISE)
    if together.median < slowest.median * (1 - noise):
        return (
            f"{together.name!r} took {together.median:.3g} s, less than its part {slowest.name!r} alone "
            f"({slowest.median:.3g} s, noise {noise:.0%}): the machine was disturbed, measure again"
        )
    return None


def differ_beyond_noise(one: Case, other: Case) -> bool:
    """Tell whether two cases' times differ by more than the noise."""
    fast, slow = sorted((one.median, other.median))
    return fast < slow * (1 - max(one.spread, other.spread, MIN_NOISE))


def largest_of(errors: Iterable[float]) -> float:
    """Return the largest of some errors, and NaN where one of them is: max() might pass it over."""
    return float(np.max(list(errors)))


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference between two arrays as a share of the largest expected magnitude."""
    if found.shape != expected.shape:
        return float("inf")
    scale = float(np.max(np.abs(expected), initial=0)) or 1.0
    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    return float(np.max(difference, initial=0)) / scale
