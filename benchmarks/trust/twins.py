"""How often cells of a comparison are called different from themselves, experiment by experiment.

    python -m benchmarks twins --spinning 1

Each round has four processes of one framework and engine, which measure the demonstrations in
turns, as those of a quick comparison do. They are the same, so each difference that is found is
false. Differences are those of `parallel-core compare`, from every choice of 2, 3 and 5 rounds:
choices share processes, so the shares are less certain than their intervals say.

One such process lives alone in each round too, before the others or after them: what it measures
may take another time than beside those that sleep meanwhile.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import median
from typing import TypeAlias

import click

from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.runs import spinning
from benchmarks.harness.targets import Finding, Target, share
from benchmarks.harness.turns import measured_in_turns
from parallel_core.compare.plan import Plan
from parallel_core.compare.results import Cell, CellResults
from parallel_core.compare.time_differences import loudness_of, time_difference
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.differences import Noise, ratio_interval
from parallel_core.measurement.request import Request as Asked
from parallel_core.measurement.result import Result

DEMONSTRATIONS = ("async", "parallel", "overlap", "data-parallel")
BACKENDS = ("mxnet", "torch")
TWINS = 4
CHOSEN_ROUNDS = (2, 3, 5)
DECIDED = ("faster", "slower")
SECOND_ROUND = 2
"""Nothing is counted or traced in it, nor in those after it."""

Twins: TypeAlias = list[CellResults]
"""The results of cells of one experiment that are the same but for their number."""


def measure(request: Request, spinners: int) -> Iterator[Report]:
    """Measure twins on each backend; what was found beside other numbers of spinning processes
    stays.
    """
    found = dict(request.stored.get("twins", {}))
    rounds = max(request.rounds, min(CHOSEN_ROUNDS))
    for backend in BACKENDS:
        asked = requests_of(backend, DEMONSTRATIONS[:1] if request.quick else DEMONSTRATIONS)
        measured = []
        with spinning(spinners):
            for number in range(rounds):
                click.echo(f"{backend}: round {number + 1} of {rounds}", err=True)
                measured.append(measure_round(asked, alone_first=number % 2 == 1))
        title = f"{backend}, {spinners} spinning"
        findings = findings_of(measured, len(asked))
        found[title] = [replace(one, name=f"{title}: {one.name}").as_json() for one in findings]
        all_findings = [Finding.from_json(one) for part in found.values() for one in part]
        yield Report(all_findings, data={"twins": found})


def requests_of(backend: str, demonstrations: Sequence[str]) -> dict[int, Asked]:
    """Return what a process of a quick comparison is asked for after the first round."""
    plan = Plan(
        experiments=tuple(EXPERIMENTS[name] for name in demonstrations),
        backends=(backend,),
        engines=("async",),
        interpreters={backend: sys.executable},
        mode="quick",
        shared=True,
        device_kind="cpu",
    )
    return {
        number: plan.request(cell, {}, turn=SECOND_ROUND) for number, cell in enumerate(plan.cells)
    }


def measure_round(asked: Mapping[int, Asked], alone_first: bool) -> list[list[Result]]:
    """Return the results of twins, and of a process that lives alone, which comes last in them."""
    if alone_first:
        alone = measured_in_turns([asked])
        return [*measured_in_turns([asked] * TWINS), *alone]
    return [*measured_in_turns([asked] * TWINS), *measured_in_turns([asked])]


def findings_of(
    rounds: Sequence[Sequence[Sequence[Result]]], experiments: int
) -> Iterator[Finding]:
    """List the false differences of each experiment, and how much longer it takes beside others."""
    all_twins, all_alone = [], []
    for number in range(experiments):
        *twins, alone = twins_of(rounds, number)
        all_twins.append(twins)
        all_alone.append(alone)
    for twins, alone in zip(all_twins, all_alone, strict=True):
        yield from false_differences(twins, all_twins)
        yield beside_others(twins, alone)


def twins_of(rounds: Sequence[Sequence[Sequence[Result]]], number: int) -> Twins:
    """Return one cell's twins: the results of this number of each process, round by round.

    Rounds in which one of them is invalid are left out.
    """
    of_cell = [[results[number] for results in processes] for processes in rounds]
    valid = [results for results in of_cell if not any(result.problems for result in results)]
    twins = []
    for twin, results in enumerate(zip(*valid, strict=True)):
        cell = Cell(results[0].experiment, f"twin {twin}", "async")
        twins.append(CellResults(cell, results))
    return twins


def chosen(twins: Sequence[CellResults], rounds: Sequence[int]) -> Twins:
    """Return the twins with some of their rounds only, those that are left."""
    left = [number for number in rounds if number < len(twins[0].results)]
    return [replace(twin, results=tuple(twin.results[number] for number in left)) for twin in twins]


def false_differences(twins: Twins, all_twins: Sequence[Twins]) -> Iterator[Finding]:
    """Count for each number of rounds the pairs that are called different.

    As in a comparison, the twins of all experiments say how loud it is.
    """
    experiment = EXPERIMENTS[twins[0].cell.experiment]
    rounds = range(len(twins[0].results))
    for count in CHOSEN_ROUNDS:
        pairs = different = 0
        for choice in combinations(rounds, count):
            cells: Twins = []
            for others in all_twins:
                cells += chosen(others, choice)
            noises = loudness_of(cells)
            for twin, other in combinations(chosen(twins, choice), 2):
                difference = time_difference(twin, other, experiment.case, noises=noises)
                pairs += 1
                different += difference.verdict in DECIDED
        if pairs:
            name = f"{experiment.name}, {count} processes: of {pairs} pairs called different"
            yield Finding(name, share(different, pairs), "%", Target("at most", 5))


def beside_others(twins: Twins, alone: CellResults) -> Finding:
    """Return how many times as long a cell's case takes in a process that takes turns as in one
    that lives alone.
    """
    experiment = EXPERIMENTS[alone.cell.experiment]
    times_of_twins = [twin.medians(experiment.case) for twin in twins]
    beside = [median(times) for times in zip(*times_of_twins, strict=True)]
    noise = Noise(experiment.usual_deviation)
    ratio = ratio_interval(beside, alone.medians(experiment.case), noise)
    return Finding(f"{experiment.name}: time beside others / alone", ratio)


MEASUREMENT = Measurement(
    file="trust/twins",
    title="Cells compared with themselves",
    question="How often are cells of a comparison called different from themselves?",
    method=Method(1, "2026-11-29", "every choice of 2, 3 and 5 rounds of four equal processes"),
    measure=measure,
    rounds=5,
    options=[click.option("--spinning", "spinners", type=click.IntRange(0, 64), default=0)],
)
