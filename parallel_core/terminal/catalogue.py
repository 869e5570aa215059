"""What a person sees of the catalogue: a line for each experiment, with the book's exercises that it answers."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Column, Table

from parallel_core.experiments import Experiment
from parallel_core.terminal.console import ASIDE

__all__ = ["SUMMARIES", "show_catalogue"]

SUMMARIES: Mapping[str, str] = {
    "async": "When does control return to Python?",
    "barriers": "Does waiting for one result wait for all?",
    "cost-model": "When does issuing set the pace?",
    "eager-cpu": "Can asynchrony be seen on a CPU?",
    "parallel": "Do two devices work at the same time?",
    "overlap": "Do copies hide under computation?",
    "independent-ops": "Do operations overlap on one device?",
    "small-ops": "Does parallelism help small operations?",
    "three-way": "Compute while data travel both ways?",
    "dependencies": "Are tasks across devices right, and fast?",
    "graph": "What is the graph of a training step?",
    "data-parallel": "How fast does LeNet train on two devices?",
    "allreduce": "Which allreduce is the fastest?",
    "building-blocks": "What do the chapter's small functions do?",
    "batch-scaling": "Do larger batches make devices pay?",
    "learning-rates": "Does the best rate depend on devices?",
    "partitioning": "How is a network best divided?",
    "batch-norm": "Whose statistics normalise a divided batch?",
    "evaluate": "Is accuracy the same on more devices?",
}
"""The experiments' questions in at most 45 characters, for lists; `--explain` has them in full."""
LONGEST = max(map(len, SUMMARIES.values()))
NAME = max(map(len, SUMMARIES))
WIDE = 80
"""From this width on the exercises stand in a column."""


def show_catalogue(experiments: Iterable[Experiment], backends: Sequence[str], console: Console) -> None:
    """Print a line for each experiment, by chapter, with the exercises that it answers; and the backends."""
    console.print(f"parallel-core run NAME --backend NAME [{ASIDE}](--explain says more)[/]")
    for chapter, own in groupby(experiments, key=lambda experiment: experiment.chapter):
        console.print(f"[bold]{chapter}[/]")
        table = Table.grid(Column(width=NAME), Column(), padding=(0, 2, 0, 0))
        for one in own:
            question, exercises = SUMMARIES[one.name], _exercises(one)
            padded = f"{question:{LONGEST}} " if console.width >= WIDE else question
            table.add_row(one.name, f"{padded} [{ASIDE}]{exercises}[/]")
        console.print(Padding(table, (0, 0, 0, 2)))
    console.print(f"[bold]Backends[/]: {escape(', '.join(backends))}")


def _exercises(experiment: Experiment) -> str:
    """Write which exercises an experiment answers, with the option that one needs: `ex. 3, 4 --trace`."""
    exercises = [f"{one.number} {one.edition} {one.options.partition(' ')[0]}".split() for one in experiment.exercises]
    return "ex. " + ", ".join(map(" ".join, exercises)) if exercises else ""
