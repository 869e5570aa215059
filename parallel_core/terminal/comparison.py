"""A comparison in the terminal: its progress while it runs, and then a compact table for each experiment."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from humanize import metric, naturaldelta
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from parallel_core.comparison.analysis import Analysis, CellAnalysis, ExperimentAnalysis
from parallel_core.comparison.runner import CALIBRATION, NextRun
from parallel_core.measurement.confidence_intervals import Verdict, with_bounds

__all__ = ["VERDICT_COLOURS", "comparison_progress", "in_colour", "show_comparison"]

VERDICT_COLOURS: Mapping[Verdict, str] = {"faster": "green", "slower": "red"}


@contextmanager
def comparison_progress(console: Console, rounds: int) -> Iterator[Callable[[NextRun], None]]:
    """Show the progress of a comparison, and about how long the rest will take.

    The display changes only between processes, because redrawing it ten times a second would disturb the measurement.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    with Progress(
        *columns, console=console, transient=True, auto_refresh=False, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("starting", total=None, left="")
        done = 0
        announced: int | None = None

        def on_run(run: NextRun) -> None:
            nonlocal done, announced
            left = "" if run.seconds_left is None else f"about {naturaldelta(run.seconds_left)} left"
            stage, total = _stage(run, rounds), done + run.left
            if console.is_terminal:
                progress.update(task, description=f"{stage}: {run.cell}", completed=done, total=total, left=left)
                progress.refresh()
            elif run.round != announced:
                console.print(", ".join(filter(None, (f"{stage}: {done} of {total} runs done", left))))
            announced = run.round
            done += 1

        yield on_run


def _stage(run: NextRun, rounds: int) -> str:
    if run.round == CALIBRATION:
        return "choosing sizes"
    return f"round {run.round} of {rounds}" if run.round <= rounds else "making up for failed runs"


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
