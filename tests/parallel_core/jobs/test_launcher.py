"""Jobs that end, well or badly: what is passed on, whom the one line names, and that nothing of them is left.

What of rank 0 reaches standard output and error, with a terminal and without.
"""

import io
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from parallel_core.jobs.job import News, Printed, Progress, TrainedEpoch, Training
from parallel_core.jobs.launcher import Display, launch_job
from parallel_core.system.errors import MeasurementError
from parallel_core.terminal.console import terminal_console
from tests.parallel_core.jobs.ranks import are_gone, job_of, wait_for_lines


class Done(NamedTuple):
    status: int
    output: bytes
    errors: str

    @property
    def last(self) -> str:
        return self.errors.splitlines()[-1]


Run = Callable[..., Done]


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Launch a job of ranks that run this code; after a failure news are waited for as long as `grace`."""

    def launched(code: str, *arguments: str | Path, restarts: int = 0, grace: float = 1.0, **changes: object) -> Done:
        monkeypatch.setattr("parallel_core.jobs.watch.LATE_NEWS_SECONDS", grace)
        job = job_of(code, *map(str, arguments))
        status = launch_job(replace(job, **changes), restarts=restarts)  # type: ignore[arg-type]
        output, errors = capfdbinary.readouterr()
        return Done(status, output, errors.decode())

    return launched


def test_rank_0_is_passed_on_as_it_is_and_the_others_are_not(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "123")
    done = run(
        """
join(); step(1)
if rank == 0:
    report("Training", epochs=1, images=8); report("TrainedEpoch", line="epoch 1: [loss] 0.5")
    os.write(1, b'{"x": 1}\\r\\n\\xff\\x00 no newline')
    os.write(1, f"{os.environ['COLUMNS']} {'FORCE_COLOR' in os.environ}".encode() + b"x" * 3_000_000)
os.write(2, f"words of {rank}\\n".encode()); os.write(1, f"rank {rank}".encode() * rank * 100_000)
"""
    )
    assert done.status == 0
    assert done.output == b'{"x": 1}\r\n\xff\x00 no newline123 False' + b"x" * 3_000_000
    assert sorted(done.errors.splitlines()) == ["epoch 1: [loss] 0.5", "words of 0"]


def test_many_reports_are_added_up(run: Run) -> None:
    code = "join(); report('Training', epochs=1, images=40000)\nfor n in range(5000): step(n + 1)"
    done = run(f"{code}\nsys.exit(3)", processes=1)
    assert "rank 0 ended with status 3 after epoch 1, step 5000;" in done.last


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", " was killed by SIGKILL after epoch 1, step 3; the system may"),
        ("sys.exit(7)", " ended with status 7 after epoch 1, step 3; it said last: oh no"),
        ("os._exit(0)", " ended after epoch 1, step 3, before the other processes"),
        ("fail('the loss is nan')", ": the loss is nan"),
    ],
)
def test_the_cause_is_named_not_consequences(run: Run, end: str, expected: str) -> None:
    code = f"""
join(); step(3 + (rank == 0)); time.sleep(0.3 * rank)
if rank == 0: fail("the connection was closed by a peer", by_others=True)
faulthandler.disable(); print("oh no", file=sys.stderr, flush=True)
{end}
"""
    # A busy machine may start the ranks seconds apart.
    done = run(code, grace=30.0)
    assert done.status == 1
    assert done.last.startswith(f"parallel-core: rank 1{expected}")
    # Its last words are shown, the line before the last.
    assert "── rank 1 said last ──\noh no\nparallel-core: " in done.errors


@pytest.mark.long
def test_a_hang_is_reported_with_the_stacks_and_nothing_is_left(run: Run, tmp_path: Path) -> None:
    code = """
note(os.getpid()); join(); step(1)
if rank == 0: step(2); wait()
if rank == 1: os.kill(os.getpid(), signal.SIGSTOP)
def stands_still(): time.sleep(1000)
stands_still()
"""
    done = run(code, tmp_path / "pids", processes=3, timeout=10)
    assert done.status == 1
    assert re.fullmatch(r"parallel-core: rank 1 did not answer for \d+ s after epoch 1, step 1", done.last)
    stacks = re.split(r"── stacks of rank ([0-2]) ──", done.errors)
    # The culprit comes last.
    assert stacks[1::2] == ["0", "2", "1"]
    assert "in wait" in stacks[2]
    assert "in stands_still" in stacks[4]
    assert stacks[6].startswith("\nit gave no stacks: it was stopped")
    assert are_gone(wait_for_lines(3, tmp_path / "pids"))


@pytest.mark.parametrize("own_words", ["", "print('parallel-core: no such set', file=sys.stderr, flush=True); "])
def test_a_refusal_is_one_line_without_a_rank(run: Run, own_words: str) -> None:
    done = run(f"{own_words}fail('no such set', status=2)")
    assert (done.status, done.output, done.errors) == (2, b"", "parallel-core: no such set\n")


def test_a_command_that_is_not_there_is_reported_at_once(run: Run) -> None:
    with pytest.raises(MeasurementError, match="rank 0 could not be started: no-such-program: No such file"):
        run("", command=("no-such-program",))


def test_a_child_that_holds_the_pipes_keeps_nobody_and_dies_with_its_group(run: Run, tmp_path: Path) -> None:
    done = run("join(); note(subprocess.Popen(['sleep', '1000']).pid)", tmp_path / "pids")
    assert done.status == 0
    assert are_gone(wait_for_lines(2, tmp_path / "pids"))


CRASHING = """
note(f"{os.environ['MASTER_PORT']} {sys.argv[2:]}"); join()
if len(open(sys.argv[1]).readlines()) < 3: os.kill(os.getpid(), signal.SIGKILL)
print("result")
"""


@pytest.mark.parametrize("keeps_port", [True, False])
def test_a_job_that_crashed_is_started_again_from_its_checkpoint(run: Run, keeps_port: bool, tmp_path: Path) -> None:
    keep = ("--checkpoint", "there")
    done = run(CRASHING, tmp_path / "log", *keep, restarts=2, grace=0.2, processes=1, keeps_port=keeps_port)
    assert (done.status, done.output) == (0, b"result\n")
    lines = [line for line in done.errors.splitlines() if line.startswith("parallel-core: rank 0 was killed by ")]
    restarts = [f"restart {number} of 2, from the last checkpoint" for number in (1, 2)]
    assert [line.rpartition("; ")[2] for line in lines] == restarts
    ports, options = zip(*(line.split(" ", 1) for line in wait_for_lines(3, tmp_path / "log")), strict=True)
    assert options == (f"{[*keep]}", *[f"{[*keep, '--resume']}"] * 2)
    assert (len(set(ports)) == 1) is keeps_port


def test_restarts_come_to_an_end(run: Run, tmp_path: Path) -> None:
    done = run(CRASHING, tmp_path / "log", "--checkpoint=there", restarts=1, grace=0.2, processes=1)
    assert (done.status, done.output) == (1, b"")
    assert done.errors.count("was killed by SIGKILL") == 2
    assert "restart" not in done.last


@pytest.mark.parametrize(
    ("end", "status"), [("fail('bad request', status=2)", 2), ("print('{}', flush=True); fail('invalid')", 1)]
)
def test_neither_a_refusal_nor_a_result_that_was_shown_is_tried_again(run: Run, end: str, status: int) -> None:
    done = run(f"join()\nif rank == 0: {end}\nwait()", "--checkpoint", "there", restarts=3, grace=0.2)
    assert done.status == status
    assert "restart" not in done.errors


BEGIN = (Training(2, 100), Progress(1, 1, 1, 40))
SHOW_CURSOR = "\x1b[?25h"


class Screen:
    """A display whose streams are kept; standard error of a terminal has its control sequences."""

    def __init__(self, terminal: bool) -> None:
        self.output, self._errors = io.BytesIO(), io.BytesIO()
        self._text = io.TextIOWrapper(self._errors, write_through=True)
        own = {"force_terminal": terminal, "force_interactive": terminal}
        console = terminal_console(file=self._text, width=100, **own)
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
        display = Display(terminal_console(), output, io.BytesIO())
        for data in (b"a result", b"and more"):
            display.show(Printed(data, error=False))
    assert display.has_output
