"""What the user sees of a job: rank 0's progress and output, and of other ranks nothing unless they are the cause."""

from contextlib import ExitStack
from typing import BinaryIO

from rich.console import Console
from rich.text import Text

from parallel_core.jobs.reports import Progress, Report, TrainedEpoch, Training
from parallel_core.terminal.progress import TrainingProgress, training_progress

__all__ = ["Display"]

MAX_LINES = 20


class Display:
    """Rank 0's standard output goes to `output` as it is, all else to the console on standard error."""

    def __init__(self, console: Console, output: BinaryIO, errors: BinaryIO) -> None:
        self.has_output = False
        """Whether rank 0 has written to standard output."""
        self._console, self._output, self._errors = console, output, errors
        self._bar: TrainingProgress | None = None
        self._shown = ExitStack()
        self._line = b""

    def printed(self, data: bytes, error: bool) -> None:
        """Show what rank 0 wrote."""
        if error:
            self._show_errors(data)
            return
        # The result follows the training, and a bar would be drawn over it.
        self.close()
        self.has_output = True
        self._output.write(data)
        self._output.flush()

    def reported(self, report: Report) -> None:
        """Show what rank 0 reports of its training."""
        match report:
            case Training(epochs=epochs, images=images):
                self.close()
                # Without a terminal a bar would leave an empty line behind.
                if self._console.is_terminal:
                    self._bar = self._shown.enter_context(training_progress(self._console, epochs, images))
            case Progress(epoch=epoch, images=images):
                if self._bar and images:
                    self._bar.on_batch(epoch, images)
            case TrainedEpoch(line=line):
                self._console.print(line, markup=False, soft_wrap=True)
            case _:
                pass

    def say(self, line: str) -> None:
        """Show one line about the job."""
        self.close()
        self._errors.write(f"parallel-core: {' '.join(line.split())}\n".encode())
        self._errors.flush()

    def show_words(self, heading: str, words: str, max_lines: int = MAX_LINES) -> None:
        """Show the last lines that a process wrote, under a heading."""
        self.close()
        lines = words.rstrip().splitlines()[-max_lines:]
        self._errors.write("\n".join([f"── {heading} ──", *lines, ""]).encode())
        self._errors.flush()

    def close(self) -> None:
        """Remove the progress bar."""
        self._shown.close()
        self._bar = None
        if self._line:
            self._errors.write(self._line)
            self._errors.flush()
            self._line = b""

    def _show_errors(self, data: bytes) -> None:
        if self._bar is None:
            self._errors.write(data)
            self._errors.flush()
            return
        # Only whole lines go above the bar.
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._console.print(Text.from_ansi(line.decode(errors="replace")), soft_wrap=True)
