"""A clock that stands still while a framework compiles: for budgets, not for timings."""

from time import perf_counter

_compiling = [0.0]


def tell_compiling(seconds: float) -> None:
    """Report that a first launch compiled for so many seconds, on the thread that called it."""
    _compiling[0] += seconds


def clock_without_compiling() -> float:
    """Return the seconds of `perf_counter` that were not spent on compiling.

    Only frameworks that compile functions when they are first launched report it.
    """
    return perf_counter() - _compiling[0]
