"""The progress of a comparison in the terminal, and about how long the rest will take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from humanize import naturaldelta
from rich.console import Console
from rich.progress import MofNCompleteColumn

from parallel_core.comparison.plan import SOUNDING
from parallel_core.comparison.schedule import NextRun
from parallel_core.terminal.console import progress_line

__all__ = ["comparison_progress"]


@contextmanager
def comparison_progress(console: Console) -> Iterator[Callable[[NextRun], None]]:
    """Show the progress of a comparison, and about how long the rest will take.

    The display changes only between processes, because redrawing it ten times a second would disturb the measurement.
    """
    with progress_line(console, MofNCompleteColumn(), shown=console.is_terminal) as progress:
        task = progress.add_task("starting", total=None, left=None)
        done = 0
        announced: int | None = None

        def on_run(run: NextRun) -> None:
            nonlocal done, announced
            stage, total = _stage(run), done + run.left
            what = str(run.cells[0]) if len(run.cells) == 1 else run.cells[0].side
            if console.is_terminal:
                progress.update(task, description=f"{stage}: {what}", completed=done, total=total)
                progress.update(task, left=run.seconds_left, refresh=True)
            elif run.round != announced:
                left = "" if run.seconds_left is None else f", about {naturaldelta(run.seconds_left)} left"
                console.print(f"{stage}: {done} of {total} runs done{left}")
            announced = run.round
            done += 1

        yield on_run


def _stage(run: NextRun) -> str:
    if run.round == SOUNDING:
        return "choosing sizes"
    return f"round {run.round} of {run.rounds}" if run.round <= run.rounds else "making up for failed runs"
