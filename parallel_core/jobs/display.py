"""What the user sees of a job: rank 0's progress and output, and of other ranks nothing unless they are the cause."""

import os
from contextlib import ExitStack
from typing import BinaryIO

from rich.console import Console
from rich.text import Text

from parallel_core.jobs.reports import News, Printed, Progress, TrainedEpoch, Training
from parallel_core.terminal.progress import TrainingProgress, training_progress

__all__ = ["Display"]


class Display:
    """Rank 0's standard output goes to `output` as it is, all else to the console on standard error."""

    def __init__(self, console: Console, output: BinaryIO, errors: BinaryIO) -> None:
        self.has_output = False
        """Whether rank 0 has written to standard output."""
        self._console, self._output, self._errors = console, output, errors
        self._bar: TrainingProgress | None = None
        self._shown, self._line = ExitStack(), b""

    def show(self, news: News) -> None:
        """Show what rank 0 wrote, or reports of its training."""
        match news:
            case Printed(data, error=True) if self._bar is None:
                self._write(data)
            case Printed(data, error=True):
                # Only whole lines go above the bar.
                *lines, self._line = (self._line + data).split(b"\n")
                for line in lines:
                    self._console.print(Text.from_ansi(line.decode(errors="replace")), soft_wrap=True)
            case Printed(data):
                # The result follows the training, and a bar would be drawn over it.
                self.close()
                self.has_output = True
                try:
                    self._output.write(data)
                    self._output.flush()
                except BrokenPipeError:
                    # Nobody reads on (`launch … | head`): the job still ends in good order, and so does Python.
                    os.dup2(os.open(os.devnull, os.O_WRONLY), self._output.fileno())
            # Without a terminal a bar would leave an empty line behind.
            case Training(epochs=epochs, images=images) if self._console.is_terminal:
                self.close()
                self._bar = self._shown.enter_context(training_progress(self._console, epochs, images))
            case Progress(epoch=epoch, images=images) if self._bar and images:
                self._bar.on_batch(epoch, images)
            case TrainedEpoch(line=line):
                self._console.print(line, markup=False, soft_wrap=True)

    def say(self, line: str) -> None:
        """Show one line about the job."""
        self.close()
        self._write(f"parallel-core: {' '.join(line.split())}\n".encode())

    def show_words(self, heading: str, words: str, max_lines: int) -> None:
        """Show the last lines that a process wrote, under a heading."""
        self.close()
        self._write("\n".join([f"── {heading} ──", *words.rstrip().splitlines()[-max_lines:], ""]).encode())

    def close(self) -> None:
        """Remove the progress bar."""
        self._shown.close()
        self._write(self._line)
        self._bar, self._line = None, b""

    def _write(self, data: bytes) -> None:
        self._errors.write(data)
        self._errors.flush()
