"""A comparison in the terminal: its progress, the answer on one screen, a table for each
experiment, a difference.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from humanize import naturaldelta
from rich.console import Console
from rich.progress import MofNCompleteColumn
from rich.table import Column, Table
from rich.text import Text

from backends.registry.variants import title_of_compared
from parallel_core.comparison.account import PARTS
from parallel_core.comparison.analysis import Analysis, ExperimentAnalysis, analyse
from parallel_core.comparison.cells import Comparison
from parallel_core.comparison.difference import Difference
from parallel_core.comparison.runner import OnProgress
from parallel_core.comparison.schedule import Generation
from parallel_core.comparison.screen import Screen, screen_of
from parallel_core.measurement.confidence_intervals import Interval, with_bounds
from parallel_core.measurement.differences import Verdict
from parallel_core.system.formatting import figure, listed, seconds
from parallel_core.terminal.console import ASIDE, BAD, GOOD, progress_line
from parallel_core.terminal.layout import show_sentence, show_sentences, show_table

WIDE = 100
"""Columns of a terminal from which figures have their bounds."""
NARROW = 76
"""Columns below which each row becomes separate lines, and there is room for bounds again."""
TINY = 1e-3
"""Below, a figure has two digits in a narrow terminal."""
VERDICT_COLOURS: Mapping[Verdict, str] = {"faster": GOOD, "slower": BAD}


def show_screen(analysis: Analysis, console: Console) -> None:
    """Print the answer: questions by cells, then differences in seconds with their reasons, and
    what limits them.
    """
    screen = screen_of(analysis)
    comparison = analysis.comparison
    minutes = comparison.seconds / 60
    took = f"{figure(minutes)} min" if minutes >= 1 else f"{figure(comparison.seconds)} s"
    rounds = f"{comparison.rounds} round{'' if comparison.rounds == 1 else 's'}, {took}"
    length = f"quick look: {rounds}" if comparison.quick else rounds
    frameworks = listed([title_of_compared(name) for name in analysis.backends])
    show_sentence(f"How the same work is scheduled: {frameworks} ({length})", console, "bold")
    if screen.headline:
        show_sentence(screen.headline, console)
    show_table(_answers_table(screen), console)
    if screen.differences:
        table = _plain_table("", "", "why")
        for compared, rows in screen.differences.items():
            table.add_row(Text(compared, "bold"), "", "")
            for one in rows:
                words = Text(one.in_words, VERDICT_COLOURS.get(one.verdict, ""))
                table.add_row(f"{one.cell.experiment}: {one.case}", words, one.reasons_in_words)
        show_table(table, console)
    show_sentence(" ".join(screen.notes), console, ASIDE)


def _answers_table(screen: Screen) -> Table:
    """Return questions by cells; cells by questions if there are more than two frameworks."""
    controls = [column.is_control for column in screen.columns]
    headings = [column.title for column in screen.columns]
    if controls.count(False) <= 2:
        table = _plain_table(
            "", *(re.sub(r" (?=[+(]|without)", r"\n", heading) for heading in headings)
        )
        for question, figures in screen.rows:
            table.add_row(question, *figures)
        return table
    table = _plain_table("", *(question for question, _ in screen.rows))
    for number in range(len(screen.columns)):
        table.add_row(headings[number], *(figures[number] for _, figures in screen.rows))
    return table


def _plain_table(*headings: str) -> Table:
    return Table(*(Column(heading, no_wrap=True) for heading in headings))


def show_comparison(analysis: Analysis, console: Console) -> None:
    """Print for each experiment a table of its cells, and what is not to be trusted."""
    for experiment in analysis.experiments:
        described = experiment.experiment
        show_sentence(f"\n{described.name}: {described.question}", console, "bold")
        show_sentence(
            f"time of “{experiment.case or described.case}”; {described.main.name}; 95 % intervals",
            console,
        )
        show_table(
            _comparison_table(experiment, without_bounds=NARROW <= console.width < WIDE), console
        )
        show_sentences(experiment.sentences, console)
        sides_by_remark = defaultdict[str, list[str]](list)
        for cell in experiment.cells:
            more = f"; and {len(cell.warnings) - 1} more" if len(cell.warnings) > 1 else ""
            unstable = f"unstable ({cell.warnings[0]}{more})" if cell.warnings else ""
            for remark in filter(None, (cell.reason, unstable)):
                sides_by_remark[remark].append(cell.cell.side)
        for remark, sides in sides_by_remark.items():
            show_sentence(f"{listed(sides)}: {remark}", console, ASIDE, bullet="! ")
    show_sentences((f"data: {data}" for data in analysis.data), console, ASIDE)


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
            table.add_row(cell.cell.side, Text(cell.state, BAD), "", *("" for _ in parts), runs)
            continue
        table.add_row(
            cell.cell.side,
            seconds(cell.time.estimate),
            ""
            if cell.metric is None
            else _without_bounds(cell.metric)
            if without_bounds
            else with_bounds(cell.metric),
            *(
                seconds(cell.account[part].estimate) if part in cell.account else ""
                for part in parts
            ),
            runs + ("!" if cell.warnings or cell.reason else ""),
        )
    return table


def _without_bounds(metric: Interval) -> str:
    # Two digits of what is tiny, or its zeros would take the place of words.
    value = metric.estimate
    return figure(value) if abs(value) >= TINY else f"{value:.2g}"


def show_difference(difference: Difference, console: Console) -> None:
    """Print the cases that changed significantly, and count the rest."""
    show_sentences(difference.environment_changes, console, ASIDE, bullet="· ")
    changed = [change for change in difference.changes if change.verdict in VERDICT_COLOURS]
    if changed:
        table = Table("cell", "case", Column("new / old time", no_wrap=True), "verdict", "why")
        for change in changed:
            ratio, verdict = (
                with_bounds(change.ratio),
                Text(change.verdict, VERDICT_COLOURS[change.verdict]),
            )
            table.add_row(str(change.cell), change.case, ratio, verdict, change.reasons_in_words)
        show_table(table, console)
    for one in difference.meanings:
        was, is_now = (band.says if band else "Open" for band in (one.old, one.new))
        show_sentence(f"{one.cell}, {one.metric}: {was} → {is_now}", console, bullet="· ")
    show_sentences(
        (f"left out: {reason}" for reason in difference.left_out), console, ASIDE, bullet="· "
    )
    count = len(difference.changes)
    unknown = sum(change.verdict == "too few runs" for change in difference.changes)
    too_few = f", too few runs to decide in {unknown}" if unknown else ""
    show_sentence(
        f"{count} cases compared: {len(changed)} changed, "
        f"no significant difference in {count - len(changed) - unknown}{too_few}.",
        console,
        "bold",
    )
    show_sentence(
        f"By chance up to {max(1, round(count / 20))} of them may be called changed; and no "
        "interval covers what "
        "else the machine did at the two times.",
        console,
        ASIDE,
    )


@contextmanager
def comparison_progress(console: Console) -> Iterator[OnProgress]:
    """Show the progress of a comparison, about how long the rest will take, and its first sentence
    as soon as it is known.

    The display changes only between turns, because redrawing it ten times a second would disturb
    the measurement.
    """
    with progress_line(console, MofNCompleteColumn(), shown=console.is_interactive) as progress:
        task = progress.add_task("starting", total=None, left=None)
        announced = 0
        headline = ""

        def on_progress(generation: Generation, results: int, so_far: Comparison) -> None:
            nonlocal announced, headline
            stage = f"round {generation.round} of {generation.rounds}"
            done = generation.done + results
            total = generation.done + generation.left
            left = generation.seconds_left
            if console.is_interactive:
                experiment = generation.experiment_after(results)
                progress.update(task, description=f"{stage}: {experiment}", total=total)
                progress.update(task, completed=done, left=left, refresh=True)
            elif generation.round != announced:
                remains = "" if left is None else f", about {naturaldelta(left)} left"
                console.print(f"{stage}: {done} of {total} results{remains}")
            if generation.round != announced and done and not headline:
                headline = screen_of(analyse(so_far)).headline
                if headline:
                    console.print(f"known so far: {headline}")
            announced = generation.round

        yield on_progress
