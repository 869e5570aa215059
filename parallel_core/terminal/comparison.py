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
from parallel_core.compare.analysis import Analysis, ExperimentAnalysis, analyse
from parallel_core.compare.answer_table import Screen, screen_of, screen_of_counts
from parallel_core.compare.cell_changes import Difference
from parallel_core.compare.plan import FIRST
from parallel_core.compare.results import Comparison
from parallel_core.compare.runner import OnProgress
from parallel_core.compare.schedule import Generation
from parallel_core.compare.time_differences import PARTS
from parallel_core.measurement.confidence_intervals import Interval, with_bounds
from parallel_core.measurement.differences import Verdict
from parallel_core.system.formatting import figure, listed, seconds
from parallel_core.terminal.console import ASIDE, BAD, GOOD, progress_line
from parallel_core.terminal.layout import show_sentence, show_sentences, show_table

WIDE = 100
"""Columns of a terminal from which figures have their bounds."""
NARROW = 76
"""Columns below which each row becomes separate lines, and there is room for bounds again."""
FEW_QUESTIONS = 6
"""So many questions fit as columns."""
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
    rounds = f"{_rounds(comparison.rounds)}, {took}"
    length = f"quick look: {rounds}" if comparison.quick else rounds
    frameworks = listed([title_of_compared(name) for name in analysis.backends])
    show_sentence(f"How the same work is scheduled: {frameworks} ({length})", console, "bold")
    if screen.headline:
        show_sentence(screen.headline, console)
    for table in _answers_tables(screen):
        show_table(table, console)
    _show_differences(screen, console)
    show_sentence(" ".join(screen.notes), console, ASIDE)


def _show_differences(screen: Screen, console: Console) -> None:
    """Print for each pair of engines a line for each experiment: how they differ, and why."""
    for compared, differences in screen.differences.items():
        show_sentence(compared, console, "bold")
        longest_name = max(len(difference.cell.experiment) for difference in differences)
        for difference in differences:
            name = difference.cell.experiment.ljust(longest_name)
            words = difference.in_words
            if difference.names_of_reasons:
                words += f": {difference.names_of_reasons}"
            colour = VERDICT_COLOURS.get(difference.verdict, "")
            show_sentence(f"{name}  {words}", console, colour, bullet="  ")


def _answers_tables(screen: Screen) -> Iterator[Table]:
    """Yield tables of questions by engines, those without queues in a second one if they are many.

    Few questions on more than two frameworks are one table of engines by questions.
    """
    with_queues = [column for column in screen.columns if not column.is_control]
    if len(with_queues) > 2 and len(screen.rows) <= FEW_QUESTIONS:
        table = _plain_table("", *(question for question, _ in screen.rows))
        for number, column in enumerate(screen.columns):
            table.add_row(column.title, *(figures[number] for _, figures in screen.rows))
        yield table
        return
    groups = [range(len(screen.columns))]
    if len(with_queues) > 2:
        groups = [range(len(with_queues)), range(len(with_queues), len(screen.columns))]
    for group in groups:
        headings = [screen.columns[number].title for number in group]
        table = _plain_table(
            "", *(re.sub(r" (?=[+(]|without)", r"\n", heading) for heading in headings)
        )
        for question, figures in screen.rows:
            table.add_row(question, *(figures[number] for number in group))
        yield table


def _plain_table(*headings: str) -> Table:
    return Table(*(Column(heading, no_wrap=True) for heading in headings))


def show_comparison(analysis: Analysis, console: Console) -> None:
    """Print for each experiment a table of its cells, and what is not to be trusted."""
    for experiment in analysis.experiments:
        described = experiment.experiment
        show_sentence(f"\n{described.name}: {described.question}", console, "bold")
        show_sentences(experiment.counted, console)
        show_sentence(
            f"time of “{experiment.case or described.case}”; {described.main.name}; 95 % intervals",
            console,
        )
        show_table(
            _comparison_table(experiment, without_bounds=NARROW <= console.width < WIDE), console
        )
        show_sentence(experiment.answer, console)
        show_sentences((difference.sentence for difference in experiment.differences), console)
        sides_by_remark = defaultdict[str, list[str]](list)
        for cell in experiment.cells:
            more = f"; and {len(cell.warnings) - 1} more" if len(cell.warnings) > 1 else ""
            unstable = f"unstable ({cell.warnings[0]}{more})" if cell.warnings else ""
            for remark in filter(None, (cell.reason, unstable)):
                sides_by_remark[remark].append(cell.results.title)
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
            table.add_row(cell.results.title, Text(cell.state, BAD), "", *("" for _ in parts), runs)
            continue
        table.add_row(
            cell.results.title,
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
            name = f"{change.cell.experiment} on {change.title}"
            table.add_row(name, change.case, ratio, verdict, change.reasons_in_words)
        show_table(table, console)
    for of_cell in difference.cells:
        meaning = of_cell.meaning
        if meaning is not None:
            before = meaning.old.says if meaning.old else "Open"
            now = meaning.new.says if meaning.new else "Open"
            sentence = f"{of_cell.results.name}, {meaning.metric}: {before} → {now}"
            show_sentence(sentence, console, bullet="· ")
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
    """Show the progress of a comparison, about how long the rest will take, and what was counted
    when the first round has ended.

    The display changes only between turns, because redrawing it ten times a second would disturb
    the measurement.
    """
    with progress_line(console, MofNCompleteColumn(), shown=console.is_interactive) as progress:
        task = progress.add_task("starting", total=None, left=None)
        announced = planned_rounds = 0

        def on_progress(generation: Generation, results: int, so_far: Comparison) -> None:
            nonlocal announced, planned_rounds
            stage = f"round {generation.round} of {generation.rounds}"
            done = generation.done + results
            total = generation.done + generation.left
            left = generation.seconds_left
            is_new_round = generation.round != announced
            if console.is_interactive:
                experiment = generation.experiment_after(results)
                progress.update(task, description=f"{stage}: {experiment}", total=total)
                progress.update(task, completed=done, left=left, refresh=True)
            elif is_new_round:
                remains = "" if left is None else f", about {naturaldelta(left)} left"
                console.print(f"{stage}: {done} of {total} results{remains}")
            if is_new_round and 0 < generation.rounds < planned_rounds:
                took = seconds(so_far.seconds / max(1, announced))
                console.print(
                    f"Time allows {_rounds(generation.rounds)}, not {planned_rounds}: one takes "
                    f"{took} here."
                )
            if is_new_round and announced == FIRST:
                _show_counts(analyse(so_far), left, console)
            announced, planned_rounds = generation.round, generation.rounds

        yield on_progress


def _show_counts(analysis: Analysis, seconds_left: float | None, console: Console) -> None:
    """Print what was counted in the first round, and when the times will follow."""
    screen = screen_of_counts(analysis)
    if not screen.rows:
        return
    if screen.headline:
        show_sentence(f"\n{screen.headline}", console, "bold")
    for table in _answers_tables(screen):
        show_table(table, console)
    when = "" if seconds_left is None else f", in about {naturaldelta(seconds_left)}"
    show_sentence(f"Times follow{when}; Ctrl-C keeps what is there.", console)


def _rounds(number: int) -> str:
    """Write a number of rounds."""
    return "1 round" if number == 1 else f"{number} rounds"
