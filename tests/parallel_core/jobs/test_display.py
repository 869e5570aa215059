"""What of rank 0 reaches standard output and error, with a terminal and without."""

import io

import pytest
from rich.console import Console

from parallel_core.jobs.display import Display
from parallel_core.jobs.messages import Ended, FromAgent, Printed, Progress, Report, Reported, TrainedEpoch, Training


class Screen:
    """A display whose streams are kept; standard error of a terminal has its control sequences."""

    def __init__(self, terminal: bool) -> None:
        self.output, self.errors = io.BytesIO(), io.BytesIO()
        text = io.TextIOWrapper(self.errors, write_through=True)
        console = Console(file=text, force_terminal=terminal, force_interactive=terminal, highlight=False, width=100)
        self.display = Display(console, self.output, self.errors)
        self._text = text

    def show(self, *messages: FromAgent) -> str:
        """Show messages and return all of standard error so far."""
        for message in messages:
            self.display.show(message)
        return self.errors.getvalue().decode()


def reported(report: Report) -> FromAgent:
    return Reported("rank 0", report)


BEGIN = (reported(Training(2, 100)), reported(Progress(1, 1, 1, 40)))


@pytest.mark.parametrize("terminal", [True, False])
def test_standard_output_is_passed_on_as_it_is(terminal: bool) -> None:
    screen = Screen(terminal)
    screen.show(*BEGIN)
    assert not screen.display.printed
    for data in (b"{\xff\r", b"\n", b"[bold]x\x00"):
        screen.show(Printed("rank 0", data, error=False))
    assert screen.output.getvalue() == b"{\xff\r\n[bold]x\x00"
    assert screen.display.printed


@pytest.mark.parametrize("terminal", [True, False])
def test_of_other_ranks_nothing_is_shown(terminal: bool) -> None:
    screen = Screen(terminal)
    shown = screen.show(
        Printed("rank 1", b"x", error=False),
        Printed("rank 1", b"x", error=True),
        Reported("rank 1", Training(1, 1)),
        Reported("rank 1", TrainedEpoch("x")),
        Ended("rank 1", 0),
    )
    assert (shown, screen.output.getvalue()) == ("", b"")


def test_without_a_terminal_there_is_no_bar_and_errors_are_unchanged() -> None:
    screen = Screen(terminal=False)
    shown = screen.show(*BEGIN, Printed("rank 0", b"half a ", error=True), Printed("rank 0", b"line\n\n", error=True))
    screen.show(reported(TrainedEpoch("epoch 1: [red]" + "x" * 200)))
    screen.display.close()
    assert shown == "half a line\n\n"
    assert screen.errors.getvalue().decode() == f"half a line\n\nepoch 1: [red]{'x' * 200}\n"


def test_on_a_terminal_words_go_above_the_bar_in_whole_lines() -> None:
    screen = Screen(terminal=True)
    assert "half" not in screen.show(*BEGIN, Printed("rank 0", b"half a ", error=True))
    shown = screen.show(reported(Progress(2, 1, 2, 60)), Printed("rank 0", b"line\nand a rest", error=True))
    # Whatever is printed draws the bar again.
    assert 0 < shown.rindex("half a line") < shown.rindex("epoch 1 ")
    assert "and a rest" not in screen.show(reported(Progress(3, 2, 1, 60)))
    screen.display.close()
    shown = screen.errors.getvalue().decode()
    assert "160/200" in shown
    assert shown.endswith("and a rest")


def test_the_bar_is_gone_before_the_result_is_printed() -> None:
    screen = Screen(terminal=True)
    screen.show(*BEGIN)
    show_cursor = "\x1b[?25h"
    assert show_cursor not in screen.errors.getvalue().decode()
    assert show_cursor in screen.show(Printed("rank 0", b"result", error=False))


def test_one_line_of_ours_is_one_line() -> None:
    screen = Screen(terminal=False)
    screen.display.say("rank 0 on a: several\nlines  of text")
    assert screen.errors.getvalue() == b"parallel-core: rank 0 on a: several lines of text\n"


def test_the_last_error_is_known_however_it_was_cut() -> None:
    screen = Screen(terminal=False)
    assert screen.display.last_error == ""
    screen.show(Printed("rank 0", b"warning\nparallel-", error=True), Printed("rank 0", b"core: no\n", error=True))
    assert screen.display.last_error == "no"
