"""A comparison in the terminal: a compact table for each experiment."""

from collections.abc import Mapping

from humanize import metric
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parallel_core.comparison.analysis import Analysis, CellAnalysis, ExperimentAnalysis
from parallel_core.measurement.confidence_intervals import Verdict, with_bounds

__all__ = ["VERDICT_COLOURS", "in_colour", "show_comparison"]

VERDICT_COLOURS: Mapping[Verdict, str] = {"faster": "green", "slower": "red"}


def show_comparison(analysis: Analysis, console: Console) -> None:
    """Print a table for each experiment, the answer, and what is not to be trusted."""
    for experiment in analysis.experiments:
        console.print(_comparison_table(experiment))
        all_data = {result.data for cell in experiment.cells for result in cell.results.valid if result.data}
        for data in sorted(all_data):
            console.print(f"data: {escape(data)}", style="dim")
        for cell in experiment.cells:
            for remark in filter(None, (cell.reason, _first_warning(cell))):
                console.print(f"! {cell.cell.side}: {escape(remark)}", style="dim")
    console.print(f"\n{escape(analysis.answer)}", style="bold")


def _first_warning(cell: CellAnalysis) -> str:
    """Name the first of a cell's unstable cases and count the others; empty if there is none."""
    if not cell.warnings:
        return ""
    more = f"; and {len(cell.warnings) - 1} more" if len(cell.warnings) > 1 else ""
    return f"unstable ({cell.warnings[0]}{more})"


def _comparison_table(experiment: ExperimentAnalysis) -> Table:
    described = experiment.experiment
    against = next((f"; ratio to {cell.cell.side}" for cell in experiment.believed), "")
    table = Table(
        title=f"\n[bold]{described.name}: {described.question}[/]\n"
        f"time of “{described.case}”; {described.metric}{against}; 95% intervals",
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("figure", overflow="fold")
    table.add_column("ratio", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    table.add_column("runs", justify="right", no_wrap=True)
    for cell in experiment.cells:
        runs = str(len(cell.results.valid))
        if cell.time is None:
            table.add_row(cell.cell.side, "", "", "", f"[red]{cell.state}[/]", runs)
            continue
        table.add_row(
            cell.cell.side,
            metric(cell.time.estimate, "s"),
            "" if cell.metric is None else with_bounds(cell.metric),
            "" if cell.ratio is None else with_bounds(cell.ratio.interval),
            "" if cell.ratio is None else in_colour(cell.ratio.verdict),
            runs + ("!" if cell.warnings or cell.reason else ""),
        )
    return table


def in_colour(verdict: Verdict) -> str:
    """Return a verdict as markup in its colour."""
    colour = VERDICT_COLOURS.get(verdict)
    return f"[{colour}]{verdict}[/]" if colour else verdict
