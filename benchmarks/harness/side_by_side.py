"""Run variants of the same work in processes that take turns, in interleaved rounds, and set them
side by side.

A round runs fresh processes one after the other (A B C, A B C, …). Or they live side by side and
work in turns, one at a time, while the others wait: a virtual machine's core has at least two
speeds, for a third of it is lost while a neighbour works on the other half of the physical one, for
seconds or minutes, and no counter of the guest says so. Processes that run one after the other are
timed in different states, and devices that meet in each step work at the speed of the slower core.
So turns are short and many, and the fastest ones of a round, in which nobody disturbed either side,
are compared.

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
ANSWERED = (0, 1, 3)
"""The statuses of processes that answered: 1 is of a wrong result, 3 of impossible times."""


@dataclass(frozen=True)
class Variant:
    """One way to do the work. On `one` core it gets the first in odd rounds and the second in even
    ones.

    On `each` the command is run twice, on either core; both work at once and have their turns at
    once, and the slower one gives the time.
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
    if len(core_numbers()) < 2:
        raise click.ClickException("these benchmarks compare one core with two: two are needed")
    measured: dict[str, list[Measured]] = {variant.name: [] for variant in variants}
    living_together = [variants] if turns else [[variant] for variant in variants]
    for number in range(rounds):
        title = f"round {number + 1} of {rounds}"
        for group in living_together:
            for name, process in _run_again_if_disturbed(group, number, turns, title).items():
                measured[name].append(process)
    return measured


def _run_again_if_disturbed(
    variants: Sequence[Variant], number: int, turns: int, title: str
) -> dict[str, Measured]:
    for _ in range(ATTEMPTS - 1):
        try:
            return _run(variants, number, turns, title)
        except click.ClickException as error:
            click.echo(f"{error.message}: another attempt", err=True)
    return _run(variants, number, turns, title)


def _run(variants: Sequence[Variant], number: int, turns: int, title: str) -> dict[str, Measured]:
    """Run processes that live together, in the round of this number, counted from 0."""
    teams: dict[str, list[_Worker]] = {}
    with ExitStack() as stack:
        for variant in variants:
            click.echo(f"{title}: {variant.name}", err=True)
            teams[variant.name] = [
                stack.enter_context(_started(variant, cores))
                for cores in _cores_of(variant, number)
            ]
            if turns:
                _wait_for(teams[variant.name])
        for turn in range(turns):
            click.echo(f"{title}: turn {turn + 1} of {turns}", err=True)
            for team in teams.values():
                for worker in team:
                    worker.take_turn()
                _wait_for(team)
        measured = {}
        for name, team in teams.items():
            measured[name] = _slowest_of([worker.answer() for worker in team])
        return measured


def _cores_of(variant: Variant, number: int) -> list[set[int]]:
    """Return the cores of each process of a variant, in the round of this number."""
    cores = core_numbers()[:2]
    if variant.cores == "one":
        return [{cores[number % 2]}]
    if variant.cores == "each":
        return [{core} for core in cores]
    return [set(cores)]


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
        output = self._in_time(self._rest_of_output)
        return read_answer(self._outcome(output.decode()), self.name)

    def _rest_of_output(self) -> bytes:
        output: bytes = self.process.stdout.read()
        self.process.wait()
        return output

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


def _wait_for(team: Sequence[_Worker]) -> None:
    for worker in team:
        worker.until_done()


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


def _slowest_of(team: Sequence[Measured]) -> Measured:
    """Return what processes that had their turns at once gave: each time is the slowest one's."""
    seconds = {}
    for case in team[0].seconds:
        times = [process.seconds[case] for process in team]
        seconds[case] = tuple(map(max, zip(*times, strict=True)))
    return replace(team[0], seconds=seconds)


def read_answer(outcome: Outcome, name: str) -> Measured:
    """Read what a worker or parallel-core printed; click.ClickException for a failure or a wrong
    result.
    """
    answer = None
    if not outcome.timed_out and outcome.status in ANSWERED:
        with suppress(ValueError):
            answer = json.loads(outcome.output)
    if answer is None:
        raise click.ClickException(f"{name}: {outcome.reason(DEADLINE)}")
    if answer["problems"]:
        raise click.ClickException(f"{name}: wrong result: {answer['problems'][0]}")
    seconds = {case["name"]: tuple(case["seconds"]) for case in answer["cases"]}
    figures = dict(answer["metrics"])
    sources = answer
    if backend := answer.get("backend"):
        figures[PRODUCT_RATE] = backend["product"]["gflop_per_s"]
        sources = versions_and_kernels([backend])
    return Measured(seconds, figures, sources["versions"], sources.get("kernels", {}))


def versions_and_kernels(backends: Collection[Mapping[str, Any]]) -> dict[str, Any]:
    """Return versions by framework, and the libraries that computed for it, of objects under
    results' `backend`.
    """
    versions, kernels = {}, {}
    for backend in backends:
        versions[backend["name"]] = backend["version"]
        libraries = backend.get("kernels", ())
        kernels[backend["name"]] = [library_in_words(library) for library in libraries]
    return {"versions": versions, "kernels": kernels}


def refuse_disagreement(processes: Mapping[str, Sequence[Measured]], figure: str) -> None:
    """Raise click.ClickException if processes that did the same work give figures that differ by
    more than 1e-4.
    """
    values = []
    for name, measured in processes.items():
        values += [(process.figures[figure], name) for process in measured]
    (low, name_of_low), (high, name_of_high) = min(values), max(values)
    # A value that is not a number fails this too.
    if not all(high - value <= 1e-4 * abs(high) for value, _ in values):
        raise click.ClickException(
            f"wrong result: the {figure} is {low:.6g} for {name_of_low} and {high:.6g} for "
            f"{name_of_high}"
        )


def paired(processes: Sequence[Measured], case: str, other: str) -> Interval:
    """Return the ratio of two cases' times that were taken in turn in the same processes.

    A process gives the median of the ratios of neighbouring repetitions.
    """
    medians = []
    for process in processes:
        pairs = zip(process.seconds[case], process.seconds[other], strict=True)
        medians.append(median(seconds / other_seconds for seconds, other_seconds in pairs))
    return median_interval(medians)


def ratio_of_fastest(processes: Sequence[Measured], others: Sequence[Measured]) -> Interval:
    """Return the ratio of two variants' epochs, of each in a round's fastest turn."""
    ratios = []
    for process, other in zip(processes, others, strict=True):
        ratios.append(min(process.seconds["epoch"]) / min(other.seconds["epoch"]))
    return median_interval(ratios)


def values_of(processes: Sequence[Measured], figure: str) -> list[float]:
    """Return a figure of each process."""
    return [process.figures[figure] for process in processes]


def medians_of(processes: Sequence[Measured], case: str) -> list[float]:
    """Return the median seconds of a case of each process."""
    return [process.median(case) for process in processes]
