"""A comparison in the terminal: a compact table for each experiment."""

from collections import defaultdict
from collections.abc import Mapping

from humanize import metric
from rich import box
from rich.console import Console
from rich.table import Table

from parallel_core.comparison.analysis import Analysis, CellAnalysis, ExperimentAnalysis
from parallel_core.comparison.difference import Change
from parallel_core.comparison.verdicts import TimeRatio, factors_in_words
from parallel_core.measurement.confidence_intervals import Interval, Verdict, with_bounds
from parallel_core.system.formatting import figure, listed
from parallel_core.terminal.console import ASIDE, BAD, GOOD
from parallel_core.terminal.layout import show_sentence, show_table

__all__ = ["VERDICT_COLOURS", "factors_in_figures", "show_comparison", "verdicts_in_colour"]

WIDE = 100
"""Columns of a terminal from which figures have their bounds."""
NARROW = 76
"""Columns below which each row becomes lines of its own, and there is room for bounds again."""
TINY = 1e-3
"""Below, a figure has two digits in a narrow terminal."""
VERDICT_COLOURS: Mapping[Verdict, str] = {"faster": GOOD, "slower": BAD}


def show_comparison(analysis: Analysis, console: Console, answered: bool = True) -> None:
    """Print the answer, unless that stands elsewhere, and for each experiment a table and what is not to be trusted."""
    if answered:
        for conclusion in analysis.conclusions:
            show_sentence(conclusion, console, "bold", bullet="- ")
    for experiment in analysis.experiments:
        described = experiment.experiment
        against = next((f"; ratio to {cell.cell.side}" for cell in experiment.believed), "")
        show_sentence(f"\n{described.name}: {described.question}", console, "bold")
        show_sentence(f"time of “{described.case}”; {described.main.name}{against}; 95% intervals", console)
        show_table(_comparison_table(experiment, without_bounds=NARROW <= console.width < WIDE), console)
        sides_by_remark = defaultdict[str, list[str]](list)
        for cell in experiment.cells:
            for remark in filter(None, (cell.reason, _first_warning(cell))):
                sides_by_remark[remark].append(str(cell.cell.side))
        for remark, sides in sides_by_remark.items():
            show_sentence(f"{listed(sides)}: {remark}", console, ASIDE, bullet="! ")
    cells = [cell for experiment in analysis.experiments for cell in experiment.cells]
    for data in sorted({result.data for cell in cells for result in cell.results.valid if result.data}):
        show_sentence(f"data: {data}", console, ASIDE)


def _first_warning(cell: CellAnalysis) -> str:
    """Name the first of a cell's unstable cases and count the others; empty if there is none."""
    if not cell.warnings:
        return ""
    more = f"; and {len(cell.warnings) - 1} more" if len(cell.warnings) > 1 else ""
    return f"unstable ({cell.warnings[0]}{more})"


def _comparison_table(experiment: ExperimentAnalysis, without_bounds: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("figure", no_wrap=True)
    table.add_column("ratio", no_wrap=True)
    table.add_column("= kernels\n× scheduling", no_wrap=True)
    table.add_column("verdict")
    table.add_column("runs", justify="right", no_wrap=True)
    for cell in experiment.cells:
        verdicts = "" if cell.ratio is None else verdicts_in_colour(cell.ratio)
        runs = str(len(cell.results.valid))
        if cell.time is None:
            table.add_row(cell.cell.side, "", "", "", "", f"[{BAD}]{cell.state}[/]", runs)
            continue
        table.add_row(
            cell.cell.side,
            metric(cell.time.estimate, "s"),
            "" if cell.metric is None else _without_bounds(cell.metric) if without_bounds else with_bounds(cell.metric),
            "" if cell.ratio is None else with_bounds(cell.ratio.interval),
            "" if cell.ratio is None else factors_in_figures(cell.ratio),
            verdicts,
            runs + ("!" if cell.warnings or cell.reason else ""),
        )
    return table


def _without_bounds(metric: Interval) -> str:
    # Two digits of what is tiny, or its zeros would take the place of words.
    value = metric.estimate
    return figure(value) if abs(value) >= TINY else f"{value:.2g}"


def factors_in_figures(divided: TimeRatio | Change) -> str:
    """Write kernels × scheduling without their bounds; empty if they are not known."""
    if divided.kernels is None or divided.scheduling is None:
        return ""
    return f"{divided.kernels.estimate:.2f} × {divided.scheduling.estimate:.2f}"


def verdicts_in_colour(divided: TimeRatio | Change) -> str:
    """Return the verdict as markup in its colour, and on lines of their own what was shown of the factors."""
    colour = VERDICT_COLOURS.get(divided.verdict)
    verdict = f"[{colour}]{divided.verdict}[/]" if colour else divided.verdict
    return "\n".join((verdict, *factors_in_words(divided.kernels_verdict, divided.scheduling_verdict)))
