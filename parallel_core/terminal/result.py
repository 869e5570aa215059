"""What a person sees in the terminal: tables of results, a progress bar, epoch by epoch."""

from collections.abc import Iterator
from contextlib import contextmanager

from humanize import metric, naturalsize
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from parallel_core.result import Result
from parallel_core.training import Epoch

__all__ = ["TrainingProgress", "show", "training_progress"]


def show(result: Result, console: Console) -> None:
    """Print a result: its timings, metrics and checks, what they mean, and why it is invalid where it is."""
    backend = result.backend
    threads = backend["threads_per_device"]
    console.print(
        f"\n[bold]{result.experiment}[/] on [bold]{backend['name']} {backend['version']}[/], "
        f"{backend['engine']} engine, {', '.join(backend['devices'])}, "
        f"{threads} {'thread' if threads == 1 else 'threads'} each"
    )
    console.print(
        ", ".join(f"{name} = {value}" for name, value in result.parameters.items() if value is not None), style="dim"
    )
    caption = None if result.data is None else f"data: {result.data}"
    console.print(timings(result, caption))
    console.print(numbers(result, caption))
    console.print(escape(result.explanation), style="bold")
    for note in result.notes:
        console.print(f"· {escape(note)}")
    for problem in result.problems:
        console.print(f"INVALID: {escape(problem)}", style="bold red")


def timings(result: Result, caption: str | None) -> Table:
    """Make the table of cases: control returned, done, spread."""
    table = Table("case", caption=caption, caption_justify="left", title_justify="left")
    for heading in ("control returned after", "done after", "spread"):
        table.add_column(heading, justify="right")
    for case in result.cases:
        table.add_row(
            escape(case.name), metric(case.dispatch_median, "s"), metric(case.median, "s"), f"± {case.spread:.0%}"
        )
    return table


def numbers(result: Result, caption: str | None) -> Table:
    """Make the table of metrics and checks."""
    table = Table("metric", caption=caption, caption_justify="left")
    table.add_column("value", justify="right")
    for name, value in result.metrics.items():
        table.add_row(name, quantity(name, value))
    table.add_section()
    for name, value in result.checks.items():
        table.add_row(f"{name} (check)", f"{value:.1e}")
    return table


def quantity(name: str, value: float) -> str:
    """Write a metric in the unit that its name tells."""
    if name.endswith("_seconds") or name.startswith("seconds_"):
        return metric(value, "s")
    if "bytes" in name:
        return naturalsize(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


class ImagesPerSecond(ProgressColumn):
    """The speed of a task that counts images."""

    def render(self, task: Task) -> Text:
        """Return the speed as text."""
        return Text(f"{task.speed:,.0f} images/s" if task.speed else "")


class TrainingProgress:
    """A progress bar over all epochs, with a line for each epoch that is done."""

    def __init__(self, progress: Progress, epochs: int, images: int) -> None:
        self._progress, self._epochs = progress, epochs
        self._task = progress.add_task("epoch 1", total=epochs * images)

    def on_batch(self, epoch: int, images: int) -> None:
        """Advance by a batch's images."""
        self._progress.update(self._task, advance=images, description=f"epoch {epoch} of {self._epochs}")

    def on_epoch(self, epoch: Epoch) -> None:
        """Print an epoch's numbers above the bar."""
        self._progress.console.print(
            f"epoch {epoch.number}: loss {epoch.losses[-1]:.3f}, test accuracy {epoch.accuracy:.3f}, "
            f"{epoch.images / epoch.seconds:,.0f} images/s"
        )


@contextmanager
def training_progress(console: Console, epochs: int, images: int) -> Iterator[TrainingProgress]:
    """Show a progress bar on a console; `images` is their number in an epoch."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        ImagesPerSecond(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield TrainingProgress(progress, epochs, images)
