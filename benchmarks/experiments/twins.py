"""How often cells of a comparison are called different from themselves, experiment by experiment.

    python -m benchmarks.experiments.twins --rounds 5
    python -m benchmarks.experiments.twins --rounds 5 --spinning 1

Each round has four processes of one framework and engine, which measure the demonstrations in
turns, as those of a quick comparison do. They are the same, so each difference that is found is
false. Differences are those of `parallel-core compare`, from every choice of 2, 3 and 5 rounds:
choices share processes, so the shares are less certain than their numbers say.

One such process lives alone in each round, too: a process that takes turns meets caches that others
have filled, and what it measures may take longer by that.
"""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import click

from backends.host import core_numbers
from benchmarks.experiments.demonstrations import DECIDED
from benchmarks.experiments.under_load import MOST_SPINNING, spinning
from benchmarks.harness.findings import read_json, results_folder, write_text
from benchmarks.harness.targets import markdown_table
from parallel_core.comparison.account import loudness_of, time_difference
from parallel_core.comparison.cells import Cell, CellResults
from parallel_core.comparison.living_processes import Command, live
from parallel_core.comparison.plan import Plan
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.differences import Noise, ratio_interval
from parallel_core.measurement.fresh_process import measured_in
from parallel_core.measurement.result import Result
from parallel_core.system.files import write_json
from parallel_core.system.machine import describe_machine

NAME = "experiments/twins"
DEMONSTRATIONS = ("async", "parallel", "overlap", "data-parallel")
TWINS = 4
CHOSEN_ROUNDS = (2, 3, 5)
DEADLINE = 600.0
"""The seconds that a process may compute."""
SECOND_ROUND = 2
"""Nothing is counted or traced in it, nor in those after it."""

Twins: TypeAlias = list[CellResults]
"""The results of cells of one experiment that are the same but for their number."""


def plan_of(backend: str) -> Plan:
    """Plan quick comparisons of a backend with queues."""
    return Plan(
        experiments=tuple(EXPERIMENTS[name] for name in DEMONSTRATIONS),
        backends=(backend,),
        engines=("async",),
        interpreters={backend: sys.executable},
        mode="quick",
        shared=True,
        device_kind="cpu",
    )


def measure_round(plan: Plan, processes: int) -> list[list[Result]]:
    """Run so many of the plan's process side by side, in turns; return the results of each."""
    words = partial(plan.command, plan.cells, {}, SECOND_ROUND)
    command = Command(words, steps=list(range(len(plan.cells))), deadline=DEADLINE)
    living = asyncio.run(live([command] * processes, set(core_numbers()), lambda _: None))
    measured = []
    for process in living:
        results = list(measured_in(process.output))
        if process.outcome is not None and len(results) < len(plan.cells):
            raise click.ClickException(process.outcome.reason(DEADLINE))
        measured.append(results)
    return measured


def twins_of(rounds: Sequence[Sequence[Sequence[Result]]], place: int) -> Twins:
    """Return one cell's twins: the results at a place of each process, round by round.

    Rounds in which one of them is invalid are left out.
    """
    valid = [
        processes
        for processes in rounds
        if not any(of_process[place].problems for of_process in processes)
    ]
    twins = []
    for number, processes in enumerate(zip(*valid, strict=True)):
        results = tuple(of_process[place] for of_process in processes)
        cell = Cell(results[0].experiment, f"twin {number}", "async")
        twins.append(CellResults(cell, results))
    return twins


def chosen(twins: Sequence[CellResults], rounds: Sequence[int]) -> Twins:
    """Return the twins with some of their rounds only, those that are left."""
    left = [turn for turn in rounds if turn < len(twins[0].results)]
    return [replace(one, results=tuple(one.results[turn] for turn in left)) for one in twins]


def false_differences(twins: Twins, of_all: Sequence[Twins]) -> Iterator[dict[str, Any]]:
    """Count for each number of rounds the pairs that are called different.

    As in a comparison, the twins of all experiments say how loud it is.
    """
    experiment = EXPERIMENTS[twins[0].cell.experiment]
    rounds = range(len(twins[0].results))
    for count in CHOSEN_ROUNDS:
        pairs = different = 0
        for choice in combinations(rounds, count):
            noises = loudness_of(chain(*(chosen(others, choice) for others in of_all)))
            for one, other in combinations(chosen(twins, choice), 2):
                found = time_difference(one, other, experiment.case, noises=noises)
                pairs += 1
                different += found.verdict in DECIDED
        if pairs:
            yield {
                "experiment": experiment.name,
                "processes": count,
                "pairs": pairs,
                "different": different,
            }


def beside_others(twins: Twins, alone: CellResults) -> dict[str, Any]:
    """Return how many times as long a cell's case takes in a process that takes turns as in one
    that lives alone.
    """
    experiment = EXPERIMENTS[alone.cell.experiment]
    times_of_twins = [one.medians(experiment.case) for one in twins]
    beside = [median(times) for times in zip(*times_of_twins, strict=True)]
    ratio = ratio_interval(
        beside, alone.medians(experiment.case), Noise(experiment.usual_deviation)
    )
    return {"experiment": experiment.name, "beside": [ratio.estimate, ratio.low, ratio.high]}


def table(document: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Make a table: a row for each experiment and machine, a column for each number of
    processes.
    """
    rows: dict[tuple[str, str], list[str]] = {}
    ratios: dict[tuple[str, str], str] = {}
    for title, found in document.items():
        for one in found:
            key = (title, one["experiment"])
            if "beside" in one:
                estimate, low, high = one["beside"]
                ratios[key] = f"{estimate:.2f} ({low:.2f}–{high:.2f})"
            else:
                rows.setdefault(key, []).append(f"{one['different']} of {one['pairs']}")
    columns = [f"{count} processes" for count in CHOSEN_ROUNDS]
    headings = ["", "experiment", *columns, "time beside others / alone"]
    lines = []
    for key, shares in rows.items():
        missing = ["–"] * (len(CHOSEN_ROUNDS) - len(shares))
        lines.append([*key, *shares, *missing, ratios.get(key, "–")])
    return markdown_table(headings, lines)


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=results_folder)
@click.option("--spinning", "spinners", type=click.IntRange(0, MOST_SPINNING), default=0)
@click.option("--rounds", type=click.IntRange(min(CHOSEN_ROUNDS), 20), default=5)
def main(out: Path, spinners: int, rounds: int) -> None:
    """Measure twins on MXNet and PyTorch beside so many spinning processes, and add them to
    OUT/experiments/twins.json.
    """
    path = out / f"{NAME}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[dict[str, Any]]] = read_json(path)["twins"] if path.exists() else {}
    for backend in ("mxnet", "torch"):
        plan = plan_of(backend)
        measured = []
        with spinning(spinners):
            for turn in range(rounds):
                click.echo(f"{backend}: round {turn + 1} of {rounds}", err=True)
                # The last one of a round lives alone.
                measured.append([*measure_round(plan, TWINS), *measure_round(plan, 1)])
        twins_by_place, found_here = [], []
        for place in range(len(plan.cells)):
            *twins, alone = twins_of(measured, place)
            twins_by_place.append(twins)
            found_here.append(beside_others(twins, alone))
        for twins in twins_by_place:
            found_here += false_differences(twins, twins_by_place)
        found[f"{backend}, {spinners} spinning"] = found_here
        machine = describe_machine()
        write_json(path, {"schema": 1, "benchmark": NAME, "machine": machine, "twins": found})
        write_text(path.with_suffix(".md"), f"{table(found)}\n")


if __name__ == "__main__":
    main()
