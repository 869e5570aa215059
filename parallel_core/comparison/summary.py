"""What a comparison says of each cell: its time, its figure, its ratio to the first cell, what speaks against it."""

from dataclasses import dataclass
from typing import Literal

from parallel_core.comparison.cells import Comparison, Measured
from parallel_core.comparison.stability import impossible_cases, unstable
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import Interval, Verdict, median_interval, ratio_interval, verdict

__all__ = ["Ratio", "Row", "State", "believed", "judge", "ratio", "rows"]

State = Literal["measured", "invalid", "failed", "not run"]


@dataclass(frozen=True)
class Ratio:
    """A cell's time over another's: below 1 it is the faster one."""

    against: str
    interval: Interval
    verdict: Verdict


@dataclass(frozen=True)
class Row:
    """What is to be told of one cell; times, figure and ratio are absent where it gave no valid result."""

    measured: Measured
    state: State
    reason: str
    time: Interval | None = None
    metric: Interval | None = None
    ratio: Ratio | None = None
    warnings: tuple[str, ...] = ()

    @property
    def processes(self) -> int:
        """The number of processes whose results are counted."""
        return len(self.measured.valid)


def ratio(measured: Measured, other: Measured) -> Ratio:
    """Compare two cells of an experiment that are both believed, by the time of its first case."""
    case = EXPERIMENTS[measured.cell.experiment].case
    mine, theirs = measured.medians(case), other.medians(case)
    interval = ratio_interval(mine, theirs)
    return Ratio(other.cell.side, interval, verdict(interval, min(len(mine), len(theirs))))


def believed(comparison: Comparison, experiment: str) -> tuple[Measured, ...]:
    """Return an experiment's cells that gave results which can be true."""
    return tuple(measured for measured in comparison.of(experiment) if judge(measured)[0] == "measured")


def rows(comparison: Comparison, experiment: str) -> tuple[Row, ...]:
    """Return a row for each of an experiment's cells; the first one believed is what others are held against."""
    described = EXPERIMENTS[experiment]
    found = []
    first: Measured | None = None
    for measured in comparison.of(experiment):
        state, reason = judge(measured)
        if state != "measured":
            found.append(Row(measured, state, reason))
            continue
        values = measured.metric(described.metric)
        found.append(
            Row(
                measured,
                state,
                reason,
                time=median_interval(measured.medians(described.case)),
                metric=median_interval(values) if values else None,
                ratio=None if first is None else ratio(measured, first),
                warnings=warnings(measured),
            )
        )
        first = first or measured
    return tuple(found)


def judge(measured: Measured) -> tuple[State, str]:
    """Say whether a cell can be believed, and what was wrong with it, or with some of its processes."""
    problems = [problem for result in measured.results for problem in result.problems]
    reasons = [failure.reason for failure in measured.failures]
    impossible = impossible_cases(measured)
    if impossible:
        return "invalid", impossible[0]
    if problems and 2 * len(measured.valid) <= len(measured.results):
        # What remains is chosen by its own outcome.
        return "invalid", f"{len(measured.valid)} of {len(measured.results)} runs are valid: {problems[0]}"
    if not measured.valid:
        return ("failed", reasons[0]) if reasons else ("not run", "the comparison was interrupted before")
    case = EXPERIMENTS[measured.cell.experiment].case
    if not measured.medians(case):
        return "failed", f"its results have no case {case!r}"
    wrong = [f"{len(some)} {what}: {some[0]}" for what, some in (("invalid", problems), ("failed", reasons)) if some]
    return "measured", "; ".join(wrong)


def warnings(measured: Measured) -> tuple[str, ...]:
    """Say which of a cell's cases are unstable, and why."""
    told = {
        name: unstable(
            [seconds for case in cases for seconds in case.seconds],
            [seconds * case.repeats for case in cases for seconds in case.seconds],
        )
        for name in measured.case_names
        if (cases := measured.cases(name))
    }
    return tuple(f"{name}: {', '.join(reasons)}" for name, reasons in told.items() if reasons)
