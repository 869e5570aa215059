"""The report's charts of curves: a panel for each cell of a sweep, and the learning curves of all cells in one."""

from parallel_core.comparison.analysis import Analysis, ExperimentAnalysis
from parallel_core.comparison.cells import Cell
from parallel_core.measurement.confidence_intervals import with_bounds
from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import write_point
from parallel_core.plots.curves import COLOURS, DOTTED, Curve, CurvesChart, learning_chart, sweep_chart


def curves_of(experiment: ExperimentAnalysis) -> CurvesChart | None:
    """Draw an experiment's curves in every cell, with intervals; None if it sweeps over nothing."""
    curves, cells = experiment.experiment.curves, [cell for cell in experiment.believed if cell.curves]
    if curves is None or not cells:
        return None
    swept = cells[0].results.valid[0].series[curves.over]
    return sweep_chart(curves, swept, {cell.cell.side: cell.curves for cell in cells})


def table_of(experiment: ExperimentAnalysis) -> tuple[tuple[str, ...], ...]:
    """Return the values of an experiment's curves in words, the first row the headings; nothing without curves."""
    curves, cells = experiment.experiment.curves, [cell for cell in experiment.believed if cell.curves]
    if curves is None or not cells:
        return ()
    swept = cells[0].results.valid[0].series[curves.over]
    columns = {
        f"{cell.cell.side}{': ' if label else ''}{label}": [with_bounds(value) for value in cell.curves[label]]
        for cell in cells
        for label in cell.curves
    }
    rows = zip((write_point(value, curves.over) for value in swept), *columns.values(), strict=False)
    return ((curves.x_title, *columns), *rows)


def learning_of(analysis: Analysis, experiment: ExperimentAnalysis) -> CurvesChart | None:
    """Draw the learning curves of all cells over each other; None if it trains nothing."""
    curves = [
        (
            Curve(
                cell.side,
                f"c{analysis.backends.index(cell.backend) % COLOURS}",
                (),
                dash=DOTTED[0] if cell.engine == "sync" else "",
            ),
            result,
        )
        for cell, result in trained(experiment)
    ]
    return learning_chart(curves) if curves else None


def trained(experiment: ExperimentAnalysis) -> list[tuple[Cell, Result]]:
    """Return each training cell with its first result; the other processes of a cell have the same losses."""
    first_results = [(cell.cell, cell.results.valid[0]) for cell in experiment.believed]
    return [(cell, result) for cell, result in first_results if "loss" in result.series]
