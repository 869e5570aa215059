"""What of rank 0 reaches standard output and error, with a terminal and without."""

import io
import os

import pytest
from rich.console import Console

from parallel_core.jobs.job import News, Printed, Progress, TrainedEpoch, Training
from parallel_core.jobs.launcher import Display

BEGIN = (Training(2, 100), Progress(1, 1, 1, 40))
SHOW_CURSOR = "\x1b[?25h"


class Screen:
    """A display whose streams are kept; standard error of a terminal has its control sequences."""

    def __init__(self, terminal: bool) -> None:
        self.output, self._errors = io.BytesIO(), io.BytesIO()
        self._text = io.TextIOWrapper(self._errors, write_through=True)
        own = {"force_terminal": terminal, "force_interactive": terminal}
        console = Console(file=self._text, highlight=False, width=100, **own)  # type: ignore[arg-type]
        self.display = Display(console, self.output, self._errors)

    def show(self, *shown: News | bytes) -> str:
        """Show news, and bytes that were written to standard error; return all of standard error so far."""
        for one in shown:
            self.display.show(Printed(one, error=True) if isinstance(one, bytes) else one)
        return self._errors.getvalue().decode()


@pytest.mark.parametrize("terminal", [True, False])
def test_standard_output_is_passed_on_as_it_is_when_the_bar_is_gone(terminal: bool) -> None:
    screen = Screen(terminal)
    assert SHOW_CURSOR not in screen.show(*BEGIN)
    assert not screen.display.has_output
    for data in (b"{\xff\r", b"\n", b"[bold]x\x00"):
        screen.show(Printed(data, error=False))
    assert screen.output.getvalue() == b"{\xff\r\n[bold]x\x00"
    assert screen.display.has_output
    assert (SHOW_CURSOR in screen.show()) is terminal


def test_without_a_terminal_there_is_no_bar_and_errors_are_unchanged() -> None:
    screen = Screen(terminal=False)
    shown = screen.show(*BEGIN, b"half a ", b"line\n\n", TrainedEpoch("epoch 1: [red]" + "x" * 200))
    assert shown == f"half a line\n\nepoch 1: [red]{'x' * 200}\n"
    # One line of ours is one line.
    screen.display.say("rank 0: several\nlines  of text")
    assert screen.show() == f"{shown}parallel-core: rank 0: several lines of text\n"


def test_on_a_terminal_words_go_above_the_bar_in_whole_lines() -> None:
    screen = Screen(terminal=True)
    assert "half" not in screen.show(*BEGIN, b"half a ")
    shown = screen.show(Progress(2, 1, 2, 60), b"line\nand a rest")
    # Whatever is printed draws the bar again.
    assert 0 < shown.rindex("half a line") < shown.rindex("epoch 1 ")
    assert "and a rest" not in screen.show(Progress(3, 2, 1, 60))
    screen.display.close()
    shown = screen.show()
    assert "160/200" in shown
    assert shown.endswith("and a rest")


def test_output_that_nobody_reads_any_more_does_not_end_the_job() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    # Python writes what is left in a buffer when it ends.
    with os.fdopen(writing, "wb") as output:
        display = Display(Console(), output, io.BytesIO())
        for data in (b"a result", b"and more"):
            display.show(Printed(data, error=False))
    assert display.has_output
