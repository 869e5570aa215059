"""How often a comparison is wrong: cells compared with themselves, and with a planted slow-down of
a tenth; how often the interval of a single cell misses the true median.

A slow-down is planted in the kernels, where the bare time grows with the whole, and in the queue,
where it does not: each has to be named by its own part of the time
(`parallel_core.comparison.account`) and by no other.

    python -m benchmarks.self_test --real 3 --out benchmarks/results/NAME

Synthetic cells have the noise of real ones: every process is off by a hundredth, one in fifty is
disturbed by up to a quarter, single repetitions are off by a hundredth and sometimes by a half, and
the machine drifts from round to round. Half of the variance between processes is common to a time
and its bare time, as are disturbances and drift. With --real N real cells follow, N trials on each
framework and engine: 50 products on each device and on both, run in rounds A B C, in processes that
take turns. A and B are the same, and C multiplies matrices of 496 instead of 480, which is 10 %
more work. Intervals and verdicts come from the code of `parallel-core compare`. The three cases of
a real trial come from the same processes.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np

from backends.host import core_numbers
from benchmarks.harness.findings import provenance, write_text
from benchmarks.harness.side_by_side import versions_and_kernels
from benchmarks.harness.targets import bounds, markdown_table
from parallel_core.comparison.account import in_same_rounds, loudness_of, time_difference
from parallel_core.comparison.cells import Cell, CellResults
from parallel_core.comparison.living_processes import Command, live
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import median_interval
from parallel_core.measurement.differences import FEWEST_PROCESSES, ratio_interval, verdict_on
from parallel_core.measurement.fresh_process import measured_in, measuring_command
from parallel_core.measurement.result import Case, Result
from parallel_core.system.files import write_json
from parallel_core.system.formatting import percent
from parallel_core.system.machine import describe_machine

PLANTED = 1.10
BARE = 0.8
"""The share of a synthetic time that is bare."""
SHARED = 0.5
"""The share of the variance between processes that a time and its bare time have in common."""
REPETITIONS = 5
REQUIRED, OF_REASONS = 0.95, 0.9
"""Shares of right verdicts, and of right reasons."""
SAME = "no difference shown"
HEADINGS = {
    "false": "called different from itself",
    "found": "planted 10 % found",
    "neither": "equal: no reason",
    "kernels_only": "slow operations: that reason alone",
    "queue_only": "slow queue: waiting alone",
}
"""What is counted of a kind of cells, and the column that it stands in: verdicts, then reasons."""
PROCESSES = range(2, 13)
"""How many processes the cells have whose intervals are counted."""
CELLS_OF_COVERAGE = 5000
"""Of each number of processes and each noise; one standard deviation of the share is then 0.3 %."""
CELLS_OF_TRUTH = 100_000
CASE = EXPERIMENTS["parallel"].case
CELL = Cell("parallel", "synthetic", "async")
DEADLINE = 600.0
"""The seconds that a real process may compute."""
Rates = dict[str, Any]
"""What a file holds of a kind: its name, the numbers of rounds and comparisons, and what was
counted of HEADINGS.

Older files have no reasons, and null for what was not counted.
"""


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logarithms, and shares; the machine takes a step of `drift` from round
    to round.
    """

    process: float
    disturbed: float
    repetition: float = 0.01
    spikes: float = 0.03
    drift: float = 0.01


NOISES = {"quiet": Noise(0.005, 0.01), "usual": Noise(0.01, 0.02), "loud": Noise(0.02, 0.04)}


def table_of(rates: Sequence[Rates], write: Callable[[int, int], str]) -> str:
    """Make a table of the kinds that were compared, each count and number of comparisons written by
    `write`.
    """
    shown = [one for one in rates if one["compared"]]
    columns = [name for name in HEADINGS if any(one.get(name) is not None for one in shown)]
    rows = [
        [one["name"], str(one["rounds"]), str(one["compared"])]
        + ["–" if one.get(name) is None else write(one[name], one["compared"]) for name in columns]
        for one in shown
    ]
    return markdown_table(
        ["cells", "rounds", "comparisons", *(HEADINGS[name] for name in columns)], rows
    )


def with_bounds(count: int, of: int) -> str:
    """Write a share with its bounds: `90 % (77 %–96 %)`."""
    return f"{percent(count / of)} ({bounds(count, of)})"


def processes(
    generator: np.random.Generator,
    noise: Noise,
    drift: np.ndarray,
    whole: float = 1.0,
    bare: float = BARE,
) -> CellResults:
    """Return the synthetic results of a cell, with its usual seconds: one for each step of the
    drift.
    """
    results = []
    for step in drift:
        off = step + generator.normal(0, noise.process * SHARED**0.5)
        if generator.random() < noise.disturbed:
            off += generator.uniform(0.03, 0.25)
        seconds, alone = (
            repetitions(generator, noise, usual * np.exp(off)) for usual in (whole, bare)
        )
        case = Case(CASE, seconds, seconds, bare_seconds=alone)
        results.append(Result("parallel", {}, {}, (case,), {}, {}, "", environment={}))
    return CellResults(CELL, tuple(results))


def repetitions(generator: np.random.Generator, noise: Noise, usual: float) -> tuple[float, ...]:
    """Return the seconds of what usually takes so many in other processes of this kind."""
    off = generator.normal(0, noise.process * (1 - SHARED) ** 0.5) + generator.normal(
        0, noise.repetition, REPETITIONS
    )
    off += (generator.random(REPETITIONS) < noise.spikes) * generator.uniform(
        0.05, 0.5, REPETITIONS
    )
    return tuple(float(one) for one in usual * np.exp(off))


def judge(case: str, one: CellResults, *sides: CellResults) -> tuple[bool, ...] | None:
    """Compare a case in a cell with the same cell, slower operations and perhaps a slower queue.

    Return whether the first is called different and the second slower, then whether each has the
    right reason; None if invalid processes leave too few for a verdict.
    """
    noises = loudness_of((one, *sides))
    noise = noises[CELL.experiment]
    pairs = [in_same_rounds(side, one) for side in sides[:2]]
    same, slower = (
        verdict_on(
            ratio_interval(of_side.medians(case), of_one.medians(case), noise),
            len(of_side.valid),
        )
        for of_side, of_one in pairs
    )
    if "too few runs" in (same, slower):
        return None
    reasons = [time_difference(side, one, case, noises=noises).reasons for side in sides]
    right = (
        told == truth
        for told, truth in zip(reasons, ((), ("operations",), ("rest",)), strict=False)
    )
    return (same != SAME, slower == "slower", *right)


def counted(name: str, rounds: int, judged: Iterable[tuple[bool, ...] | None]) -> Rates:
    """Sum up what `judge` returned."""
    known = [one for one in judged if one is not None]
    sums = map(sum, zip(*known, strict=True))
    return {
        "name": name,
        "rounds": rounds,
        "compared": len(known),
        **dict(zip(HEADINGS, sums, strict=False)),
    }


def synthetic(name: str, rounds: int, trials: int) -> Rates:
    """Compare synthetic cells with themselves and with slower ones."""
    generator = np.random.default_rng((rounds, list(NOISES).index(name)))

    def sides() -> Iterator[CellResults]:
        drift = np.cumsum(generator.normal(0, NOISES[name].drift, rounds))
        for slow_down in ((), (), (PLANTED, PLANTED * BARE), (PLANTED,)):
            yield processes(generator, NOISES[name], drift, *slow_down)

    return counted(
        f"synthetic, {name} noise", rounds, (judge(CASE, *sides()) for _ in range(trials))
    )


def coverage(name: str, count: int, cells: int = CELLS_OF_COVERAGE) -> Rates:
    """Count the synthetic cells of so many processes whose interval lies below or above the true
    median.
    """
    noise, generator = NOISES[name], np.random.default_rng((count, list(NOISES).index(name)))
    true = float(np.median(process_times(np.random.default_rng(0), noise, CELLS_OF_TRUTH)))
    intervals = [
        median_interval(process_times(generator, noise, count).tolist()) for _ in range(cells)
    ]
    below = sum(interval.high < true for interval in intervals)
    above = sum(interval.low > true for interval in intervals)
    return {"noise": name, "processes": count, "cells": cells, "below": below, "above": above}


def process_times(generator: np.random.Generator, noise: Noise, count: int) -> np.ndarray:
    """Draw the medians of so many processes of a cell, in its usual seconds, on a machine that does
    not drift.
    """
    disturbed = (generator.random(count) < noise.disturbed) * generator.uniform(0.03, 0.25, count)
    return np.exp(generator.normal(0, noise.process, count) + disturbed)


def coverage_table(counts: Sequence[Rates]) -> str:
    """Make a table of how often intervals hold the true median: a row for each number of
    processes.
    """
    by_processes: dict[int, list[str]] = {}
    for count in counts:
        below, above = (count[side] / count["cells"] for side in ("below", "above"))
        held = (
            f"{100 * (1 - below - above):.1f} % (missed below {100 * below:.1f} %, above "
            f"{100 * above:.1f} %)"
        )
        by_processes.setdefault(count["processes"], []).append(held)
    rows = [[str(processes), *shares] for processes, shares in by_processes.items()]
    return markdown_table(["processes", *(f"{name} noise" for name in NOISES)], rows)


Trials = list[dict[str, list[list[float]]]]
"""For each trial and case the medians of the processes on the sides A, B and C, in seconds."""


def real(
    backend: str, engine: str, rounds: int, trials: int
) -> tuple[Rates, Trials, Mapping[str, Any]]:
    """Compare a real cell with itself and with one that does a tenth more.

    Return the rates, the measured times, and what the results say of the backend.
    """
    cell = Cell("parallel", backend, engine)
    usual = EXPERIMENTS[cell.experiment].options["quick"]
    options = {"backend": backend, "engine": engine, "device-kind": "cpu", **usual}
    judged: list[tuple[bool, ...] | None] = []
    measured: Trials = []
    for trial in range(trials):
        results: list[list[Result]] = [[], [], []]
        for turn in range(rounds):
            click.echo(
                f"{cell}: trial {trial + 1} of {trials}, round {turn + 1} of {rounds}", err=True
            )
            runs = [(cell.experiment, {**options, "size": size}) for size in (480, 480, 496)]
            for of_side, result in zip(results, measured_together(runs), strict=True):
                of_side.append(result)
        sides = [CellResults(cell, tuple(of_side)) for of_side in results]
        names = sides[0].case_names
        judged += [judge(case, *sides) for case in names]
        whole = {case: [list(side.medians(case)) for side in sides] for case in names}
        bare = {
            f"{case}, bare": [list(side.medians(case, "bare_seconds")) for side in sides]
            for case in names
        }
        measured.append(whole | bare)
    return counted(f"real, {cell.side}", rounds, judged), measured, sides[0].results[0].backend


def measured_together(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Result]:
    """Return the results of runs, each in a process of its own, which take turns."""
    commands = [
        Command(partial(measuring_command, sys.executable, [run]), steps=[0], deadline=DEADLINE)
        for run in runs
    ]
    processes = asyncio.run(live(commands, set(core_numbers()), lambda _: None))
    results = [result for process in processes for result in measured_in(process.output)]
    for process in processes:
        if process.outcome is not None and len(results) < len(runs):
            raise click.ClickException(process.outcome.reason(DEADLINE))
    return results


def noise_of(trials: Trials) -> str:
    """Describe how far real processes were from their side's median."""
    sides = [side for trial in trials for side in trial.get(CASE, [])[:2] if side]
    off = np.concatenate([np.log(np.asarray(side) / np.median(side)) for side in sides])
    quartiles = np.percentile(off, (25, 75))
    return (
        f"half of the processes within {percent((quartiles[1] - quartiles[0]) / 2)} of the median, "
        f"{percent(np.mean(off > 0.03))} slower by more than 3 %, the farthest by "
        f"{percent(np.exp(off.max()) - 1)}"
    )


def page(document: Mapping[str, Any]) -> str:
    """Write what the JSON holds as Markdown."""
    noises = [f"- {name}: {noise_of(of_cell)}" for name, of_cell in document["trials"].items()]
    parts = [provenance(document), table_of(document["rates"], with_bounds)]
    if document.get("coverage"):
        parts.append(coverage_table(document["coverage"]))
    return "\n\n".join([*parts, "\n".join(noises)]).rstrip() + "\n"


def write(out: Path, document: Mapping[str, Any]) -> None:
    """Write the results so far, as JSON and as Markdown."""
    write_json(out.with_suffix(".json"), document)
    write_text(out.with_suffix(".md"), page(document))


@click.command()
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Synthetic ones, of a kind.",
)
@click.option(
    "--real",
    "real_trials",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of a kind.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=FEWEST_PROCESSES),
    default=5,
    show_default=True,
    help="Processes a cell, in real ones.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="Where to write, without suffix."
)
def main(trials: int, real_trials: int, rounds: int, out: Path) -> None:
    """Count wrong verdicts; exit with status 1 if the usual synthetic noise gives too many at the
    default rounds.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    rates = [synthetic(name, count, trials) for name in NOISES for count in (2, 3, 5, 10)]
    measured: dict[str, Trials] = {}
    backends: dict[str, Mapping[str, Any]] = {}
    document = {
        "machine": describe_machine(),
        **versions_and_kernels([]),
        "rates": rates,
        "coverage": [coverage(name, count) for count in PROCESSES for name in NOISES],
        "trials": measured,
    }
    write(out, document)
    for backend, engine in product(("mxnet", "torch"), ("async", "sync")) if real_trials else ():
        rate, times, backends[backend] = real(backend, engine, rounds, real_trials)
        rates.append(rate)
        measured[rate["name"]] = times
        document |= versions_and_kernels(backends.values())
        write(out, document)
    click.echo(out.with_suffix(".md").read_text())
    default = next(
        one for one in rates if one["name"] == "synthetic, usual noise" and one["rounds"] == 5
    )
    compared, false, found, *told = (default[name] for name in ("compared", *HEADINGS))
    if min(compared - false, found) < REQUIRED * compared or min(told) < OF_REASONS * compared:
        raise click.ClickException("too many wrong verdicts at the default rounds")


if __name__ == "__main__":
    main()
