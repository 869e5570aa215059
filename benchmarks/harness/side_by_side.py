"""Run variants of the same work in fresh processes, in interleaved rounds (A B C, A B C, …), and set them side by side.

A process gives its times by case. If both sides were timed in one process, or in neighbouring processes of a round
on the same core, the ratio is taken there and the interval is over these ratios: the machine's drift and the process's
place in memory fall on both. Otherwise the interval is of two independent medians.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

import click

from backends.host import core_numbers
from benchmarks.harness.provenance import libraries_in_words
from parallel_core.measurement.confidence_intervals import Interval, median_interval, ratio_interval
from parallel_core.system.subprocesses import Outcome, supervise

__all__ = [
    "PRODUCT_RATE",
    "Measured",
    "Variant",
    "difference_by_round",
    "independent",
    "launched",
    "paired",
    "parallel_core",
    "ratio_by_round",
    "read_answer",
    "refuse_disagreement",
    "scaled",
    "take_turns",
    "worker",
]

PRODUCT_RATE = "product_gflop_per_s"
"""The figure that parallel-core's results hold beside their metrics."""
ATTEMPTS = 3
DEADLINE = 180.0
"""Seconds that a process may take."""


@dataclass(frozen=True)
class Variant:
    """One way to do the work. On `one` core it gets the first in odd rounds and the second in even ones.

    On `each`, which only processes that take turns can be, the command is run twice.
    """

    name: str
    command: tuple[str, ...]
    cores: Literal["one", "both", "each"] = "both"


@dataclass(frozen=True)
class Measured:
    """What one process gave: seconds by case, figures, versions and kernels of what it ran, and why it is invalid."""

    seconds: Mapping[str, tuple[float, ...]]
    figures: Mapping[str, float]
    versions: Mapping[str, str]
    problems: tuple[str, ...] = ()
    kernels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By framework, in words."""

    def median(self, case: str) -> float:
        """Return the median seconds of the one case whose name begins so; raises KeyError for none or several."""
        matches = [seconds for name, seconds in self.seconds.items() if name.startswith(case)]
        if len(matches) != 1:
            raise KeyError(f"{len(matches)} cases begin with {case!r}, of {list(self.seconds)}")
        return median(matches[0])

    def as_json(self) -> dict[str, Any]:
        """Return the object that stands in a benchmark's `processes`."""
        return {
            "seconds": {name: list(values) for name, values in self.seconds.items()},
            "figures": dict(self.figures),
            "versions": dict(self.versions),
        }


def worker(module: str, **arguments: object) -> tuple[str, ...]:
    """Make the command of a module in `benchmarks.workers`."""
    return (sys.executable, "-m", f"benchmarks.workers.{module}", json.dumps(arguments))


def parallel_core(*arguments: object, python: str = sys.executable) -> tuple[str, ...]:
    """Make a command of parallel-core's own command line that writes its result to standard output."""
    return (python, "-P", "-m", "parallel_core", *map(str, arguments), "--json", "-")


def launched(*arguments: object) -> tuple[str, ...]:
    """Make a command that launches several processes, whose result goes to standard output; it ends with their own."""
    return (sys.executable, "-P", "-m", "parallel_core", "launch", *map(str, arguments), "--json", "-")


def take_turns(variants: Sequence[Variant], rounds: int) -> dict[str, list[Measured]]:
    """Run every variant once a round and return what its processes gave, round by round.

    A process that fails or gives a wrong result is replaced by another one, for the machine may have been disturbed;
    raises click.ClickException if that happens ATTEMPTS times in a row, and if there is a single core.
    """
    cores = core_numbers()[:2]
    if len(cores) < 2:
        raise click.ClickException("these benchmarks compare one core with two: two are needed")
    measured: dict[str, list[Measured]] = {variant.name: [] for variant in variants}
    for turn in range(rounds):
        for variant in variants:
            click.echo(f"round {turn + 1} of {rounds}: {variant.name}", err=True)
            chosen = {cores[turn % 2]} if variant.cores == "one" else set(cores)
            measured[variant.name].append(_run(variant, chosen))
    return measured


def _run(variant: Variant, cores: set[int], attempts: int = ATTEMPTS) -> Measured:
    try:
        return read_answer(asyncio.run(supervise(variant.command, DEADLINE, cores)), variant.name)
    except click.ClickException as error:
        if attempts == 1:
            raise
        click.echo(f"{error.message}: another attempt", err=True)
        return _run(variant, cores, attempts - 1)


def read_answer(outcome: Outcome, name: str) -> Measured:
    """Read what a worker or parallel-core printed; click.ClickException for a failure or a wrong result."""
    try:
        # A wrong result comes with status 1, impossible times with 3.
        answer = None if outcome.timed_out or outcome.status not in (0, 1, 3) else json.loads(outcome.output)
    except ValueError:
        answer = None
    if answer is None:
        raise click.ClickException(f"{name}: {outcome.reason(DEADLINE)}")
    if answer["problems"]:
        raise click.ClickException(f"{name}: wrong result: {answer['problems'][0]}")
    backend = answer.get("backend")
    return Measured(
        {case["name"]: tuple(case["seconds"]) for case in answer["cases"]},
        answer["metrics"] | ({PRODUCT_RATE: backend["product"]["gflop_per_s"]} if backend else {}),
        {backend["name"]: backend["version"]} if backend else answer["versions"],
        kernels={backend["name"]: libraries_in_words(backend)} if backend else answer.get("kernels", {}),
    )


def refuse_disagreement(processes: Mapping[str, Sequence[Measured]], figure: str) -> None:
    """Raise click.ClickException if processes that did the same work give figures that differ by more than 1e-4."""
    by_name = {name: one.figures[figure] for name, measured in processes.items() for one in measured}
    lowest, highest = (choose(by_name, key=by_name.__getitem__) for choose in (min, max))
    if not by_name[highest] - by_name[lowest] <= 1e-4 * abs(by_name[highest]):
        raise click.ClickException(
            f"wrong result: the {figure} is {by_name[lowest]:.6g} for {lowest} and {by_name[highest]:.6g} for {highest}"
        )


def paired(processes: Sequence[Measured], case: str, other: str) -> Interval:
    """Return the ratio of two cases' times that were taken in turn in the same processes.

    A process gives the median of the ratios of neighbouring repetitions.
    """
    return median_interval(
        [
            median(mine / theirs for mine, theirs in zip(one.seconds[case], one.seconds[other], strict=True))
            for one in processes
        ]
    )


def ratio_by_round(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Return the ratio of two variants' figures, taken in each round: both processes ran on the same cores."""
    return median_interval([value / other for value, other in zip(values, others, strict=True)])


def difference_by_round(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Return the difference of two variants' figures, taken in each round."""
    return median_interval([value - other for value, other in zip(values, others, strict=True)])


def scaled(interval: Interval, factor: float) -> Interval:
    """Return an interval in another unit."""
    return Interval(*(factor * value for value in (interval.estimate, interval.low, interval.high)))


def independent(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Return the ratio of two variants' figures from processes that have only the machine in common."""
    return ratio_interval(values, others)
