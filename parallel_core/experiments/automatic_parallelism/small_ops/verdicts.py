"""What the numbers of the `small-ops` experiment mean, in sentences that follow from them.

Everywhere there is a case for each size, and the sizes ascend.
"""

from collections.abc import Sequence
from math import exp, log

from humanize import metric

from backends import Backend
from parallel_core.experiments.changes import more_cores, with_queue
from parallel_core.measurement.confidence_intervals import decide, with_bounds
from parallel_core.measurement.result import Case
from parallel_core.measurement.verdicts import BETWEEN_PROCESSES, MIN_NOISE, dispatch_fraction, times_as_long
from parallel_core.system.formatting import figure, listed

__all__ = [
    "about_launching",
    "about_losses",
    "about_threads",
    "crossing_size",
    "faster_at",
    "verdict",
    "what_would_change",
]

LAUNCHING = 0.8
"""From this share of the time on, until control returns, launching is what takes it."""


def verdict(sizes: Sequence[int], alone: Sequence[Case], spread: Sequence[Case], devices: int) -> str:
    """Say from which size on several devices are faster than one, and how much at most."""
    if not spread:
        return "With 1 device there is nothing to spread operations over."
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
    return f"{meaning}{but}; their largest speed-up was {largest}, at size {at}."


def about_losses(sizes: Sequence[int], alone: Sequence[Case], spread: Sequence[Case]) -> tuple[str, ...]:
    """Say at which sizes several devices are slower than one, and how much at most; nothing if at none."""
    slower = faster_at(sizes, alone, spread) if spread else []
    if not slower:
        return ()
    largest, at = max(
        (other.median / one.median, size)
        for one, other, size in zip(alone, spread, sizes, strict=True)
        if size in slower
    )
    return (f"They were slower at {_most_at(slower, at)} ({largest:.2f} × as long).",)


def what_would_change(backend: Backend, sizes: Sequence[int], alone: Sequence[Case], spread: Sequence[Case]) -> str:
    """Say what would let several devices be faster than one at smaller sizes, or at any."""
    if not spread:
        return "A second device (--devices 2)."
    if backend.engine == "sync":
        return with_queue(backend, "devices should work at the same time")
    if launched := _limited(sizes, alone):
        return (
            f"Cheaper launches, or several operations in each: at {_listed_sizes([size for size, _ in launched])} one "
            "device computes about as fast as Python launches."
        )
    crossing = crossing_size(sizes, alone, spread)
    if crossing is not None and crossing <= sizes[0]:
        return f"Smaller operations than {sizes[0]} (--sizes 2,4,8), for which launching takes the time."
    return more_cores(backend) or f"Larger operations (--sizes {sizes[-1]},{2 * sizes[-1]})."


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


def about_launching(sizes: Sequence[int], alone: Sequence[Case], engine: str) -> tuple[str, ...]:
    """Say at which sizes launching, and not computing, takes the time; on a synchronous engine both are one."""
    if engine == "sync":
        return ("Nothing is queued on this engine: Python computes for 1 device at a time, whatever the size.",)
    limited = _limited(sizes, alone)
    if not limited:
        most = max(case.dispatch_median / case.median for case in alone)
        is_open = any(decide(dispatch_fraction(case), LAUNCHING) is None for case in alone)
        opening = (
            "At no size launching is shown to be the limit" if is_open else "Launching alone was nowhere the limit"
        )
        return (f"{opening}: it took {most:.0%} of one device's time at most.",)
    seconds = metric(limited[0][1].dispatch_median, "s")
    sentence = (
        f"At {_listed_sizes([size for size, _ in limited])} launching is the limit: one device was done almost as soon "
        f"as the last product was launched, which took {seconds} for each at size {limited[0][0]}."
    )
    return (sentence,)


def _limited(sizes: Sequence[int], alone: Sequence[Case]) -> list[tuple[int, Case]]:
    """List the sizes at which launching takes one device's time, with their cases."""
    return [
        (size, case) for size, case in zip(sizes, alone, strict=True) if decide(dispatch_fraction(case), LAUNCHING) == 1
    ]


def about_threads(sizes: Sequence[int], spread: Sequence[Case], threaded: Sequence[Case]) -> tuple[str, ...]:
    """Say at which sizes several devices beat one with the threads of all: where operators cannot fill the cores."""
    if not threaded:
        return ()
    better, worse = (
        faster_at(sizes, spread, threaded, BETWEEN_PROCESSES),
        faster_at(sizes, threaded, spread, BETWEEN_PROCESSES),
    )
    clauses = []
    if better:
        largest, at = max(
            (other.median / one.median, size)
            for one, other, size in zip(spread, threaded, sizes, strict=True)
            if size in better
        )
        clauses.append(
            f"parallel launches beat parallel operators, which are one device with the threads of all, at "
            f"{_most_at(better, at)} ({largest:.2f} ×)"
        )
    if worse:
        clauses.append(f"parallel operators beat parallel launches at {_listed_sizes(worse)}")
    told = "; ".join(clauses) or (
        f"at none of {len(sizes)} sizes a difference between parallel launches and parallel operators is shown"
    )
    return (f"{told[0].upper()}{told[1:]}.",)


def faster_at(sizes: Sequence[int], mine: Sequence[Case], other: Sequence[Case], noise: float = MIN_NOISE) -> list[int]:
    """List the sizes at which the first cases are shown to be faster than the second."""
    return [
        size
        for size, one, two in zip(sizes, mine, other, strict=True)
        if decide(times_as_long(one, two, noise, among=len(sizes)), 1.0) == 0
    ]


def _most_at(sizes: Sequence[int], most: int) -> str:
    """List sizes, and that at which something is largest if there are several."""
    return _listed_sizes(sizes) + (f", most at size {most}" if len(sizes) > 1 else "")


def _listed_sizes(sizes: Sequence[int]) -> str:
    """Write sizes: `size 8`, `sizes 8, 16 and 32`."""
    return f"{'size' if len(sizes) == 1 else 'sizes'} {listed([str(size) for size in sizes])}"
