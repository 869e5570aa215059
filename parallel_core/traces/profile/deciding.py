"""Which part of a step is the largest, and what would decide it where the steps leave that open."""

from collections.abc import Callable, Sequence
from dataclasses import astuple
from statistics import median

import numpy as np

from parallel_core.measurement.confidence_intervals import decide
from parallel_core.traces.account import Parts, over_steps, share_of

INCONCLUSIVE = "inconclusive"
"""The code of an answer whose interval touches two."""
MANY_STEPS = 30
"""Of so many steps that are alike the interval is as short as more steps can make it."""
ON_A_QUIET_MACHINE = "run it on a quiet machine"
MORE_STEPS = "record more --steps"
BOTH = "record more --steps, on a quiet machine"
NEITHER = "more --steps would not decide it"


def largest_part(names: Sequence[str], steps: Sequence[Parts], taken: float) -> str | None:
    """Return which of some parts is larger than each other one beyond the noise, if any is.

    `taken` is the share of the cores' time that other processes took.
    """
    largest = max(names, key=lambda part: over_steps(share_of(part), steps).estimate)
    others = [part for part in names if part != largest]
    apart = over_steps(
        lambda of: (of[largest] - np.max([of[part] for part in others], axis=0)) / of["seconds"],
        steps,
        taken,
        is_difference=True,
    )
    return largest if decide(apart, 0.0) == 1 else None


def what_would_decide(
    is_decided: Callable[[Sequence[Parts], float], bool], steps: Sequence[Parts], taken: float
) -> str:
    """Return what to do, as a clause, where some steps leave open what `is_decided` asks.

    More steps make their spread matter less, and a quiet machine what other processes took.
    """
    typical = Parts(*map(median, zip(*map(astuple, steps), strict=True)))
    alike = [typical] * MANY_STEPS
    if is_decided(steps, 0.0):
        return ON_A_QUIET_MACHINE
    if is_decided(alike, taken):
        return MORE_STEPS
    if is_decided(alike, 0.0):
        return BOTH
    return NEITHER
