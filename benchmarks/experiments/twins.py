"""How often cells of a comparison are called different from themselves, experiment by experiment.

    python -m benchmarks.experiments.twins --rounds 5
    python -m benchmarks.experiments.twins --rounds 5 --spinning 1

Each round has four processes of one framework and engine, which measure the demonstrations in
turns, as those of a quick comparison do. They are the same, so each difference that is found is
false. Differences are those of `parallel-core compare`, from every choice of 2, 3 and 5 rounds:
choices share processes, so the shares are less certain than their numbers say.
"""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

import click

from backends.host import core_numbers
from benchmarks.experiments.under_load import MOST_SPINNING, spinning
from benchmarks.harness.findings import read_json, results_folder, write_text
from benchmarks.harness.targets import markdown_table
from parallel_core.comparison.account import loudness_of, time_difference
from parallel_core.comparison.cells import Cell, CellResults
from parallel_core.comparison.living_processes import Command, live
from parallel_core.comparison.plan import Plan
from parallel_core.experiments import EXPERIMENTS
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
DIFFERENT = ("faster", "slower")

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
    """Return one cell's twins: the results at a place of each process, round by round."""
    twins = []
    for number, processes in enumerate(zip(*rounds, strict=True)):
        results = tuple(of_process[place] for of_process in processes)
        cell = Cell(results[0].experiment, f"twin {number}", "async")
        twins.append(CellResults(cell, results))
    return twins


def chosen(twins: Sequence[CellResults], rounds: Sequence[int]) -> Twins:
    """Return the twins with some of their rounds only."""
    return [replace(one, results=tuple(one.results[turn] for turn in rounds)) for one in twins]


def false_differences(twins_by_place: Sequence[Twins]) -> Iterator[dict[str, Any]]:
    """Count for each experiment and number of rounds the pairs that are called different."""
    rounds = len(twins_by_place[0][0].results)
    for count in CHOSEN_ROUNDS:
        if count > rounds:
            continue
        differences: dict[str, list[bool]] = {}
        for choice in combinations(range(rounds), count):
            of_choice = [chosen(twins, choice) for twins in twins_by_place]
            loudness = loudness_of(one for twins in of_choice for one in twins)
            for twins in of_choice:
                experiment = EXPERIMENTS[twins[0].cell.experiment]
                for one, other in combinations(twins, 2):
                    found = time_difference(one, other, experiment.case, loudness=loudness)
                    differences.setdefault(experiment.name, []).append(found.verdict in DIFFERENT)
        for name, are_different in differences.items():
            yield {
                "experiment": name,
                "processes": count,
                "pairs": len(are_different),
                "different": sum(are_different),
            }


def table(document: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Make a table: a row for each experiment and machine, a column for each number of
    processes.
    """
    rows: dict[tuple[str, str], list[str]] = {}
    for title, counts in document.items():
        for one in counts:
            share = f"{one['different']} of {one['pairs']}"
            rows.setdefault((title, one["experiment"]), []).append(share)
    headings = ["", "experiment", *(f"{count} processes" for count in CHOSEN_ROUNDS)]
    lines = []
    for key, shares in rows.items():
        missing = ["–"] * (len(CHOSEN_ROUNDS) - len(shares))
        lines.append([*key, *shares, *missing])
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
    counts: dict[str, list[dict[str, Any]]] = read_json(path)["twins"] if path.exists() else {}
    for backend in ("mxnet", "torch"):
        plan = plan_of(backend)
        measured = []
        with spinning(spinners):
            for turn in range(rounds):
                click.echo(f"{backend}: round {turn + 1} of {rounds}", err=True)
                measured.append(measure_round(plan, TWINS))
        twins_by_place = [twins_of(measured, place) for place in range(len(plan.cells))]
        counts[f"{backend}, {spinners} spinning"] = list(false_differences(twins_by_place))
        machine = describe_machine()
        write_json(path, {"schema": 1, "benchmark": NAME, "machine": machine, "twins": counts})
        write_text(path.with_suffix(".md"), f"{table(counts)}\n")


if __name__ == "__main__":
    main()
