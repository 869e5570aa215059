"""Run variants of the same work in processes that take turns, in interleaved rounds, and set them
side by side.

A round runs fresh processes one after the other (A B C, A B C, …). Or they live side by side and
work in turns, one at a time, while the others wait: a virtual machine's core has at least two
speeds, for a third of it is lost while a neighbour works on the other half of the physical one, for
seconds or minutes, and no counter of the guest says so. Processes that run one after the other are
timed in different states, and devices that meet in each step work at the speed of the slower core.
So turns are short and many, and the fastest ones of a round, in which nobody disturbed either side,
are compared; the median turns tell what the neighbours left.

If both sides were timed in one process, or in neighbouring processes of a round on the same core,
the ratio is taken there and the interval is over these ratios: the machine's drift and the
process's place in memory fall on both. Otherwise the interval is of two independent medians.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from statistics import median
from subprocess import PIPE
from threading import Timer
from typing import IO, Any, Literal

import click

from backends.host import core_numbers, on_cores
from parallel_core.measurement.confidence_intervals import Interval, median_interval
from parallel_core.system.formatting import library_in_words
from parallel_core.system.subprocesses import Outcome, kill_group

PRODUCT_RATE = "product_gflop_per_s"
"""The figure that parallel-core's results hold beside their metrics."""
ATTEMPTS = 3
DEADLINE = 180.0
"""Seconds that a process may take, or a turn of it."""
DONE = "done"
"""What a worker says when it is prepared, and after each turn."""


@dataclass(frozen=True)
class Variant:
    """One way to do the work. On `one` core it gets the first in odd rounds and the second in even
    ones.

    On `each` the command is run twice, on either core; both work at once and have their turns at
    once, the slower one gives the time, and processors' times add up.
    """

    name: str
    command: tuple[str, ...]
    cores: Literal["one", "both", "each"] = "both"


@dataclass(frozen=True)
class Measured:
    """What one process gave: seconds by case, figures, versions and kernels of what it ran."""

    seconds: Mapping[str, tuple[float, ...]]
    figures: Mapping[str, float]
    versions: Mapping[str, str]
    kernels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By framework, in words."""

    def median(self, case: str) -> float:
        """Return the median seconds of a case."""
        return median(self.seconds[case])


def worker(module: str, **arguments: object) -> tuple[str, ...]:
    """Make the command of a module in `benchmarks.workers`."""
    return (sys.executable, "-m", "benchmarks.workers", module, json.dumps(arguments))


def parallel_core(*arguments: object, python: str = sys.executable) -> tuple[str, ...]:
    """Make a command of parallel-core's own command line that writes its result to standard
    output.
    """
    return (python, "-P", "-m", "parallel_core", *map(str, arguments), "--json", "-")


def turns() -> Iterator[int]:
    """In a worker, yield the number of each turn, from 1, when it comes; meanwhile the work of it
    has to be done.

    A line on standard input gives it a turn, the end of the lines no more.
    """
    print(DONE, flush=True)
    for number, _ in enumerate(iter(sys.stdin.readline, ""), 1):
        yield number
        print(DONE, flush=True)


def take_turns(
    variants: Sequence[Variant], rounds: int, turns: int = 0
) -> dict[str, list[Measured]]:
    """Run every variant once a round and return what its processes gave, round by round.

    With a number of turns, a round's processes are started first and work in turns (see `turns`).
    What fails or gives a wrong result is run again, for the machine may have been disturbed; raises
    click.ClickException if that happens ATTEMPTS times in a row, and if there is a single core.
    """
    cores = core_numbers()[:2]
    if len(cores) < 2:
        raise click.ClickException("these benchmarks compare one core with two: two are needed")
    measured: dict[str, list[Measured]] = {variant.name: [] for variant in variants}
    for number in range(rounds):
        for together in [variants] if turns else [[variant] for variant in variants]:
            for attempt in range(ATTEMPTS):
                try:
                    found = _run(together, number, cores, turns, f"round {number + 1} of {rounds}")
                    break
                except click.ClickException as error:
                    if attempt == ATTEMPTS - 1:
                        raise
                    click.echo(f"{error.message}: another attempt", err=True)
            for name, one in found.items():
                measured[name].append(one)
    return measured


def _run(
    variants: Sequence[Variant], number: int, cores: Sequence[int], turns: int, title: str
) -> dict[str, Measured]:
    with ExitStack() as stack:
        teams: dict[str, list[_Worker]] = {}
        for variant in variants:
            click.echo(f"{title}: {variant.name}", err=True)
            chosen = {
                "one": [{cores[number % 2]}],
                "both": [set(cores)],
                "each": [{core} for core in cores],
            }
            teams[variant.name] = [
                stack.enter_context(_started(variant, some)) for some in chosen[variant.cores]
            ]
            for worker in teams[variant.name] if turns else ():
                worker.until_done()
        for turn in range(turns):
            click.echo(f"{title}: turn {turn + 1} of {turns}", err=True)
            for team in teams.values():
                for worker in team:
                    worker.take_turn()
                for worker in team:
                    worker.until_done()
        return {
            name: _together([worker.answer() for worker in team]) for name, team in teams.items()
        }


@dataclass
class _Worker:
    """A process, in a group of its own; `until_done` must return before it gets a turn."""

    name: str
    process: "subprocess.Popen[bytes]"
    errors: IO[bytes]
    timed_out: bool = False

    def take_turn(self) -> None:
        """Let it work."""
        with suppress(BrokenPipeError):
            self.process.stdin.write(b"\n")

    def until_done(self) -> None:
        """Return when it is prepared or has worked."""
        line = self._in_time(self.process.stdout.readline).decode().rstrip()
        if not line:
            raise click.ClickException(f"{self.name}: {self._outcome('').reason(DEADLINE)}")
        if line != DONE:
            raise click.ClickException(f"{self.name}: said {line!r} in place of {DONE!r}")

    def answer(self) -> Measured:
        """Give it no more turns, and return its answer."""
        self.process.stdin.close()
        output = self._in_time(lambda: (self.process.stdout.read(), self.process.wait())[0])
        return read_answer(self._outcome(output.decode()), self.name)

    def _in_time(self, read: Callable[[], bytes]) -> bytes:
        timer = Timer(DEADLINE, kill_group, [self.process.pid])
        timer.start()
        try:
            return read()
        finally:
            self.timed_out = self.timed_out or timer.finished.is_set()
            timer.cancel()

    def _outcome(self, output: str) -> Outcome:
        status = self.process.wait()
        self.errors.seek(0)
        return Outcome(status, output, self.errors.read().decode(errors="replace"), self.timed_out)


@contextmanager
def _started(variant: Variant, cores: set[int]) -> Iterator[_Worker]:
    with tempfile.TemporaryFile() as errors:
        with on_cores(cores):
            process = subprocess.Popen(
                variant.command,
                bufsize=0,
                stdin=PIPE,
                stdout=PIPE,
                stderr=errors,
                start_new_session=True,
            )
        with process:
            try:
                yield _Worker(variant.name, process, errors)
            finally:
                kill_group(process.pid)


def _together(team: Sequence[Measured]) -> Measured:
    """Return what processes that had their turns at once gave: the slowest one's times, and all
    processors' times.
    """
    return replace(
        team[0],
        seconds={
            case: tuple(
                map(
                    sum if case == "processor" else max,
                    zip(*(one.seconds[case] for one in team), strict=True),
                )
            )
            for case in team[0].seconds
        },
    )


def read_answer(outcome: Outcome, name: str) -> Measured:
    """Read what a worker or parallel-core printed; click.ClickException for a failure or a wrong
    result.
    """
    try:
        # A wrong result comes with status 1, impossible times with 3.
        answer = (
            None
            if outcome.timed_out or outcome.status not in (0, 1, 3)
            else json.loads(outcome.output)
        )
    except ValueError:
        answer = None
    if answer is None:
        raise click.ClickException(f"{name}: {outcome.reason(DEADLINE)}")
    if answer["problems"]:
        raise click.ClickException(f"{name}: wrong result: {answer['problems'][0]}")
    backend = answer.get("backend")
    sources = versions_and_kernels([backend]) if backend else answer
    return Measured(
        {case["name"]: tuple(case["seconds"]) for case in answer["cases"]},
        answer["metrics"] | ({PRODUCT_RATE: backend["product"]["gflop_per_s"]} if backend else {}),
        sources["versions"],
        sources.get("kernels", {}),
    )


def versions_and_kernels(backends: Collection[Mapping[str, Any]]) -> dict[str, Any]:
    """Return versions by framework, and the libraries that computed for it, of objects under
    results' `backend`.
    """
    return {
        "versions": {one["name"]: one["version"] for one in backends},
        "kernels": {
            one["name"]: [library_in_words(of) for of in one.get("kernels", ())] for one in backends
        },
    }


def refuse_disagreement(processes: Mapping[str, Sequence[Measured]], figure: str) -> None:
    """Raise click.ClickException if processes that did the same work give figures that differ by
    more than 1e-4.
    """
    values = [
        (one.figures[figure], name) for name, measured in processes.items() for one in measured
    ]
    (lowest, first), (highest, last) = min(values), max(values)
    # A value that is not a number fails this too.
    if not all(highest - value <= 1e-4 * abs(highest) for value, _ in values):
        raise click.ClickException(
            f"wrong result: the {figure} is {lowest:.6g} for {first} and {highest:.6g} for {last}"
        )


def paired(processes: Sequence[Measured], case: str, other: str) -> Interval:
    """Return the ratio of two cases' times that were taken in turn in the same processes.

    A process gives the median of the ratios of neighbouring repetitions.
    """
    return median_interval(
        [
            median(
                mine / theirs
                for mine, theirs in zip(one.seconds[case], one.seconds[other], strict=True)
            )
            for one in processes
        ]
    )


def ratio_of_turns(
    of: Callable[[Sequence[float]], float],
    values: Sequence[Measured],
    others: Sequence[Measured],
    case: str = "epoch",
) -> Interval:
    """Return the ratio of two variants' times of a case: `of` takes one of a round's turns, `min`
    the fastest.
    """
    return median_interval(
        [
            of(one.seconds[case]) / of(other.seconds[case])
            for one, other in zip(values, others, strict=True)
        ]
    )
