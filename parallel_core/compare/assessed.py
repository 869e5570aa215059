"""Whether a cell's times can be believed, and when they are unstable in pyperf's terms."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median_high, stdev
from typing import Literal

from parallel_core.compare.results import Cell, CellResults
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.declaration import shown_case
from parallel_core.measurement.confidence_intervals import median_interval
from parallel_core.measurement.over_rounds import MIN_NOISE
from parallel_core.system.formatting import percent, seconds

CellState = Literal["measured", "invalid", "failed", "not run"]

# The limits of `python -m pyperf check`.
MAX_DEVIATION = 0.10
MAX_OUTLIER_DISTANCE = 0.50
MIN_SECONDS = 1e-3


@dataclass(frozen=True)
class AssessedCell:
    """A cell's results, and whether they can be believed. It is judged once, by `assess`."""

    results: CellResults
    state: CellState
    reason: str
    """Why it is not believed, or what was wrong with some of its processes."""

    @property
    def cell(self) -> Cell:
        """The experiment, backend and engine."""
        return self.results.cell

    @property
    def believed(self) -> bool:
        """Whether its results can be true."""
        return self.state == "measured"


def assess(results: CellResults) -> AssessedCell:
    """Judge whether a cell's times can be believed."""
    problems = [problem for result in results.results for problem in result.problems]
    failures = [failure.reason for failure in results.failures]
    valid, all_runs = len(results.valid), len(results.results)
    for impossible in impossible_cases(results):
        return AssessedCell(results, "invalid", impossible)
    if problems and 2 * valid <= all_runs:
        # The few valid results are selected by their own outcome.
        reason = f"{valid} of {all_runs} runs are valid: {problems[0]}"
        return AssessedCell(results, "invalid", reason)
    if not valid and failures:
        return AssessedCell(results, "failed", failures[0])
    if not valid:
        return AssessedCell(results, "not run", "the comparison was interrupted before")
    if not main_case(results):
        return AssessedCell(results, "failed", "its results have no case")
    remarks = []
    if problems:
        remarks.append(f"{len(problems)} invalid: {problems[0]}")
    if failures:
        remarks.append(f"{len(failures)} failed: {failures[0]}")
    return AssessedCell(results, "measured", "; ".join(remarks))


def main_case(*cells: CellResults) -> str:
    """Return the case that cells are compared by; empty if there is none.

    It is the usual one if any of them has it, else one that all have.
    """
    usual = EXPERIMENTS[cells[0].cell.experiment].case
    if any(results.medians(usual) for results in cells):
        return usual
    of_first = cells[0].case_names
    common = [name for name in of_first if all(results.medians(name) for results in cells)]
    return shown_case(common, usual)


def impossible_cases(results: CellResults) -> Iterator[str]:
    """Name a cell's cases that were faster, over all processes, than their slowest part."""
    if not results.valid:
        return
    for case in results.valid[0].cases:
        times_of_parts = [times for times in map(results.medians, case.parts) if times]
        if not times_of_parts:
            continue
        times_of_slowest = max(times_of_parts, key=median_high)
        times = results.medians(case.name)
        shares = [time / part for time, part in zip(times, times_of_slowest, strict=True)]
        share = median_interval(shares)
        if share.high < 1 and share.estimate < 1 - MIN_NOISE:
            yield f"{case.name!r} took {percent(share.estimate)} of the time of its slowest part"


def unstable_cases(results: CellResults) -> Iterator[str]:
    """Name a cell's unstable cases, each with its reasons."""
    for name in results.case_names:
        times: list[float] = []
        timings: list[float] = []
        for case in results.cases(name):
            times += case.seconds
            timings += [case.repeats * seconds for seconds in case.seconds]
        reasons = ", ".join(instabilities(times, timings))
        if reasons:
            yield f"{name}: {reasons}"


def doubt_of_unit(results: CellResults, case: str) -> str:
    """Say that a case was faster than its operations by themselves, whose times are too long then;
    empty if it was not.
    """
    bare = results.medians(case, "bare_seconds")
    if not bare:
        return ""
    times = results.medians(case)
    share = median_interval([alone / time for alone, time in zip(bare, times, strict=True)])
    if share.low <= 1 + MIN_NOISE:
        return ""
    more = f"as one unit its operations took {share.estimate:.2f} × its time"
    return f"{case}: {more}, so no reasons are given"


def instabilities(values: Sequence[float], timings: Sequence[float]) -> Iterator[str]:
    """Iterate over the warnings of `pyperf check` for some times in seconds, all of a case's from
    all processes.

    `timings` are the measured times, of which each may be of several repeats that were timed
    together.
    """
    average = mean(values)
    if len(values) >= 2 and stdev(values) >= MAX_DEVIATION * average:
        yield f"the standard deviation is {percent(stdev(values) / average)} of the mean"
    for name, value in (("minimum", min(values)), ("maximum", max(values))):
        if abs(value - average) >= MAX_OUTLIER_DISTANCE * average:
            yield f"the {name} is {percent(abs(value / average - 1))} off the mean"
    shortest = min(timings)
    if shortest < MIN_SECONDS:
        yield f"the shortest time is only {seconds(shortest)}"
