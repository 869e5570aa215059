"""Checks of what was measured: times that cannot be true, differences within the noise, errors of numbers."""

from collections.abc import Iterable, Sequence

import numpy as np

from parallel_core.measurement.result import Case

__all__ = ["MIN_NOISE", "differ_beyond_noise", "largest_of", "relative_error", "why_impossible"]

MIN_NOISE = 0.05
"""The noise assumed at least, as a share of a time, however quiet the machine seemed."""


def why_impossible(together: Case, parts: Sequence[Case]) -> str | None:
    """Return why `together` cannot be true: it is faster than its slowest part by more than the noise; else None."""
    slowest = max(parts, key=lambda part: part.median)
    noise = _noise(slowest, together)
    if together.median < slowest.median * (1 - noise):
        return (
            f"{together.name!r} took {together.median:.3g} s, less than its part {slowest.name!r} alone "
            f"({slowest.median:.3g} s, noise {noise:.0%}): the machine was disturbed, measure again"
        )
    return None


def differ_beyond_noise(one: Case, other: Case) -> bool:
    """Return whether two cases' times differ by more than the noise."""
    fast, slow = sorted((one.median, other.median))
    return fast < slow * (1 - _noise(one, other))


def largest_of(errors: Iterable[float]) -> float:
    """Return the largest of some errors, and NaN if one of them is: max() might pass over it."""
    return float(np.max(list(errors)))


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference between two arrays as a share of the largest expected magnitude."""
    if actual.shape != expected.shape:
        return float("inf")
    scale = float(np.max(np.abs(expected), initial=0)) or 1.0
    difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    return float(np.max(difference, initial=0)) / scale


def _noise(one: Case, other: Case) -> float:
    return max(one.spread, other.spread, MIN_NOISE)
