"""What a comparison answers, as one table: questions by cells, and under it who is faster by how
many seconds, and why.

Terminal and report show the same. Cells without a queue stand last: they are the control.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backends.registry.loading import title
from parallel_core.comparison.account import TimeDifference
from parallel_core.comparison.analysis import Analysis, CellAnalysis, ExperimentAnalysis
from parallel_core.experiments import Experiment
from parallel_core.experiments.runner.counts import Count, write
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.measurement.confidence_intervals import SMALLEST_DIFFERENCE
from parallel_core.system.formatting import listed, seconds

OVERLAPPED = {"queued", "parallel", "hidden", "alongside"}
TOOK_TURNS = {"not-queued", "serial", "hindered", "without-queue"}
"""Bands of an engine that overlaps everything, and of one that overlaps nothing."""
OPEN = ""
"""In place of a band, of a figure that touches several."""
UNCLEAR = {"partly", OPEN}
HEADLINE = "Engines with queues overlap work; engines without take turns."
"""Said if it holds for every cell whose figure has one of these bands."""
NO_FIGURE = "–"
IMPOSSIBLE = "impossible"
ROUGH = "~"
MARKS: Mapping[str, str] = {
    ROUGH: "~ is rough: too few processes for an interval.",
    "?": "? touches two bands.",
    "!": "! is more than is possible, within the noise.",
    IMPOSSIBLE: "Impossible is more than is possible, beyond the noise: such figures are withheld.",
}
"""What is said of marked figures, by their marks."""


@dataclass(frozen=True)
class Column:
    """A framework and engine."""

    side: str
    title: str
    """`PyTorch + our queues`."""
    is_control: bool


@dataclass(frozen=True)
class Screen:
    """The table and what stands around it."""

    headline: str
    """Empty if it does not hold."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    """A question, and the figure of each column: `1.98 of 2`."""
    differences: Mapping[str, Sequence[TimeDifference]]
    """Of each experiment, by the two that are compared: `PyTorch + our queues against MXNet`."""
    notes: tuple[str, ...]
    """What was disturbed, the systematic errors, and which data it was."""


def title_of(backend: Mapping[str, Any]) -> str:
    """Return what readers call a framework that schedules in a way: whose queues they are stands
    beside its name.

    `backend` is the object under that key of a result's JSON.
    """
    name = title(backend["name"])
    if backend["engine"] == "sync":
        return f"{name} (eager)" if "eager" in backend["scheduler"] else f"{name} without queue"
    return f"{name} + our queues" if "of parallel-core" in backend["scheduler"] else name


def screen_of(analysis: Analysis) -> Screen:
    """Put the answer of a comparison into one table."""
    columns = _columns(analysis)
    rows = (*_rows_of_counts(analysis, columns), *_rows_of_figures(analysis, columns))
    titles = {column.side: column.title for column in columns}
    differences: dict[str, list[TimeDifference]] = {}
    for experiment in analysis.experiments:
        for one in experiment.between_frameworks:
            if one.cell.engine == one.against.engine == "sync":
                continue
            compared = f"{titles[one.cell.side]} against {titles[one.against.side]}"
            differences.setdefault(compared, []).append(one)
    headline = HEADLINE if _overlaps_by_queues(analysis) else ""
    return Screen(headline, columns, rows, differences, _notes(analysis, rows))


def _rows_of_counts(
    analysis: Analysis, columns: Sequence[Column]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Iterate over the rows of what was counted; those that no cell has are left out."""
    for experiment in analysis.experiments:
        for count in experiment.experiment.counts:
            written = tuple(_counted(count, experiment, column.side) for column in columns)
            if count.title and set(written) != {NO_FIGURE}:
                yield count.title, written


def _rows_of_figures(
    analysis: Analysis, columns: Sequence[Column]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Iterate over the rows of what the clock says; older results lack some figures."""
    for experiment in analysis.experiments:
        for metric in experiment.experiment.metrics:
            if metric is not experiment.experiment.main and not metric.title:
                continue
            figures = tuple(_figure(metric, experiment, column.side) for column in columns)
            if set(figures) != {NO_FIGURE}:
                yield metric.heading, figures


def _counted(count: Count, experiment: ExperimentAnalysis, side: str) -> str:
    """Write a cell's count: `24 of 25`. It holds even if other work made the cell's times
    invalid.
    """
    for cell in experiment.cells:
        for result in cell.results.results:
            if cell.cell.side == side and count.name in result.counts:
                return write(result.counts[count.name])
    return NO_FIGURE


def _columns(analysis: Analysis) -> tuple[Column, ...]:
    """List the sides, those without a queue last; what one is called follows from its first
    result.
    """
    results = {
        cell.cell.side: one for cell in reversed(analysis.cells) for one in cell.results.results[:1]
    }
    sides = dict.fromkeys(cell.cell.side for cell in analysis.cells)
    columns = [
        Column(side, title_of(results[side].backend), results[side].backend["engine"] == "sync")
        if side in results
        else Column(side, side, side.endswith(" sync"))
        for side in sides
    ]
    return tuple(sorted(columns, key=lambda column: column.is_control))


def _figure(figure: Metric, experiment: ExperimentAnalysis, side: str) -> str:
    """Write a cell's figure with what is possible.

    It is marked if it has no interval, if it is inconclusive and if it is beyond what is possible
    (`MARKS`).
    """
    cell = next((one for one in experiment.cells if one.cell.side == side), None)
    if cell is None or figure.name not in cell.metrics:
        return NO_FIGURE if cell is None or cell.believed else cell.state
    interval, result = cell.metrics[figure.name], cell.results.valid[0]
    most = figure.at_most(result) * (1 + SMALLEST_DIFFERENCE)
    if interval.low > most:
        return IMPOSSIBLE
    written = figure.in_short(interval.estimate, result)
    if interval.estimate > most:
        return f"{written} !"
    if not math.isfinite(interval.high - interval.low):
        return ROUGH + written
    is_open = figure.bands and figure.place(interval, result) is None
    return f"{written} ?" if is_open else written


def _overlaps_by_queues(analysis: Analysis) -> bool:
    """Return whether all cells with queues overlapped, and all without did not, in whatever says
    one of the two.
    """
    with_queues: set[str] = set()
    without: set[str] = set()
    for experiment in analysis.experiments:
        for cell in experiment.cells:
            code = _code_of(cell, experiment.experiment)
            if code is not None and code in OVERLAPPED | TOOK_TURNS | UNCLEAR:
                is_async = cell.results.results[0].backend["engine"] == "async"
                (with_queues if is_async else without).add(code)
    return bool(with_queues and without) and with_queues <= OVERLAPPED and without <= TOOK_TURNS


def _code_of(cell: CellAnalysis, experiment: Experiment) -> str | None:
    """Return the code of what a cell's first count means, or else of its main figure; None if there
    is neither.
    """
    for count in experiment.counts[:1]:
        for result in cell.results.results:
            if count.name in result.counts:
                return count.band_of(result).code
    if not cell.believed or cell.metric is None or not math.isfinite(cell.metric.high):
        return None
    band = experiment.main.place(cell.metric, cell.results.valid[0])
    return band.code if band else OPEN


def _notes(analysis: Analysis, rows: Sequence[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    cells = analysis.cells
    disturbed = sum(not all(one.is_undisturbed for one in cell.results.valid) for cell in cells)
    errors: dict[str, float] = {}
    for experiment in analysis.experiments:
        for backend, error in experiment.systematic_errors.items():
            errors[backend] = max(error, errors.get(backend, 0.0))
    figures = [one for _, row in rows for one in row]
    notes = [said for mark, said in MARKS.items() if any(mark in one for one in figures)]
    if disturbed:
        notes.append(f"{disturbed} of {len(cells)} cells were disturbed by other work.")
    if errors:
        by_framework = ", ".join(
            f"{title(backend)} {seconds(error)}" for backend, error in errors.items()
        )
        notes.append(
            "Systematic error (the same operations on both engines differed by at most): "
            f"{by_framework}."
        )
    sides_by_reason: dict[str, list[str]] = {}
    for cell in cells:
        if not cell.believed:
            sides_by_reason.setdefault(f"{cell.state}: {cell.reason}", []).append(str(cell.cell))
    notes += [f"{listed(sides)}: {reason}." for reason, sides in sides_by_reason.items()]
    return (*notes, *(f"Data: {one}." for one in analysis.data))
