"""Processes that are alive together: one computes at a time, an experiment is measured everywhere
before the next one begins, and one that hangs or dies costs the others nothing.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from parallel_core.compare.living_processes import Command, Living, live
from parallel_core.system.errors import REFUSED

PROGRAM = """
import os, signal, sys
from parallel_core.measurement.starter import NOTHING_MORE, Starter

name, ended_on, log, misfortune = sys.argv[1:]

def note(event):
    with open(log, "a") as file:
        file.write(f"{name} {event}\\n")

starter = Starter(int(ended_on))
note(f"process {os.getpid()}")
assert starter.next_asked() == "experiment 0"
starter.end_turn()
while (asked := starter.next_asked()) != NOTHING_MORE:
    experiment = int(asked.removeprefix("experiment "))
    for number in range(2 if name == "a" else 3):
        note(f"begins {experiment}")
        if experiment == 1 and misfortune:
            os.kill(os.getpid(), getattr(signal, misfortune))
        note(f"ends {experiment}")
        starter.end_turn(0.0)
    print(f"result {experiment}", flush=True)
    starter.end_experiment()
"""


class Log:
    """What the programs noted, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def of(self, *events: str) -> list[list[str]]:
        lines = [line.split() for line in self.path.read_text().splitlines()]
        return [line for line in lines if line[1] in events]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")


def command(name: str, log: Log, misfortune: str = "", deadline: float = 60.0) -> Command:
    def words(ended_on: int) -> list[str]:
        return [sys.executable, "-c", PROGRAM, name, str(ended_on), str(log.path), misfortune]

    return Command(words, ask(0, 0), range(2), deadline)


def ask(_: int, experiment: int) -> str:
    return f"experiment {experiment}"


def lived(*commands: Command) -> tuple[Sequence[Living], list[list[str]]]:
    """Return the processes when all have ended, and what they had printed at each new result."""
    printed: list[list[str]] = []

    def on_result(processes: Sequence[Living]) -> None:
        printed.append([process.output for process in processes])

    return asyncio.run(live(commands, set(), ask, on_result)), printed


def status(process: Living) -> int | None:
    """Return the exit status of a process that has ended."""
    return process.outcome and process.outcome.status


def test_one_computes_at_a_time_and_all_are_in_the_same_experiment(log: Log) -> None:
    processes, printed = lived(*(command(name, log) for name in "abc"))
    assert [status(process) for process in processes] == [0, 0, 0]

    noted = log.of("begins", "ends")
    for (name, event, _), (next_name, next_event, _) in pairwise(noted):
        assert (event, next_event) in {("begins", "ends"), ("ends", "begins")}
        assert event == "ends" or name == next_name
    experiments = [experiment for _, _, experiment in noted]
    assert experiments == sorted(experiments)
    assert len(noted) == 2 * 2 * (2 + 3 + 3)
    # Every second time the order is reversed.
    assert [name for name, event, _ in noted if event == "begins"][:8] == [*"abc", *"cba", *"bc"]

    assert [line.count("result") for line in map("".join, printed)] == [1, 2, 3, 4, 5, 6]
    for process in processes:
        assert 0 < process.loading < process.seconds
        assert process.output == "result 0\nresult 1\n"


@pytest.mark.parametrize(
    ("misfortune", "bad_status", "timed_out"),
    [("SIGSTOP", -signal.SIGKILL, True), ("SIGSEGV", -signal.SIGSEGV, False)],
)
def test_one_that_is_stopped_or_crashes_in_its_turn_is_given_up_alone(
    log: Log, misfortune: str, bad_status: int, timed_out: bool
) -> None:
    (bad, good), _ = lived(command("a", log, misfortune, deadline=5.0), command("b", log))
    assert bad.outcome is not None
    assert (bad.outcome.status, bad.outcome.timed_out) == (bad_status, timed_out)
    assert bad.output == "result 0\n"
    assert status(good) == 0
    assert good.output == "result 0\nresult 1\n"


def test_one_that_is_killed_while_it_waits_is_given_up_alone(log: Log) -> None:
    results = 0

    def on_result(_: Sequence[Living]) -> None:
        nonlocal results
        results += 1
        if results == 1:
            (process,) = [int(line[2]) for line in log.of("process") if line[0] == "b"]
            os.kill(process, signal.SIGKILL)

    good, bad = asyncio.run(live([command("a", log), command("b", log)], set(), ask, on_result))
    assert status(bad) == -signal.SIGKILL
    assert status(good) == 0


def test_one_that_cannot_be_started_is_refused_alone(log: Log) -> None:
    missing = Command(lambda _: ["/nowhere/python"], "", range(2), 1.0)
    (bad, good), _ = lived(missing, command("b", log))
    assert bad.outcome is not None
    assert (bad.outcome.status, bad.output) == (REFUSED, "")
    assert bad.outcome.errors.startswith("/nowhere/python ")
    assert status(good) == 0


def test_nothing_is_left_of_processes_that_are_cancelled(log: Log) -> None:
    async def cancelled() -> None:
        commands = [command("a", log, "SIGSTOP"), command("b", log)]
        living = asyncio.create_task(live(commands, set(), ask, lambda _: None))
        while not (log.path.exists() and ["a", "begins", "1"] in log.of("begins")):
            await asyncio.sleep(0.01)
        living.cancel()
        with pytest.raises(asyncio.CancelledError):
            await living

    asyncio.run(cancelled())
    for _, _, process in log.of("process"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(process), 0)
