"""Why one cell takes longer than another: the ratio of their times, divided into kernels and scheduling.

    time ratio = kernels × scheduling

Each process times a case, and in the same rounds its *bare* time: what the case's operations take by themselves, handed
over as one unit with nothing queued between them (`Case.bare_seconds`, `ops.as_unit`). The first factor is the ratio of
the bare times' medians, the second one is what is left of the ratio. So their product is the ratio, exactly. Intervals
come from the same resamples of processes (`factor_intervals`): what a process adds to both of its times, because it has
the slower core say, is noise of the first factor and not of the second. `benchmarks/self_test.py` counts how often a
planted slow-down shows up in the right factor and in no other: more than 95 times in 100 from 5 processes on, with the
usual noise; with 3 it is missed one time in five.

Devices are bare one after the other, and the longest counts, for all of them could work at once:

- products, on one device or on all (`parallel`): the slowest device's products in one launch;
- increments: those of one launch, each of which needs the one before;
- `overlap` and its kind: the longer one of products and copies, which travel many at a time;
- a graph of tasks: the tasks of the busiest device, without the copies between devices;
- an allreduce: the additions of the device that adds most, without any transfer;
- a training: a device's gradients and updates for its share of a batch, without the exchange.

Everything else is scheduling: what a call from Python costs, queues, waiting and waking, transfers and exchanges that
nothing hides, devices that take turns, and interference, which is what operations lose because others run beside them.
A trace divides it further (`divide_by_trace`), as far as the profiler tells devices apart and does not slow them down.

Where the division misleads:

- Devices share the bandwidth of the memory, the last cache and the processor's clock. Alone, a device's unit has all of
  it: what kernels lose to each other counts as scheduling, though no engine could help.
- A unit writes to memory that it used before, and finds caches as the unit left them. A case that takes new memory for
  each result pays for that in scheduling, and one whose operations find their input in a cache because a copy has just
  read it may even seem to schedule better than is possible.
- With fewer cores than devices the devices take turns on them, however they are scheduled.
- MXNet makes one unit of plain operations only. A training step differentiates, so it is launched by one call of a
  function and is still queued operator by operator: its bare time contains MXNet's dispatch.
- PyTorch has no such unit: a function in one launch still calls each operation. Of an increment of two numbers, 2.5 μs,
  a fifth is Python and most of the rest PyTorch's own dispatch and allocation; MXNet's unit, at 0.3 μs, does without.
  So for tiny operations kernels are what the framework does for each, not arithmetic. On GPUs it launches one by one.
- An operation that one framework does in one kernel and the other in three counts as kernels.

A unit that is slower than its whole case contradicts the idea: the cell carries a warning (`validity.doubtful_units`).
"""

from typing import NamedTuple

from parallel_core.comparison.cells import CellResults
from parallel_core.comparison.plan import TRACED
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
    """Divide a case's time beyond its bare time by the cell's trace and its process's times, or say why not."""
    failure = next((one for one in results.failures if one.round == TRACED), None)
    if failure:
        return f"the profiled process failed: {failure.reason}"
    # Those of a cell's results are in the order of the rounds, and the first round is the profiled one.
    traced = results.results[0]
    if traced.problems:
        return "the result of the process that was profiled is invalid"
    try:
        timeline = timeline_of(results.cell)
    except RequestError as error:
        return str(error)
    timed = next(one for one in traced.cases if one.name == case)
    for spans in cases_of(timeline):
        if spans.name == case:
            return divide(spans, timed, traced.backend["devices"])
    return "this case was not repeated under the profiler"
