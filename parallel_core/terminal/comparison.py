"""What a person sees of a comparison: where it is while it runs, and one compact table for each experiment after it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from humanize import metric, naturaldelta
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from parallel_core.comparison.cells import Comparison
from parallel_core.comparison.runner import CALIBRATION, Run
from parallel_core.comparison.summary import Ratio, Row, rows
from parallel_core.comparison.verdicts import answer
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import with_bounds

__all__ = ["COLOURS", "comparison_progress", "show_comparison"]

COLOURS = {"faster": "green", "slower": "red"}


@contextmanager
def comparison_progress(console: Console, rounds: int) -> Iterator[Callable[[Run], None]]:
    """Show how far a comparison is, and about how long it will take.

    The display changes between processes only: one that is drawn ten times a second takes time from what is measured.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    with Progress(
        *columns, console=console, transient=True, auto_refresh=False, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("starting", total=None, left="")
        done = 0
        announced: int | None = None

        def on_run(run: Run) -> None:
            nonlocal done, announced
            left = "" if run.seconds_left is None else f"about {naturaldelta(run.seconds_left)} left"
            total = done + run.left
            if console.is_terminal:
                progress.update(
                    task, description=f"{stage(run, rounds)}: {run.cell}", completed=done, total=total, left=left
                )
                progress.refresh()
            elif run.round != announced:
                console.print(", ".join(filter(None, (f"{stage(run, rounds)}: {done} of {total} runs done", left))))
            announced = run.round
            done += 1

        yield on_run


def stage(run: Run, rounds: int) -> str:
    """Say which part of a comparison a run belongs to."""
    if run.round == CALIBRATION:
        return "choosing sizes"
    return f"round {run.round} of {rounds}" if run.round <= rounds else "making up for failed runs"


def show_comparison(comparison: Comparison, console: Console) -> None:
    """Print a table for each experiment, the answer, and what is not to be trusted."""
    for experiment in comparison.experiments:
        found = rows(comparison, experiment)
        console.print(table(experiment, found))
        for data in sorted({result.data for row in found for result in row.measured.valid if result.data}):
            console.print(f"data: {escape(data)}", style="dim")
        for row in found:
            for told in (row.reason, unstable(row)):
                if told:
                    console.print(f"! {row.measured.cell.side}: {escape(told)}", style="dim")
    console.print(f"\n{escape(answer(comparison))}", style="bold")


def unstable(row: Row) -> str:
    """Say in one line which of a cell's cases are unstable; empty where none is."""
    if not row.warnings:
        return ""
    more = f"; and {len(row.warnings) - 1} more" if len(row.warnings) > 1 else ""
    return f"unstable ({row.warnings[0]}{more})"


def table(experiment: str, found: tuple[Row, ...]) -> Table:
    """Make an experiment's table: a row for each cell, 95 % intervals in brackets."""
    described = EXPERIMENTS[experiment]
    first = next((row.measured.cell.side for row in found if row.time), "")
    against = f"; ratio to {first}" if first else ""
    made = Table(
        title=f"\n[bold]{experiment}: {described.question}[/]\n"
        f"time of “{described.case}”; {described.metric}{against}; 95% intervals",
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    made.add_column("", no_wrap=True)
    made.add_column("time", justify="right", no_wrap=True)
    made.add_column("figure", overflow="fold")
    made.add_column("ratio", no_wrap=True)
    made.add_column("verdict", overflow="fold")
    made.add_column("runs", justify="right", no_wrap=True)
    for row in found:
        if row.time is None:
            made.add_row(row.measured.cell.side, "", "", "", f"[red]{row.state}[/]", str(row.processes))
        else:
            made.add_row(
                row.measured.cell.side,
                metric(row.time.estimate, "s"),
                "" if row.metric is None else with_bounds(row.metric),
                "" if row.ratio is None else with_bounds(row.ratio.interval),
                "" if row.ratio is None else in_colour(row.ratio),
                str(row.processes) + ("!" if row.warnings or row.reason else ""),
            )
    return made


def in_colour(ratio: Ratio) -> str:
    """Write a verdict."""
    colour = COLOURS.get(ratio.verdict)
    return f"[{colour}]{ratio.verdict}[/]" if colour else ratio.verdict
