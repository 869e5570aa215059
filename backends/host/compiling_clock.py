"""A clock that stands still while functions are compiled.

Only frameworks that compile functions when they are first launched report it.
"""

from time import perf_counter

_compiling_seconds = [0.0]


def tell_compiling(seconds: float) -> None:
    """Report that a first launch compiled for some seconds, on the thread that called it."""
    _compiling_seconds[0] += seconds


def clock_without_compiling() -> float:
    """Return the seconds of `perf_counter` that were not spent on compiling.

    They are for budgets, not for timings.
    """
    return perf_counter() - _compiling_seconds[0]
