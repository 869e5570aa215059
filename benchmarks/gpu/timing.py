"""Times of what was repeated in turn, and figures made of them round by round."""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

from parallel_core.measurement.confidence_intervals import Interval, median_interval
from parallel_core.measurement.result import Case, Timing

__all__ = ["by_round", "rate", "seconds_of", "timed"]


def timed(fn: Callable[[], object], wait: Callable[[], object]) -> Timing:
    """Run `fn` when nothing else runs; return seconds until control returned, and until `wait` did."""
    wait()
    start = perf_counter()
    fn()
    dispatched = perf_counter()
    wait()
    return dispatched - start, perf_counter() - start


def by_round(figure: Callable[..., float], *cases: Case) -> Interval:
    """Make a figure of the cases' seconds in each round; return the rounds' median with its interval."""
    return median_interval([figure(*seconds) for seconds in zip(*(case.seconds for case in cases), strict=True)])


def rate(case: Case, amount: float) -> Interval:
    """Return an amount of work over a case's seconds."""
    return by_round(lambda seconds: amount / seconds, case)


def seconds_of(cases: Sequence[Case]) -> Mapping[str, tuple[float, ...]]:
    """Return the times behind some cases, for the file."""
    return {case.name: case.seconds for case in cases}
