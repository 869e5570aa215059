"""When a cell's times are unstable, in pyperf's terms, and when they cannot be true."""

from collections.abc import Sequence
from statistics import mean, stdev

from humanize import metric

from parallel_core.comparison.cells import Measured
from parallel_core.measurement.checks import MIN_NOISE
from parallel_core.measurement.confidence_intervals import ratio_interval

__all__ = ["impossible_cases", "unstable"]

# The limits of `python -m pyperf check`.
LARGEST_DEVIATION = 0.10
FARTHEST_OUTLIER = 0.50
SHORTEST_SECONDS = 1e-3


def unstable(values: Sequence[float], timings: Sequence[float] | None = None) -> tuple[str, ...]:
    """Say what `pyperf check` would say against some times in seconds, all of a case's from all processes.

    `timings` are what was really timed, where each value is the mean of repeats that were timed together.
    """
    average = mean(values)
    told = []
    if len(values) >= 2 and stdev(values) >= LARGEST_DEVIATION * average:
        told.append(f"the standard deviation is {stdev(values) / average:.0%} of the mean")
    for name, value in (("minimum", min(values)), ("maximum", max(values))):
        if abs(value - average) >= FARTHEST_OUTLIER * average:
            told.append(f"the {name} is {abs(value / average - 1):.0%} off the mean")
    shortest = min(timings or values)
    if shortest < SHORTEST_SECONDS:
        told.append(f"the shortest time is only {metric(shortest, 's')}")
    return tuple(told)


def impossible_cases(measured: Measured) -> tuple[str, ...]:
    """Say which of a cell's cases were faster, over all processes, than the slowest part of what they contain."""
    told = []
    for case in measured.valid[0].cases if measured.valid else ():
        parts = [medians for name in case.parts if (medians := measured.medians(name))]
        if parts:
            slowest = max(parts, key=lambda medians: sorted(medians)[len(medians) // 2])
            ratio = ratio_interval(measured.medians(case.name), slowest)
            if ratio.high < 1 and ratio.estimate < 1 - MIN_NOISE:
                told.append(f"{case.name!r} took {ratio.estimate:.0%} of the time of its slowest part")
    return tuple(told)
