"""Why one cell takes longer than another: the ratio of their times, divided into kernels and scheduling.

    time ratio = kernels × scheduling

Each process times a case, and also its *bare* time: what the case's operations take by themselves, handed over as one
unit with nothing queued between them (`Case.bare_seconds`). The first factor is the ratio of the bare times, the second
one is what is left of the ratio: dispatch, waiting, exchange, interference. So their product is the ratio, exactly.
"""

from typing import NamedTuple

from parallel_core.comparison.cells import CellResults
from parallel_core.comparison.storage import TimelineOf
from parallel_core.errors import RequestError
from parallel_core.measurement.confidence_intervals import Interval, Verdict, factor_intervals, verdict_on
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.division import Division, divide

__all__ = ["Factors", "divide_by_trace", "factors_of"]


class Factors(NamedTuple):
    """Two factors of a ratio of times, each with a verdict of its own: `slower` computes slower, or schedules worse.

    All are None if a side has no bare times.
    """

    kernels: Interval | None = None
    kernels_verdict: Verdict | None = None
    scheduling: Interval | None = None
    scheduling_verdict: Verdict | None = None


def factors_of(results: CellResults, other: CellResults, case: str) -> Factors:
    """Divide the ratio of a case's times in two cells, `results` / `other`, into kernels and scheduling."""
    bare, other_bare = results.bare_medians(case), other.bare_medians(case)
    if not bare or not other_bare:
        return Factors()
    kernels, scheduling = factor_intervals(results.medians(case), bare, other.medians(case), other_bare)
    processes = min(len(bare), len(other_bare))
    return Factors(kernels, verdict_on(kernels, processes), scheduling, verdict_on(scheduling, processes))


def divide_by_trace(results: CellResults, case: str, timeline_of: TimelineOf) -> Division | str:
    """Divide a case's time beyond its bare time by the trace of the cell's last process, or say why not."""
    try:
        timeline = timeline_of(results.cell)
    except RequestError as error:
        return str(error)
    for spans in cases_of(timeline):
        if spans.name == case:
            return divide(spans, results.cases(case)[-1], results.valid[-1].backend["devices"])
    return "this case was not repeated under the profiler"
