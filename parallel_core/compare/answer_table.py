"""What a comparison answers, as one table: questions by cells, and under it who is faster by how
many seconds, and why.

Terminal and report show the same. Cells without a queue stand last: they are the control.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from backends.registry.variants import title_of_compared
from parallel_core.compare.analysis import Analysis, CellAnalysis
from parallel_core.compare.time_differences import TimeDifference
from parallel_core.experiments import Experiment
from parallel_core.experiments.runner.counts import Count, write
from parallel_core.experiments.runner.metrics import Metric, Overlap
from parallel_core.measurement.confidence_intervals import SMALLEST_DIFFERENCE
from parallel_core.system.formatting import listed, seconds

HEADLINE = "Engines with queues overlap work; engines without take turns."
"""Said if it holds for every cell whose figure says how much of the work overlapped."""
NO_FIGURE = "–"
IMPOSSIBLE = "impossible"
ROUGH = "~"
MARKS: Mapping[str, str] = {
    ROUGH: "~ is rough: fewer than three processes, so no interval.",
    "?": "? touches two bands.",
    "!": "! is more than is possible, within the noise.",
    IMPOSSIBLE: "Impossible is more than is possible, beyond the noise: such figures are withheld.",
}
"""What is said of marked figures, by their marks."""


Row = tuple[str, tuple[str, ...]]
"""A question, and the figure of each column: `1.98 of 2`."""


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
    rows: tuple[Row, ...]
    differences: Mapping[str, Sequence[TimeDifference]] = field(default_factory=dict)
    """Of each experiment, by the two that are compared: `PyTorch + our queues against MXNet`."""
    notes: tuple[str, ...] = ()
    """What was disturbed, and which data it was."""


def screen_of(analysis: Analysis) -> Screen:
    """Put the answer of a comparison into one table."""
    of_counts = screen_of_counts(analysis)
    rows = (*of_counts.rows, *_rows_of_figures(analysis, of_counts.columns))
    differences: dict[str, list[TimeDifference]] = {}
    for experiment in analysis.experiments:
        for difference in experiment.between_frameworks:
            cell, against = difference.cell, difference.against
            are_controls = cell.engine == against.engine == "sync"
            if not are_controls:
                compared = f"{difference.title} against {difference.title_of_other}"
                differences.setdefault(compared, []).append(difference)
    return replace(of_counts, rows=rows, differences=differences, notes=_notes(analysis, rows))


def screen_of_counts(analysis: Analysis) -> Screen:
    """Put what was counted into one table, while times are still measured."""
    columns = _columns(analysis)
    rows = []
    for experiment in analysis.experiments:
        for count in experiment.experiment.counts:
            written = tuple(_counted(count, experiment.on(column.side)) for column in columns)
            if count.title and set(written) != {NO_FIGURE}:
                rows.append((count.title, written))
    headline = HEADLINE if _overlaps_by_queues(analysis) else ""
    return Screen(headline, columns, tuple(rows))


def _rows_of_figures(analysis: Analysis, columns: Sequence[Column]) -> Iterator[Row]:
    """Iterate over the rows of what the clock says; older results lack some figures."""
    for experiment in analysis.experiments:
        for metric in experiment.experiment.metrics:
            if metric is not experiment.experiment.main and not metric.title:
                continue
            figures = tuple(_figure(metric, experiment.on(column.side)) for column in columns)
            if set(figures) != {NO_FIGURE}:
                yield metric.heading, figures


def _counted(count: Count, cell: CellAnalysis | None) -> str:
    """Write a cell's count: `24 of 25`."""
    counted = None if cell is None else cell.results.counted(count.name)
    return NO_FIGURE if counted is None else write(counted)


def _columns(analysis: Analysis) -> tuple[Column, ...]:
    """Return a column for each side, those without queues last."""
    column_of: dict[str, Column] = {}
    for cell in analysis.cells:
        side, results = cell.cell.side, cell.results
        if side in column_of and not results.results:
            continue
        column_of[side] = Column(side, results.title, is_control=results.engine == "sync")
    return tuple(sorted(column_of.values(), key=lambda column: column.is_control))


def _figure(figure: Metric, cell: CellAnalysis | None) -> str:
    """Write a cell's figure.

    It is marked if it has no interval, is inconclusive or exceeds what is possible (`MARKS`).
    """
    if cell is None:
        return NO_FIGURE
    if figure.name not in cell.metrics:
        return NO_FIGURE if cell.believed else cell.state
    interval = cell.metrics[figure.name]
    result = cell.results.valid[0]
    most = figure.at_most(result) * (1 + SMALLEST_DIFFERENCE)
    if interval.low > most:
        return IMPOSSIBLE
    written = figure.in_short(interval.estimate, result)
    if interval.estimate > most:
        return f"{written} !"
    if not math.isfinite(interval.high - interval.low):
        # A sign before a sign reads as a formula.
        return f"{written} {ROUGH}" if interval.estimate < 0 else ROUGH + written
    is_open = figure.bands and figure.place(interval, result) is None
    return f"{written} ?" if is_open else written


def _overlaps_by_queues(analysis: Analysis) -> bool:
    """Return whether all cells with queues overlapped, and all without took turns.

    Figures that say nothing of it do not count, and there must be cells of both kinds.
    """
    overlaps_by_engine: dict[str, set[Overlap]] = {"async": set(), "sync": set()}
    for experiment in analysis.experiments:
        for cell in experiment.cells:
            overlap = _overlap_of(cell, experiment.experiment)
            if overlap is not None:
                overlaps_by_engine[cell.results.engine].add(overlap)
    return overlaps_by_engine == {"async": {"all"}, "sync": {"none"}}


def _overlap_of(cell: CellAnalysis, experiment: Experiment) -> Overlap | None:
    """Return how much of the work overlapped, by a cell's first count or else its main figure.

    None if neither says it.
    """
    for count in experiment.counts[:1]:
        counted = cell.results.counted(count.name)
        if counted is not None:
            return count.band(counted.count, counted.of).overlap
    if not cell.believed or cell.metric is None or not math.isfinite(cell.metric.high):
        return None
    band = experiment.main.place(cell.metric, cell.results.valid[0])
    if band is not None:
        return band.overlap
    # It touches several bands.
    says_overlap = any(band.overlap is not None for band in experiment.main.bands)
    return "part" if says_overlap else None


def _notes(analysis: Analysis, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the notes under a table with these rows."""
    figures = [figure for _, figures_of_row in rows for figure in figures_of_row]
    notes = [note for mark, note in MARKS.items() if any(mark in figure for figure in figures)]
    cells = analysis.cells
    disturbed = 0
    for cell in cells:
        if not all(result.is_undisturbed for result in cell.results.valid):
            disturbed += 1
    if disturbed:
        notes.append(f"{disturbed} of {len(cells)} cells were disturbed by other work.")
    comparison = analysis.comparison
    unstable = sum(bool(cell.warnings) for cell in cells)
    if unstable:
        notes.append(f"{unstable} have unstable or doubtful times.")
    wanted_rounds = comparison.options.get("rounds", 0)
    if comparison.rounds < wanted_rounds:
        notes.append(f"Time allowed {comparison.rounds} of {wanted_rounds} rounds.")
    if comparison.options.get("controls_once"):
        notes.append("Without queues there is one process each in a quick look.")
    cells_by_reason: dict[str, list[str]] = {}
    for cell in cells:
        if not cell.believed:
            name = cell.results.name
            cells_by_reason.setdefault(f"{cell.state}: {cell.reason}", []).append(name)
    notes += [f"{listed(names)}: {reason}." for reason, names in cells_by_reason.items()]
    notes += [f"Data: {data}." for data in analysis.data]
    return tuple(notes)


def note_on_systematic_errors(analysis: Analysis) -> str:
    """Return the note on each framework's largest systematic error; empty if none is known."""
    largest: dict[str, float] = {}
    for experiment in analysis.experiments:
        for backend, error in experiment.systematic_errors.items():
            largest[backend] = max(error, largest.get(backend, 0.0))
    if not largest:
        return ""
    errors = [
        f"{title_of_compared(backend)} {seconds(error)}" for backend, error in largest.items()
    ]
    return (
        "Systematic error (the same operations with and without queues differed by at most): "
        f"{', '.join(errors)}."
    )
