"""What the numbers of the `small-ops` experiment mean, in sentences that follow from them.

Everywhere there is a case for each size, and the sizes ascend.
"""

from collections.abc import Sequence
from math import exp, log

from humanize import metric

from parallel_core.measurement.confidence_intervals import decide, with_bounds
from parallel_core.measurement.result import Case
from parallel_core.measurement.verdicts import BETWEEN_PROCESSES, MIN_NOISE, times_as_long
from parallel_core.system.formatting import figure, listed

__all__ = ["about_launching", "about_threads", "crossing_size", "faster_at", "verdict"]

LAUNCHING = 0.8
"""From this share of the time on, until control returns, launching is what takes it."""


def verdict(sizes: Sequence[int], alone: Sequence[Case], spread: Sequence[Case], devices: int) -> str:
    """Say from which size on several devices are faster than one, how much at most, and at which sizes they are not."""
    if not spread:
        return "With one device there is nothing to spread operations over: use --devices 2."
    at, one, other = max(zip(sizes, alone, spread, strict=True), key=lambda timed: timed[1].median / timed[2].median)
    largest = with_bounds(times_as_long(one, other))
    crossing = crossing_size(sizes, alone, spread)
    if crossing is None:
        meaning = f"No size is shown from which on {devices} devices were faster than one"
    elif crossing <= sizes[0]:
        meaning = f"{devices} devices were faster than one from the smallest size ({sizes[0]}) on"
    else:
        meaning = f"{devices} devices were faster than one from a size of about {figure(crossing)} on"
    faster = faster_at(sizes, spread, alone)
    beyond = [size for size in sizes if crossing is not None and size > crossing and size not in faster]
    but = f" (at {_listed_sizes(beyond)} within the noise)" if beyond else ""
    slower = faster_at(sizes, alone, spread)
    loss = f" They were slower at {_listed_sizes(slower)}." if slower else ""
    return f"{meaning}{but}. Their largest speed-up was {largest}, at size {at}.{loss}"


def crossing_size(sizes: Sequence[int], alone: Sequence[Case], spread: Sequence[Case]) -> float | None:
    """Return the size from which several devices are faster at every size, at half of them or more beyond the noise.

    It is interpolated linearly between the logarithms of the last size at which they are not and the next one. None if
    there is none.
    """
    speedups = [one.median / other.median for one, other in zip(alone, spread, strict=True)]
    place = max((place + 1 for place, speedup in enumerate(speedups) if speedup <= 1), default=0)
    after = faster_at(sizes[place:], spread[place:], alone[place:])
    if not after or 2 * len(after) < len(sizes[place:]):
        return None
    if place == 0:
        return float(sizes[0])
    before, here = speedups[place - 1 : place + 1]
    share = (1 - before) / (here - before)
    return exp(log(sizes[place - 1]) + share * log(sizes[place] / sizes[place - 1]))


def about_launching(sizes: Sequence[int], alone: Sequence[Case], engine: str) -> list[str]:
    """Say at which sizes launching, and not computing, takes the time; on a synchronous engine both are one."""
    if engine == "sync":
        return ["Nothing is queued on this engine: Python computes for one device at a time, whatever the size."]
    limited = [
        (size, case) for size, case in zip(sizes, alone, strict=True) if case.dispatch_median > LAUNCHING * case.median
    ]
    if not limited:
        most = max(case.dispatch_median / case.median for case in alone)
        return [f"Launching alone was nowhere the limit: it took {most:.0%} of one device's time at most."]
    seconds = metric(limited[0][1].dispatch_median, "s")
    sentence = (
        f"At {_listed_sizes([size for size, _ in limited])} launching is the limit: one device was done almost as soon "
        f"as the last product was launched, which took {seconds} for each at size {limited[0][0]}."
    )
    return [sentence]


def about_threads(sizes: Sequence[int], spread: Sequence[Case], threaded: Sequence[Case]) -> list[str]:
    """Say at which sizes several devices beat one with the threads of all: where operators cannot fill the cores."""
    if not threaded:
        return []
    better, worse = (
        faster_at(sizes, spread, threaded, BETWEEN_PROCESSES),
        faster_at(sizes, threaded, spread, BETWEEN_PROCESSES),
    )
    sentences = []
    if better:
        largest, at = max(
            (other.median / one.median, size)
            for one, other, size in zip(spread, threaded, sizes, strict=True)
            if size in better
        )
        sentences.append(
            f"Parallel launches beat parallel operators at {_listed_sizes(better)}: there all devices were faster than "
            f"one with the threads of all, most at size {at} ({largest:.2f} ×)."
        )
    if worse:
        sentences.append(f"Parallel operators beat parallel launches at {_listed_sizes(worse)}.")
    return sentences or ["At no size a difference between parallel launches and parallel operators is shown."]


def faster_at(sizes: Sequence[int], mine: Sequence[Case], other: Sequence[Case], noise: float = MIN_NOISE) -> list[int]:
    """List the sizes at which the first cases are shown to be faster than the second."""
    return [
        size
        for size, one, two in zip(sizes, mine, other, strict=True)
        if decide(times_as_long(one, two, noise, among=len(sizes)), 1.0) == 0
    ]


def _listed_sizes(sizes: Sequence[int]) -> str:
    """Write sizes: `size 8`, `sizes 8, 16 and 32`."""
    return f"{'size' if len(sizes) == 1 else 'sizes'} {listed([str(size) for size in sizes])}"
