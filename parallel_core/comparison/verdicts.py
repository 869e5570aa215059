"""The ratio of two cells' times, and the verdicts on it and on its factors."""

from collections.abc import Mapping
from dataclasses import dataclass

from parallel_core.comparison.cells import Cell, CellResults
from parallel_core.comparison.factors import factors_of
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import Interval, Verdict, compare_times

__all__ = ["COMPUTES", "SCHEDULES", "TimeRatio", "factors_in_words", "time_ratio"]

COMPUTES: Mapping[Verdict, str] = {"faster": "computes faster", "slower": "computes slower"}
SCHEDULES: Mapping[Verdict, str] = {"faster": "schedules better", "slower": "schedules worse"}


@dataclass(frozen=True)
class TimeRatio:
    """A cell's time over another's: below 1 it is the faster one. It is kernels × scheduling, where they are known."""

    cell: Cell
    against: Cell
    interval: Interval
    verdict: Verdict
    kernels: Interval | None = None
    """The ratio of the bare times: above 1 the cell computes slower."""
    kernels_verdict: Verdict | None = None
    scheduling: Interval | None = None
    """What is left of the ratio: above 1 the cell schedules worse."""
    scheduling_verdict: Verdict | None = None


def time_ratio(results: CellResults, other: CellResults) -> TimeRatio:
    """Compare two believed cells of an experiment by the time of its main case."""
    case = EXPERIMENTS[results.cell.experiment].case
    compared = compare_times(results.medians(case), other.medians(case))
    return TimeRatio(results.cell, other.cell, *compared, *factors_of(results, other, case))


def factors_in_words(kernels: Verdict | None, scheduling: Verdict | None) -> tuple[str, ...]:
    """Say of which factors a difference was shown: `computes faster`, `schedules worse`."""
    found = (words.get(verdict) for words, verdict in ((COMPUTES, kernels), (SCHEDULES, scheduling)) if verdict)
    return tuple(filter(None, found))
