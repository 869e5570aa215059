"""Checks of what was measured: times that cannot be true, differences within the noise, errors of numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from parallel_core.measurement.confidence_intervals import SMALLEST_DIFFERENCE
from parallel_core.measurement.result import Case
from parallel_core.system.formatting import figure

__all__ = [
    "MIN_NOISE",
    "Limit",
    "about_excess",
    "differ_beyond_noise",
    "largest_of",
    "noise_of",
    "relative_error",
    "why_impossible",
]

MIN_NOISE = 0.05
"""The noise assumed at least, as a share of a time, however quiet the machine seemed."""


@dataclass(frozen=True)
class Limit:
    """The most that a metric could be, if its parts took as long alone as they do within the whole."""

    most: float
    slower: float
    """By which share the parts alone took longer than the whole leaves them time; negative below the limit."""
    noise: float
    """A share of a time, as `noise_of` returns it."""

    @property
    def is_believed(self) -> bool:
        """Whether what is beyond the limit is within the noise."""
        # As for `why_impossible`: the whole is faster than it can be by more than the noise.
        return 1 / (1 + self.slower) >= 1 - self.noise


def about_excess(metric: str, value: float, limit: Limit) -> str | None:
    """Say by how much a metric exceeds its limit, and why that can be; None if it does not."""
    if limit.slower <= SMALLEST_DIFFERENCE:
        return None
    excess = (
        f"{metric} is {figure(value)} of at most {figure(limit.most)}: the parts alone were slower than within the "
        f"whole, by {limit.slower:.0%}"
    )
    if limit.is_believed:
        return f"{excess}, which is within the noise ({limit.noise:.0%})."
    return f"{excess}, which is beyond the noise ({limit.noise:.0%}): the machine was disturbed, measure again"


def why_impossible(together: Case, parts: Sequence[Case]) -> str | None:
    """Return why `together` cannot be true: it is faster than its slowest part by more than the noise; else None."""
    slowest = max(parts, key=lambda part: part.median)
    noise = noise_of(slowest, together)
    if together.median < slowest.median * (1 - noise):
        return (
            f"{together.name!r} took {together.median:.3g} s, less than its part {slowest.name!r} alone "
            f"({slowest.median:.3g} s, noise {noise:.0%}): the machine was disturbed, measure again"
        )
    return None


def differ_beyond_noise(one: Case, other: Case) -> bool:
    """Return whether two cases' times differ by more than the noise."""
    fast, slow = sorted((one.median, other.median))
    return fast < slow * (1 - noise_of(one, other))


def noise_of(*cases: Case) -> float:
    """Return the largest spread of cases, as a share of a time, and `MIN_NOISE` at least."""
    return max(MIN_NOISE, *(case.spread for case in cases))


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
