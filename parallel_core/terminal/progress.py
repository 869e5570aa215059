"""The display of progress: a bar for a training, and a line for a measurement, which is drawn only
between timings.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from humanize import naturaldelta
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, ProgressColumn, Task
from rich.text import Text

from parallel_core.measurement.progress import listening
from parallel_core.terminal.console import progress_line
from parallel_core.training.batches import CompletedSteps, Epoch
from parallel_core.training.plan import TrainingPlan

SHOWN_FROM = 2.0
"""The seconds after which the line of a measurement is shown."""
REDRAWN_EVERY = 0.2


@contextmanager
def measurement_progress(console: Console, title: str) -> Iterator[None]:
    """Show the progress of a measurement on a terminal until this context ends."""
    if not console.is_interactive:
        yield
        return
    # No thread draws the line, because it would take time from what is measured.
    progress = progress_line(console)
    task = progress.add_task("", total=1.0)
    started = monotonic()
    drawn = started - REDRAWN_EVERY

    def draw(what: str, share: float) -> None:
        nonlocal drawn
        now = monotonic()
        if now - started < SHOWN_FROM or now - drawn < REDRAWN_EVERY:
            return
        drawn = now
        progress.update(task, description=f"{title}: {what}", completed=share)
        progress.start()
        progress.refresh()

    try:
        with listening(draw):
            yield
    finally:
        progress.stop()


class _ImagesPerSecond(ProgressColumn):
    """The column of a training's speed."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} images/s" if task.speed else "")


class TrainingProgress:
    """A progress bar over all epochs, with a line for each epoch that is done."""

    def __init__(self, progress: Progress, epochs: int, images: int) -> None:
        self._progress, self._epochs = progress, epochs
        self._task = progress.add_task("epoch 1", total=epochs * images)

    def go_on_from(self, progress: CompletedSteps) -> None:
        """Advance to the progress of a checkpoint."""
        images_of_epochs = sum(epoch.images for epoch in progress.epochs)
        completed = images_of_epochs + progress.begun.images
        description = f"epoch {progress.epoch} of {self._epochs}"
        self._progress.update(self._task, completed=completed, description=description)

    def on_plan(self, plan: TrainingPlan) -> None:
        """Print the number of epochs and batches, and about how long they take."""
        self._epochs = plan.settings.last_epoch
        self._progress.update(self._task, total=self._epochs * plan.images)
        epochs = "1 epoch" if self._epochs == 1 else f"{self._epochs} epochs"
        batches = "1 batch" if plan.batches == 1 else f"{plan.batches} batches"
        line = f"{epochs} of {batches}"
        if plan.compared:
            line += f", and {plan.compared} steps on one device too"
        if not math.isnan(plan.seconds):
            line += f": about {naturaldelta(max(1, plan.seconds))}"
        self._progress.console.print(line)
        if plan.is_chosen:
            self._progress.console.print("the book's training takes longer: --epochs 10")

    def on_batch(self, epoch: int, images: int) -> None:
        """Advance by a batch's images."""
        self._progress.update(
            self._task, advance=images, description=f"epoch {epoch} of {self._epochs}"
        )

    def on_training(self, name: str) -> None:
        """Print the name of a training that begins, if there is no bar to show progress."""
        if not self._progress.console.is_interactive:
            self._progress.console.print(name)

    def on_epoch(self, epoch: Epoch) -> None:
        """Print the results of an epoch above the bar."""
        last_loss = epoch.losses[-1]
        speed = epoch.images / epoch.seconds
        self._progress.console.print(
            f"epoch {epoch.number}: loss {last_loss:.3f}, test accuracy {epoch.accuracy:.3f}, "
            f"{speed:,.0f} images/s"
        )


@contextmanager
def training_progress(console: Console, epochs: int, images: int) -> Iterator[TrainingProgress]:
    """Show a progress bar on a console; `images` is the number of images in an epoch."""
    with progress_line(
        console, MofNCompleteColumn(), _ImagesPerSecond(), by_itself=True
    ) as progress:
        yield TrainingProgress(progress, epochs, images)
