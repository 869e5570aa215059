"""A comparison in the terminal: the answer on one screen, and a table for each experiment."""

import re
from collections import defaultdict
from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.table import Table

from backends.registry.loading import title
from parallel_core.comparison.account import PARTS
from parallel_core.comparison.analysis import Analysis, CellAnalysis, ExperimentAnalysis
from parallel_core.comparison.screen import Screen, screen_of
from parallel_core.measurement.confidence_intervals import Interval, Verdict, with_bounds
from parallel_core.system.formatting import figure, listed, seconds
from parallel_core.terminal.console import ASIDE, BAD, GOOD
from parallel_core.terminal.layout import show_sentence, show_table

__all__ = ["VERDICT_COLOURS", "show_comparison", "show_screen"]

WIDE = 100
"""Columns of a terminal from which figures have their bounds."""
NARROW = 76
"""Columns below which each row becomes lines of its own, and there is room for bounds again."""
TINY = 1e-3
"""Below, a figure has two digits in a narrow terminal."""
VERDICT_COLOURS: Mapping[Verdict, str] = {"faster": GOOD, "slower": BAD}


def show_screen(analysis: Analysis, console: Console) -> None:
    """Print the answer: questions by cells, then differences in seconds with their reasons, and what limits them."""
    screen = screen_of(analysis)
    comparison = analysis.comparison
    rounds = f"{comparison.rounds} round{'' if comparison.rounds == 1 else 's'}, {_duration(comparison.seconds)}"
    length = f"quick look: {rounds}" if comparison.quick else rounds
    frameworks = listed([title(name) for name in analysis.backends])
    show_sentence(f"How the same work is scheduled: {frameworks} ({length})", console, "bold")
    if screen.headline:
        show_sentence(screen.headline, console)
    show_table(_answers_table(screen), console)
    if screen.differences:
        first, *_ = screen.differences
        table = _plain_table(first, "", "why")
        for compared, rows in screen.differences.items():
            if compared != first:
                table.add_row(f"[bold]{compared}[/]", "", "")
            for row in rows:
                colour = VERDICT_COLOURS.get(row.details.verdict)
                table.add_row(row.what, f"[{colour}]{row.difference}[/]" if colour else row.difference, row.why)
        show_table(table, console)
    show_sentence(" ".join(screen.notes), console, ASIDE)


def _answers_table(screen: Screen) -> Table:
    """Return questions by cells; cells by questions if there are more than two frameworks."""
    controls = [column.is_control for column in screen.columns]
    headings = [column.title for column in screen.columns]
    if controls.count(False) <= 2:
        table = _plain_table("", *(re.sub(r" (?=[+(]|without)", r"\n", heading) for heading in headings))
        for question, figures in screen.rows:
            table.add_row(question, *figures)
        return table
    table = _plain_table("", *(question for question, _ in screen.rows))
    for number in range(len(screen.columns)):
        table.add_row(headings[number], *(figures[number] for _, figures in screen.rows))
    return table


def _plain_table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def _duration(seconds: float) -> str:
    return f"{figure(seconds / 60)} min" if seconds >= 60 else f"{figure(seconds)} s"


def show_comparison(analysis: Analysis, console: Console) -> None:
    """Print for each experiment a table of its cells, and what is not to be trusted."""
    for experiment in analysis.experiments:
        described = experiment.experiment
        show_sentence(f"\n{described.name}: {described.question}", console, "bold")
        show_sentence(f"time of “{described.case}”; {described.main.name}; 95 % intervals", console)
        show_table(_comparison_table(experiment, without_bounds=NARROW <= console.width < WIDE), console)
        for sentence in experiment.sentences:
            show_sentence(sentence, console)
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
    """Return a row for each cell: its time, its figure, and what its time is made of."""
    parts = [part for part in PARTS if any(part in cell.account for cell in experiment.cells)]
    table = _plain_table(
        "",
        "time",
        "figure",
        *(f"= {PARTS[parts[0]]}", *(f"+ {PARTS[part]}" for part in parts[1:])) if parts else (),
        "runs",
    )
    for cell in experiment.cells:
        runs = str(len(cell.results.valid))
        if cell.time is None:
            table.add_row(cell.cell.side, f"[{BAD}]{cell.state}[/]", "", *("" for _ in parts), runs)
            continue
        table.add_row(
            cell.cell.side,
            seconds(cell.time.estimate),
            "" if cell.metric is None else _without_bounds(cell.metric) if without_bounds else with_bounds(cell.metric),
            *(seconds(cell.account[part].estimate) if part in cell.account else "" for part in parts),
            runs + ("!" if cell.warnings or cell.reason else ""),
        )
    return table


def _without_bounds(metric: Interval) -> str:
    # Two digits of what is tiny, or its zeros would take the place of words.
    value = metric.estimate
    return figure(value) if abs(value) >= TINY else f"{value:.2g}"
