"""What a person sees of the catalogue: the experiments, the book's exercises with what answers them, the backends."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from parallel_core.experiments import Experiment

__all__ = ["show_catalogue"]


def show_catalogue(experiments: Iterable[Experiment], backends: Sequence[str], console: Console) -> None:
    """Print the experiments with their questions, the exercises with their commands, and the backends."""
    chapters = [
        (chapter, list(own)) for chapter, own in groupby(experiments, key=lambda experiment: experiment.chapter)
    ]
    console.print("[bold]Experiments[/]: parallel-core run NAME --backend NAME", soft_wrap=True)
    for chapter, own in chapters:
        _show_rows(chapter, [(one.name, one.question) for one in own], console)
    console.print("\n[bold]Exercises[/] of the chapters, and the command that answers each", soft_wrap=True)
    for chapter, own in chapters:
        exercises = [(exercise, one.name) for one in own for exercise in one.exercises]
        # MXNet's edition comes first, as in the book.
        exercises.sort(key=lambda pair: (pair[0].edition, pair[0].number))
        rows = [
            (
                f"{exercise.number} {exercise.edition}".rstrip(),
                f"run {name} {exercise.options}".rstrip(),
                exercise.question,
            )
            for exercise, name in exercises
        ]
        _show_rows(chapter, rows, console)
    console.print(f"\n[bold]Backends[/]: {escape(', '.join(backends))}")


def _show_rows(chapter: str, rows: Sequence[tuple[str, ...]], console: Console) -> None:
    """Print a chapter's title and its rows, of which the last column alone is wrapped."""
    console.print(chapter)
    table = Table.grid(padding=(0, 2, 0, 0))
    *fixed, _ = rows[0]
    for _ in fixed:
        table.add_column(no_wrap=True)
    table.add_column()
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(Padding(table, (0, 0, 0, 2)))
