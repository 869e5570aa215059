"""The report's tables of numbers: the times of all cases, parts of differences, and curves.

The first row of a table has its headings. A table without rows is empty.
"""

from collections.abc import Sequence

from parallel_core.compare.analysis import ExperimentAnalysis
from parallel_core.compare.time_differences import PARTS
from parallel_core.measurement.confidence_intervals import Interval, with_bounds, with_seconds
from parallel_core.measurement.sweep import Curves, write_point
from parallel_core.system.formatting import seconds

Table = tuple[tuple[str, ...], ...]


def case_times_table(experiment: ExperimentAnalysis) -> Table:
    """Return the time of every case: a row for each case, and a column for each cell."""
    believed = experiment.believed
    names: dict[str, None] = {}
    for analysed in believed:
        names |= dict.fromkeys(analysed.times)
    rows = []
    for name in names:
        times = [analysed.times.get(name) for analysed in believed]
        rows.append((name, *map(_with_bounds, times)))
    headings = ("case", *(analysed.results.title for analysed in believed))
    return (headings, *rows) if rows else ()


def differences_table(experiment: ExperimentAnalysis) -> Table:
    """Return the difference between two frameworks' times, or two engines', part by part.

    The last column has all parts together. Bounds of too few runs are left out: they are very wide.
    """
    rows = []
    for difference in experiment.differences:
        if not difference.parts:
            continue
        # Parts that are withheld would show the reasons.
        parts = {} if difference.withheld else difference.parts
        intervals = [*map(parts.get, PARTS), difference.seconds]
        write = _without_bounds if difference.verdict == "too few runs" else _with_bounds
        sides = f"{difference.title} against {difference.title_of_other}"
        rows.append((sides, *map(write, intervals)))
    headings = ("difference", *PARTS.values(), "together")
    return (headings, *rows) if rows else ()


def curves_table(experiment: ExperimentAnalysis, curves: Curves, swept: Sequence[float]) -> Table:
    """Return the values of an experiment's curves: a row for each point that was swept over."""
    columns = {curves.x_title: [write_point(value, curves.over) for value in swept]}
    for analysed in experiment.believed:
        for label, values in analysed.curves.items():
            heading = ": ".join(filter(None, (analysed.results.title, label)))
            columns[heading] = [with_bounds(value) for value in values]
    return (tuple(columns), *zip(*columns.values(), strict=False))


def _with_bounds(interval: Interval | None) -> str:
    """Write an interval of seconds, or nothing for none."""
    return "" if interval is None else with_seconds(interval)


def _without_bounds(interval: Interval | None) -> str:
    """Write the estimate of an interval of seconds, or nothing for none."""
    return "" if interval is None else seconds(interval.estimate)
