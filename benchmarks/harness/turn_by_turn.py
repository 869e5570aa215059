"""Run variants in processes that live side by side and work in turns: one at a time, while the others wait.

A virtual machine's core has at least two speeds: a third of it is lost while a neighbour works on the other half of the
physical one, for seconds or minutes, and no counter of the guest says so. Processes that run one after the other are
timed in different states, and devices that meet in each step work at the speed of the slower core. So turns are short
and many, and the fastest ones of a round, in which nobody disturbed either side, are compared; the median turns tell
what the neighbours left.
"""

import asyncio
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from statistics import median
from typing import IO

import click

from backends.host import core_numbers, on_cores
from benchmarks.harness.side_by_side import DEADLINE, Measured, Variant, read_answer
from benchmarks.harness.turns import DONE
from parallel_core.measurement.confidence_intervals import Interval, median_interval
from parallel_core.system.subprocesses import Outcome, kill_group

__all__ = ["ratio_of_fastest", "ratio_of_medians", "work_in_turns"]


def work_in_turns(variants: Sequence[Variant], rounds: int, turns: int) -> dict[str, list[Measured]]:
    """Start every variant's process once a round, give each so many turns, and return what they gave, round by round.

    Their commands are of workers that take turns (`benchmarks.harness.turns`). A variant on `each` core is a process on
    either core; both have their turns at once, the slower one gives the time, and processors' times add up. Raises
    click.ClickException for a process that fails or gives a wrong result, and if there is a single core.
    """
    cores = core_numbers()[:2]
    if len(cores) < 2:
        raise click.ClickException("these benchmarks compare one core with two: two are needed")
    measured: dict[str, list[Measured]] = {variant.name: [] for variant in variants}
    for turn in range(rounds):
        for name, one in asyncio.run(_round(variants, turn, cores, turns, f"round {turn + 1} of {rounds}")).items():
            measured[name].append(one)
    return measured


def ratio_of_fastest(values: Sequence[Measured], others: Sequence[Measured], case: str = "epoch") -> Interval:
    """Return the ratio of two variants' times of a case, each in its fastest turn of a round."""
    return _ratio(values, others, case, min)


def ratio_of_medians(values: Sequence[Measured], others: Sequence[Measured], case: str = "epoch") -> Interval:
    """Return the ratio of two variants' times of a case, each in the median of its turns of a round."""
    return _ratio(values, others, case, median)


def _ratio(
    values: Sequence[Measured], others: Sequence[Measured], case: str, of: Callable[[Sequence[float]], float]
) -> Interval:
    return median_interval(
        [of(one.seconds[case]) / of(other.seconds[case]) for one, other in zip(values, others, strict=True)]
    )


async def _round(
    variants: Sequence[Variant], number: int, cores: Sequence[int], turns: int, title: str
) -> dict[str, Measured]:
    async with AsyncExitStack() as stack:
        teams: dict[str, list[_Worker]] = {}
        for variant in variants:
            click.echo(f"{title}: {variant.name}", err=True)
            teams[variant.name] = [
                await stack.enter_async_context(_started(variant, chosen))
                for chosen in _cores_of(variant, number, cores)
            ]
            await asyncio.gather(*(worker.until_done() for worker in teams[variant.name]))
        for turn in range(turns):
            click.echo(f"{title}: turn {turn + 1} of {turns}", err=True)
            for team in teams.values():
                await asyncio.gather(*(worker.take_turn() for worker in team))
        return {name: _together([await worker.answer() for worker in team]) for name, team in teams.items()}


def _cores_of(variant: Variant, number: int, cores: Sequence[int]) -> list[set[int]]:
    match variant.cores:
        case "one":
            return [{cores[number % len(cores)]}]
        case "both":
            return [set(cores)]
        case "each":
            return [{core} for core in cores]


@dataclass(frozen=True)
class _Worker:
    """A process that waits for its turns; `until_done` must return before it gets one."""

    name: str
    process: asyncio.subprocess.Process
    turns: asyncio.StreamWriter
    output: asyncio.StreamReader
    errors: IO[bytes]

    async def take_turn(self) -> None:
        """Let it work, and return when it has."""
        self.turns.write(b"\n")
        await self.until_done()

    async def until_done(self) -> None:
        """Return when it is prepared or has worked."""
        line = await self._in_time(self.output.readline())
        if not line:
            raise click.ClickException(f"{self.name}: {(await self._end('')).reason(DEADLINE)}")
        if line.decode().rstrip() != DONE:
            raise click.ClickException(f"{self.name}: said {line.decode().rstrip()!r} in place of {DONE!r}")

    async def answer(self) -> Measured:
        """Give it no more turns, and return its answer."""
        self.turns.close()
        output = await self._in_time(self.output.read())
        return read_answer(await self._end(output.decode()), self.name)

    async def _in_time(self, reading: Awaitable[bytes]) -> bytes:
        try:
            return await asyncio.wait_for(reading, DEADLINE)
        except TimeoutError:
            raise click.ClickException(f"{self.name}: gave nothing within {DEADLINE:g} s and was killed") from None

    async def _end(self, output: str) -> Outcome:
        status = await self.process.wait()
        self.errors.seek(0)
        return Outcome(status, output, self.errors.read().decode(errors="replace"), timed_out=False)


@asynccontextmanager
async def _started(variant: Variant, cores: set[int]) -> AsyncIterator[_Worker]:
    with tempfile.TemporaryFile() as errors:
        with on_cores(cores):
            process = await asyncio.create_subprocess_exec(
                *variant.command, stdin=PIPE, stdout=PIPE, stderr=errors, start_new_session=True
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield _Worker(variant.name, process, process.stdin, process.stdout, errors)
        finally:
            kill_group(process.pid)
            await process.wait()


def _together(team: Sequence[Measured]) -> Measured:
    """Return what processes that had their turns at once gave: the slowest one's times, and all processors' times."""
    first, *others = team
    if not others:
        return first
    combined: Mapping[str, tuple[float, ...]] = {
        case: tuple(map(sum if case == "processor" else max, zip(*(one.seconds[case] for one in team), strict=True)))
        for case in first.seconds
    }
    return Measured(combined, first.figures, first.versions, first.problems, first.kernels)
