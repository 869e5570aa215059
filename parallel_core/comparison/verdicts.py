"""The ratio of two cells' times, and the sentences that follow from such ratios."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from parallel_core.comparison.cells import Cell, CellResults
from parallel_core.comparison.factors import factors_of
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import Interval, Verdict, compare_times, with_bounds
from parallel_core.system.formatting import listed

__all__ = ["TimeRatio", "overall_answer", "ratio_sentence", "time_ratio"]


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


def ratio_sentence(ratio: TimeRatio) -> str:
    """Write a ratio as a sentence: `For “both” torch async took 1.21 (1.15–1.28) times as long as …: slower.`"""
    if ratio.verdict == "too few runs":
        times, remark = f"{ratio.interval.estimate:.2f}", ", which is from too few runs to tell"
    else:
        times, remark = with_bounds(ratio.interval), f": {ratio.verdict}"
    case = EXPERIMENTS[ratio.cell.experiment].case
    return f"For “{case}” {ratio.cell.side} took {times} times as long as {ratio.against.side}{remark}."


def overall_answer(ratios: Sequence[TimeRatio], believed: Iterable[Cell]) -> str:
    """Say in which experiments each framework was faster or slower than the first one, on the first engine.

    `ratios` are those between frameworks, `believed` the cells of all experiments that can be believed.
    """
    if not ratios:
        return _nothing_to_compare(believed)
    engine = ratios[0].cell.engine
    by_pair: dict[tuple[str, str], list[TimeRatio]] = {}
    for ratio in ratios:
        if ratio.cell.engine == engine:
            by_pair.setdefault((ratio.cell.backend, ratio.against.backend), []).append(ratio)
    return " ".join(
        f"Against {first} on the {engine} engine, {_clauses(name, pair)}." for (name, first), pair in by_pair.items()
    )


def _clauses(backend: str, ratios: Iterable[TimeRatio]) -> str:
    by_verdict: dict[Verdict, list[str]] = {}
    for ratio in ratios:
        has_direction = ratio.verdict in ("faster", "slower")
        times = f" ({ratio.interval.estimate:.2f} × the time)" if has_direction else ""
        by_verdict.setdefault(ratio.verdict, []).append(f"{ratio.cell.experiment}{times}")
    directions = [
        f"{verdict} in {listed(by_verdict[verdict])}" for verdict in ("faster", "slower") if verdict in by_verdict
    ]
    clauses = [f"{backend} was {' and '.join(directions)}"] if directions else []
    if same := by_verdict.get("no difference shown"):
        clauses.append(f"no difference was shown in {listed(same)}")
    if unknown := by_verdict.get("too few runs"):
        clauses.append(f"there are too few runs to tell in {listed(unknown)}")
    return "; ".join(clauses)


def _nothing_to_compare(believed: Iterable[Cell]) -> str:
    names = list(dict.fromkeys(cell.backend for cell in believed))
    if not names:
        return "Nothing could be measured; every cell says why."
    if len(names) == 1:
        return f"Only {names[0]} was measured, so there is no other framework to compare it with."
    return "No two frameworks were measured in the same experiment on the same engine."
