"""What the numbers of the `barriers` experiment mean, in sentences that follow from them."""

from dataclasses import dataclass

import numpy as np
from humanize import metric

from backends import Backend
from parallel_core.experiments.changes import LESS_NOISE, with_queue, without_queue
from parallel_core.measurement.confidence_intervals import Interval, decide, with_bounds
from parallel_core.measurement.result import Case
from parallel_core.measurement.verdicts import over_rounds

__all__ = ["Added", "about_deepest", "verdict", "what_would_change"]

SELECTIVE = 0.25
"""Up to this share a wait leaves alone what is queued behind; from its counterpart on it does not."""
DONE = 0.9
"""If control returns only after this share of the time, nothing was queued."""


@dataclass(frozen=True)
class Added:
    """Seconds that a product adds to waiting for one result and to waiting for everything: a pair a round."""

    to_wait: tuple[float, ...]
    to_waitall: tuple[float, ...]

    @property
    def fraction(self) -> Interval:
        """The median of what is added to waiting for one, as a share of the median of what is added for all."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return over_rounds(lambda one, everything: one / everything, self.to_wait, self.to_waitall)


def verdict(added: Added, place: str, dispatch_fraction: Interval) -> str:
    """Say whether waiting for one result was selective, with products launched behind it in some place.

    `dispatch_fraction` is the share of the time for everything after which the launches had returned.
    """
    if min(added.to_waitall) <= 0:
        rounds = sum(taken <= 0 for taken in added.to_waitall)
        return (
            f"Products {place} took no time that could be measured in {rounds} of {len(added.to_waitall)} rounds: no "
            "verdict; choose a larger --size."
        )
    found = added.fraction
    share = (
        f"a product launched behind it {place} added {with_bounds(found)} of what it added to waiting for everything"
    )
    if decide(dispatch_fraction, DONE) == 1:
        return f"Nothing was queued: the launches returned when all was done, and {share}."
    match decide(found, SELECTIVE, 1 - SELECTIVE):
        case 0:
            return f"Waiting for one result was selective: {share}."
        case 1:
            return f"Waiting for one result was selective in part: {share}."
        case 2:
            return f"Waiting for one result was waiting for all that was queued: {share}."
    return f"No clear verdict: {share}."


def what_would_change(
    backend: Backend, same: Added, other: Added | None, dispatch_fraction: Interval, size: int
) -> str:
    """Say what would change how selective the wait was with products behind it on the same device."""
    larger = f"Larger products (--size {2 * size}), beside which launching them and the noise count for less."
    if min(same.to_waitall) <= 0:
        return larger
    if backend.engine == "sync":
        return with_queue(backend, "waiting for one result should not wait for what is queued behind it")
    if decide(dispatch_fraction, DONE) == 1:
        return larger
    match decide(same.fraction, SELECTIVE, 1 - SELECTIVE):
        case 0:
            return without_queue("both waits should end together, when all products are done")
        case None:
            return LESS_NOISE
    if other is not None and min(other.to_waitall) > 0 and decide(other.fraction, SELECTIVE) == 0:
        return "Work behind it on another device, for which waiting for one result did not wait here."
    return larger


def about_deepest(one: Case, everything: Case, deepest: int, place: str) -> str:
    """Say how long both waits took with the most products launched behind the awaited one."""
    return (
        f"With {deepest} behind it {place}, one result was there after {metric(one.median, 's')} and everything after "
        f"{metric(everything.median, 's')}."
    )
