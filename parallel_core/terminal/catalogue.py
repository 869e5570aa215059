"""What a person sees of the catalogue: a line for each experiment, with the book's exercises that it answers."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Column, Table

from parallel_core.experiments import Experiment
from parallel_core.terminal.console import ASIDE

__all__ = ["show_catalogue"]

WIDE = 80
"""From this width on the exercises stand in a column."""


def show_catalogue(experiments: Iterable[Experiment], backends: Sequence[str], console: Console) -> None:
    """Print a line for each experiment, by chapter, with the exercises that it answers; and the backends."""
    console.print(f"parallel-core run NAME --backend NAME [{ASIDE}](--explain says more)[/]")
    every = [*experiments]
    name, longest = (max(map(len, texts)) for texts in zip(*((one.name, one.summary) for one in every), strict=True))
    for chapter, own in groupby(every, key=lambda experiment: experiment.chapter):
        console.print(f"[bold]{chapter}[/]")
        table = Table.grid(Column(width=name), Column(), padding=(0, 2, 0, 0))
        for one in own:
            padded = f"{one.summary:{longest}} " if console.width >= WIDE else one.summary
            table.add_row(one.name, f"{padded} [{ASIDE}]{_exercises(one)}[/]")
        console.print(Padding(table, (0, 0, 0, 2)))
    console.print(f"[bold]Backends[/]: {escape(', '.join(backends))}")


def _exercises(experiment: Experiment) -> str:
    """Write which exercises an experiment answers, with the option that one needs: `ex. 3, 4 --trace`."""
    exercises = [f"{one.number} {one.edition} {one.options.partition(' ')[0]}".split() for one in experiment.exercises]
    return "ex. " + ", ".join(map(" ".join, exercises)) if exercises else ""
