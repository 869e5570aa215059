"""What the numbers of the `barriers` experiment mean, in sentences that follow from them."""

from dataclasses import dataclass
from statistics import median

from humanize import metric

from parallel_core.measurement.checks import MIN_NOISE
from parallel_core.measurement.result import Case
from parallel_core.system.formatting import percent

__all__ = ["Added", "about_deepest", "verdict"]


@dataclass(frozen=True)
class Added:
    """Seconds that a product adds to waiting for one result and to waiting for everything: a pair a round."""

    to_wait: tuple[float, ...]
    to_waitall: tuple[float, ...]

    @property
    def fraction(self) -> float:
        """The median of what is added to waiting for one, as a share of the median of what is added for all."""
        return median(self.to_wait) / median(self.to_waitall)

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest of the rounds' shares, with the noise that a quiet machine has too."""
        shares = [one / everything for one, everything in zip(self.to_wait, self.to_waitall, strict=True)]
        return min(shares) - MIN_NOISE, max(shares) + MIN_NOISE


def verdict(added: Added, place: str, dispatch_fraction: float) -> str:
    """Say whether waiting for one result was selective, with products launched behind it in some place.

    `dispatch_fraction` is the share of the time for everything after which the launches had returned.
    """
    if min(added.to_waitall) <= 0:
        return f"Products {place} took no time that could be measured: no verdict; choose a larger --size."
    low, high = added.bounds
    share = (
        f"a product launched behind it {place} added {percent(added.fraction)} "
        "of what it added to waiting for everything"
    )
    if dispatch_fraction > 0.95:
        return (
            "Nothing was queued: the launches returned when all was done, so no wait had anything left to "
            f"wait for. To waiting for one result, {share}."
        )
    if high < 0.25:
        return f"Waiting for one result was selective: {share}."
    if low > 0.75:
        return f"Waiting for one result was waiting for all that was queued: {share}."
    return f"No clear verdict: {share}, and from {percent(low)} to {percent(high)} in single rounds, with the noise."


def about_deepest(one: Case, everything: Case, deepest: int, place: str) -> str:
    """Say how long both waits took with the most products launched behind the awaited one."""
    return (
        f"With {deepest} behind it {place}, one result was there after {metric(one.median, 's')} and everything after "
        f"{metric(everything.median, 's')}."
    )
