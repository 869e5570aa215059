"""What of rank 0 reaches standard output and error, with a terminal and without."""

import io

import pytest
from rich.console import Console

from parallel_core.jobs.display import Display
from parallel_core.jobs.reports import Progress, Report, TrainedEpoch, Training


class Screen:
    """A display whose streams are kept; standard error of a terminal has its control sequences."""

    def __init__(self, terminal: bool) -> None:
        self.output, self.errors = io.BytesIO(), io.BytesIO()
        text = io.TextIOWrapper(self.errors, write_through=True)
        console = Console(file=text, force_terminal=terminal, force_interactive=terminal, highlight=False, width=100)
        self.display = Display(console, self.output, self.errors)
        self._text = text

    def show(self, *shown: Report | bytes) -> str:
        """Show reports, and bytes that were written to standard error; return all of standard error so far."""
        for one in shown:
            if isinstance(one, bytes):
                self.display.printed(one, error=True)
            else:
                self.display.reported(one)
        return self.errors.getvalue().decode()


BEGIN = (Training(2, 100), Progress(1, 1, 1, 40))


@pytest.mark.parametrize("terminal", [True, False])
def test_standard_output_is_passed_on_as_it_is(terminal: bool) -> None:
    screen = Screen(terminal)
    screen.show(*BEGIN)
    assert not screen.display.has_output
    for data in (b"{\xff\r", b"\n", b"[bold]x\x00"):
        screen.display.printed(data, error=False)
    assert screen.output.getvalue() == b"{\xff\r\n[bold]x\x00"
    assert screen.display.has_output


def test_without_a_terminal_there_is_no_bar_and_errors_are_unchanged() -> None:
    screen = Screen(terminal=False)
    shown = screen.show(*BEGIN, b"half a ", b"line\n\n")
    screen.show(TrainedEpoch("epoch 1: [red]" + "x" * 200))
    screen.display.close()
    assert shown == "half a line\n\n"
    assert screen.errors.getvalue().decode() == f"half a line\n\nepoch 1: [red]{'x' * 200}\n"


def test_on_a_terminal_words_go_above_the_bar_in_whole_lines() -> None:
    screen = Screen(terminal=True)
    assert "half" not in screen.show(*BEGIN, b"half a ")
    shown = screen.show(Progress(2, 1, 2, 60), b"line\nand a rest")
    # Whatever is printed draws the bar again.
    assert 0 < shown.rindex("half a line") < shown.rindex("epoch 1 ")
    assert "and a rest" not in screen.show(Progress(3, 2, 1, 60))
    screen.display.close()
    shown = screen.errors.getvalue().decode()
    assert "160/200" in shown
    assert shown.endswith("and a rest")


def test_the_bar_is_gone_before_the_result_is_printed() -> None:
    screen = Screen(terminal=True)
    screen.show(*BEGIN)
    show_cursor = "\x1b[?25h"
    assert show_cursor not in screen.errors.getvalue().decode()
    screen.display.printed(b"result", error=False)
    assert show_cursor in screen.show()


def test_one_line_of_ours_is_one_line() -> None:
    screen = Screen(terminal=False)
    screen.display.say("rank 0 on a: several\nlines  of text")
    assert screen.errors.getvalue() == b"parallel-core: rank 0 on a: several lines of text\n"
