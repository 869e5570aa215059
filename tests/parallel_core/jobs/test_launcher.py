"""Jobs that end, well or badly: what is passed on, whom the one line names, and that nothing of them is left."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from parallel_core.jobs.launcher import launch_job
from parallel_core.system.errors import MeasurementError
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
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Launch a job of ranks that run this code."""

    def launched(code: str, *arguments: str | Path, restarts: int = 0, **changes: object) -> Done:
        job = job_of(code, *map(str, arguments))
        status = launch_job(replace(job, **changes), restarts=restarts)  # type: ignore[arg-type]
        output, errors = capfdbinary.readouterr()
        return Done(status, output, errors.decode())

    return launched


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the conclusion wait for a moment only, in jobs in which later news cannot change it."""
    monkeypatch.setattr("parallel_core.jobs.watch.LATE_NEWS_SECONDS", 0.2)


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
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            " was killed by SIGKILL after epoch 1, step 3; the system may have run",
        ),
        ("sys.exit(7)", " ended with status 7 after epoch 1, step 3; it said last: oh no"),
        ("os._exit(0)", " ended after epoch 1, step 3, before the other processes"),
        ("fail('the loss is nan')", ": the loss is nan"),
    ],
)
def test_the_cause_is_named_and_not_its_consequence(
    run: Run, end: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may start the ranks seconds apart.
    monkeypatch.setattr("parallel_core.jobs.watch.LATE_NEWS_SECONDS", 30.0)
    done = run(
        f"""
join(); step(3 + (rank == 0)); time.sleep(0.3 * rank)
if rank == 0: fail("the connection was closed by a peer", by_others=True)
faulthandler.disable(); print("oh no", file=sys.stderr, flush=True)
{end}
"""
    )
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


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize("keeps_port", [True, False])
def test_a_job_that_crashed_is_started_again_from_its_checkpoint(run: Run, keeps_port: bool, tmp_path: Path) -> None:
    keep = ("--checkpoint", "there")
    done = run(CRASHING, tmp_path / "log", *keep, restarts=2, processes=1, keeps_port=keeps_port)
    assert (done.status, done.output) == (0, b"result\n")
    lines = [
        line for line in done.errors.splitlines() if line.startswith("parallel-core: rank 0 was killed by SIGKILL")
    ]
    restarts = [f"restart {number} of 2, from the last checkpoint" for number in (1, 2)]
    assert [line.rpartition("; ")[2] for line in lines] == restarts
    ports, options = zip(*(line.split(" ", 1) for line in wait_for_lines(3, tmp_path / "log")), strict=True)
    assert options == (f"{[*keep]}", *[f"{[*keep, '--resume']}"] * 2)
    assert (len(set(ports)) == 1) is keeps_port


@pytest.mark.usefixtures("short_grace")
def test_restarts_come_to_an_end(run: Run, tmp_path: Path) -> None:
    done = run(CRASHING, tmp_path / "log", "--checkpoint=there", restarts=1, processes=1)
    assert (done.status, done.output) == (1, b"")
    assert done.errors.count("was killed by SIGKILL") == 2
    assert "restart" not in done.last


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize(
    ("end", "status"), [("fail('bad request', status=2)", 2), ("print('{}', flush=True); fail('invalid')", 1)]
)
def test_neither_a_refusal_nor_a_result_that_was_shown_is_tried_again(run: Run, end: str, status: int) -> None:
    done = run(f"join()\nif rank == 0: {end}\nwait()", "--checkpoint", "there", restarts=3)
    assert done.status == status
    assert "restart" not in done.errors
