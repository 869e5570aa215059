"""Show the progress of a training: in its process, through the launcher, or in the first of several ranks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from backends import Backend
from backends.process_groups import GroupedBackend
from parallel_core.jobs.reports import Progress, TrainedEpoch, Training, reports_are_read, send_report
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.progress import TrainingProgress, epoch_line, training_progress
from parallel_core.training.batches import CompletedSteps, Epoch
from parallel_core.training.loop import ignore

__all__ = ["progress_of"]


@contextmanager
def progress_of(
    backend: Backend, epochs: int, images: int
) -> "Iterator[TrainingProgress | _ReportedProgress | _WatchedProgress]":
    """Show or report a training of some epochs, each of so many images over all ranks."""
    if isinstance(backend, GroupedBackend) and reports_are_read():
        send_report(Training(epochs, images))
        yield _ReportedProgress(backend)
    elif isinstance(backend, GroupedBackend) and backend.group.rank > 0:
        yield _WatchedProgress(backend)
    else:
        with training_progress(terminal_console(stderr=True), epochs, images) as progress:
            yield _WatchedProgress(backend, progress) if isinstance(backend, GroupedBackend) else progress


@final
class _WatchedProgress:
    """Keep the deadline of a rank that no launcher watches: a batch without an exchange is progress, too."""

    def __init__(self, backend: GroupedBackend, shown: TrainingProgress | None = None) -> None:
        self._backend = backend
        self.go_on_from = shown.go_on_from if shown else ignore
        self.on_epoch = shown.on_epoch if shown else ignore
        self._show = shown.on_batch if shown else ignore

    def on_batch(self, epoch: int, images: int) -> None:
        self._backend.on_exchange(self._backend.exchanges)
        self._show(epoch, images)


@final
class _ReportedProgress:
    def __init__(self, backend: GroupedBackend) -> None:
        self._backend, self._epoch, self._step = backend, 0, 0

    def go_on_from(self, progress: CompletedSteps) -> None:
        self._epoch, self._step = progress.epoch, progress.step
        done = sum(epoch.images for epoch in progress.epochs) + progress.begun.images
        send_report(Progress(self._backend.exchanges, self._epoch, self._step, done))

    def on_batch(self, epoch: int, images: int) -> None:
        # A batch without images is no training step, but progress.
        if images:
            self._step = self._step + 1 if epoch == self._epoch else 1
            self._epoch = epoch
        send_report(Progress(self._backend.exchanges, self._epoch, self._step, images))

    def on_epoch(self, epoch: Epoch) -> None:
        send_report(TrainedEpoch(epoch_line(epoch)))
