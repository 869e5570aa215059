"""How often a comparison is wrong: cells compared with themselves, and with a planted slow-down of a tenth.

A slow-down is planted in the kernels, where the bare time grows with the whole, and in the queue, where it does not:
each has to be named by its own part of the time (`parallel_core.comparison.account`) and by no other.

    python benchmarks/self_test.py --real 3 --out benchmarks/results/NAME

Synthetic cells have the noise of real ones: every process is off by a hundredth, one in fifty is disturbed by up to a
quarter, single repetitions are off by a hundredth and sometimes by a half, and the machine drifts from round to round.
Half of the variance between processes is common to a time and its bare time, as are disturbances and drift.
With --real N real cells follow, N trials on each framework and engine: 50 products on each device and on both, run in
rounds A B C. A and B are the same, and C multiplies matrices of 496 instead of 480, which is 10 % more work. Intervals
and verdicts come from the code of `parallel-core compare`. The three cases of a real trial come from the same
processes: the intervals of the rates treat them as independent, which they are not.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from parallel_core.comparison.account import time_difference
from parallel_core.comparison.cells import Cell, CellResults
from parallel_core.errors import MeasurementError, RequestError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import compare_times
from parallel_core.measurement.fresh_process import measure_elsewhere
from parallel_core.measurement.result import Case, Result
from parallel_core.system.formatting import library_in_words
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
COLUMNS = (
    "cells",
    "rounds",
    "comparisons",
    "called different from itself",
    "planted 10 % found",
    "equal: no reason",
    "slow operations: that reason alone",
    "slow queue: waiting alone",
)
CASE = EXPERIMENTS["parallel"].case
CELL = Cell("parallel", "synthetic", "async")


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logarithms, and shares; the machine takes a step of `drift` from round to round."""

    process: float
    disturbed: float
    repetition: float = 0.01
    spikes: float = 0.03
    drift: float = 0.01


NOISES = {"quiet": Noise(0.005, 0.01), "usual": Noise(0.01, 0.02), "loud": Noise(0.02, 0.04)}


@dataclass(frozen=True)
class Rates:
    """How many comparisons called a difference that does not exist, and how many found the planted one.

    Then of the reasons: how many equal cells had none, how many slow operations were told as that alone, and how many
    slow queues as waiting alone; None for what was not counted.
    """

    name: str
    rounds: int
    compared: int
    false: int
    found: int
    neither: int | None = None
    kernels_only: int | None = None
    queue_only: int | None = None

    def row(self, columns: int) -> str:
        """Write a row of the table, with the first of its columns."""
        counts = (self.false, self.found, self.neither, self.kernels_only, self.queue_only)[: columns - 3]
        shares = " | ".join(
            "–" if count is None else f"{count / self.compared:.1%} ({bounds(count, self.compared)})"
            for count in counts
        )
        return f"| {self.name} | {self.rounds} | {self.compared} | {shares} |"


def bounds(count: int, of: int) -> str:
    """Write the 95 % interval of a share (Wilson 1927)."""
    z = 1.96
    share = count / of
    centre = (share + z**2 / (2 * of)) / (1 + z**2 / of)
    half = z / (1 + z**2 / of) * (share * (1 - share) / of + z**2 / (4 * of**2)) ** 0.5
    return f"{max(0, centre - half):.1%}–{min(1, centre + half):.1%}"


def processes(
    generator: np.random.Generator, noise: Noise, drift: np.ndarray, whole: float = 1.0, bare: float = BARE
) -> CellResults:
    """Return the synthetic results of a cell, with its usual seconds: one for each step of the drift."""
    results = []
    for step in drift:
        off = step + generator.normal(0, noise.process * SHARED**0.5)
        if generator.random() < noise.disturbed:
            off += generator.uniform(0.03, 0.25)
        seconds, alone = (repetitions(generator, noise, usual * np.exp(off)) for usual in (whole, bare))
        case = Case(CASE, seconds, seconds, bare_seconds=alone)
        results.append(Result("parallel", {}, {}, (case,), {}, {}, "", environment={}))
    return CellResults(CELL, tuple(results))


def repetitions(generator: np.random.Generator, noise: Noise, usual: float) -> tuple[float, ...]:
    """Return the seconds of what usually takes so many in other processes of this kind."""
    off = generator.normal(0, noise.process * (1 - SHARED) ** 0.5) + generator.normal(0, noise.repetition, REPETITIONS)
    off += (generator.random(REPETITIONS) < noise.spikes) * generator.uniform(0.05, 0.5, REPETITIONS)
    return tuple(float(one) for one in usual * np.exp(off))


def reasons(results: CellResults, others: CellResults, case: str) -> tuple[str, ...]:
    """Return the parts that explain why a case takes longer in one cell than in another."""
    return time_difference(results, others, case).reasons


def case_verdict(results: CellResults, others: CellResults, case: str) -> str:
    """Return the verdict on a case in two cells."""
    return compare_times(results.medians(case), others.medians(case))[1]


def synthetic(name: str, rounds: int, trials: int) -> Rates:
    """Compare synthetic cells with themselves and with slower ones."""
    generator = np.random.default_rng((rounds, list(NOISES).index(name)))
    false = detected = neither = kernels_only = queue_only = 0
    for _ in range(trials):
        drift = np.cumsum(generator.normal(0, NOISES[name].drift, rounds))
        make = partial(processes, generator, NOISES[name], drift)
        one, same, slow_kernels, slow_queue = make(), make(), make(PLANTED, PLANTED * BARE), make(PLANTED)
        false += case_verdict(same, one, CASE) != SAME
        detected += case_verdict(slow_kernels, one, CASE) == "slower"
        neither += reasons(same, one, CASE) == ()
        kernels_only += reasons(slow_kernels, one, CASE) == ("operations",)
        queue_only += reasons(slow_queue, one, CASE) == ("rest",)
    return Rates(f"synthetic, {name} noise", rounds, trials, false, detected, neither, kernels_only, queue_only)


Trials = list[dict[str, list[list[float]]]]
"""For each trial and case the medians of the processes on the sides A, B and C, in seconds."""


def real(backend: str, engine: str, rounds: int, trials: int) -> tuple[Rates, Trials, Mapping[str, Any]]:
    """Compare a real cell with itself and with one that does a tenth more.

    Return the rates, the measured times, and what the results say of the backend.
    """
    cell = Cell("parallel", backend, engine)
    usual = EXPERIMENTS[cell.experiment].options["quick"]
    options = {"backend": backend, "engine": engine, "device-kind": "cpu", "work": "own", **usual}
    verdicts: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = []
    measured: Trials = []
    for trial in range(trials):
        sides: list[list[Result]] = [[], [], []]
        for turn in range(rounds):
            click.echo(f"{cell}: trial {trial + 1} of {trials}, round {turn + 1} of {rounds}", err=True)
            for results, size in zip(sides, (480, 480, 496), strict=True):
                try:
                    results.append(measure_elsewhere(cell.experiment, {**options, "size": size}))
                except (MeasurementError, RequestError) as error:
                    raise click.ClickException(f"{cell}: {error}") from error
        one, same, slower = (CellResults(cell, tuple(results)) for results in sides)
        verdicts += [
            (
                case_verdict(same, one, case),
                case_verdict(slower, one, case),
                reasons(same, one, case),
                reasons(slower, one, case),
            )
            for case in one.case_names
        ]
        all_sides = (one, same, slower)
        whole = {case: [list(side.medians(case)) for side in all_sides] for case in one.case_names}
        bare = {f"{case}, bare": [list(side.bare_medians(case)) for side in all_sides] for case in one.case_names}
        measured.append(whole | bare)
    # Invalid processes may leave too few on one side for a verdict.
    verdicts = [all_four for all_four in verdicts if "too few runs" not in all_four]
    false = sum(called != SAME for called, *_ in verdicts)
    detected = sum(called == "slower" for _, called, *_ in verdicts)
    neither = sum(called == () for _, _, called, _ in verdicts)
    kernels_only = sum(called == ("operations",) for *_, called in verdicts)
    rates = Rates(f"real, {cell.side}", rounds, len(verdicts), false, detected, neither, kernels_only)
    return rates, measured, one.results[0].backend


def noise_of(trials: Trials) -> str:
    """Describe how far real processes were from their side's median."""
    sides = [side for trial in trials for side in trial.get(CASE, [])[:2] if side]
    off = np.concatenate([np.log(np.asarray(side) / np.median(side)) for side in sides])
    quartiles = np.percentile(off, (25, 75))
    return (
        f"half of the processes within {(quartiles[1] - quartiles[0]) / 2:.1%} of the median, "
        f"{np.mean(off > 0.03):.0%} slower by more than 3 %, the farthest by {np.exp(off.max()) - 1:.0%}"
    )


def page(document: Mapping[str, Any]) -> str:
    """Write what the JSON holds as Markdown."""
    rates, machine = [Rates(**one) for one in document["rates"]], document["machine"]
    versions = [f"{name} {version}" for name, version in document.get("versions", {}).items()]
    versions += [f"commit {machine['commit']}"] if "commit" in machine else []
    # Files from before there were reasons have no such columns.
    columns = COLUMNS if any(one.neither is not None for one in rates) else COLUMNS[:5]
    lines = [
        ", ".join([machine["processor"], f"{machine['cores']} cores", machine["system"], *versions, machine["utc"]]),
        "",
        f"| {' | '.join(columns)} |",
        f"| {' | '.join('---' for _ in columns)} |",
        *(one.row(len(columns)) for one in rates if one.compared),
        "",
        *(f"- {name}: {noise_of(of_cell)}" for name, of_cell in document["trials"].items()),
    ]
    return "\n".join(lines) + "\n"


def write(
    out: Path, rates: Sequence[Rates], trials: dict[str, Trials], backends: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write the results so far, as JSON and as Markdown; `backends` are what results say of each of them."""
    document = {
        "machine": describe_machine(),
        "versions": {name: backend["version"] for name, backend in backends.items()},
        "kernels": {name: [library_in_words(one) for one in backend["kernels"]] for name, backend in backends.items()},
        "rates": [vars(one) for one in rates],
        "trials": trials,
    }
    out.with_suffix(".json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    out.with_suffix(".md").write_text(page(document))


@click.command()
@click.option("--trials", type=click.IntRange(min=1), default=200, show_default=True, help="Synthetic ones, of a kind.")
@click.option("--real", "real_trials", type=click.IntRange(min=0), default=0, show_default=True, help="Of a kind.")
@click.option(
    "--rounds", type=click.IntRange(min=3), default=5, show_default=True, help="Processes a cell, in real ones."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where to write, without suffix.")
def main(trials: int, real_trials: int, rounds: int, out: Path) -> None:
    """Count wrong verdicts; exit with status 1 if the usual synthetic noise gives too many at the default rounds."""
    out.parent.mkdir(parents=True, exist_ok=True)
    rates = [synthetic(name, count, trials) for name in NOISES for count in (3, 5, 10)]
    measured: dict[str, Trials] = {}
    backends: dict[str, Mapping[str, Any]] = {}
    write(out, rates, measured, backends)
    for backend, engine in [(b, e) for b in ("mxnet", "torch") for e in ("async", "sync")] if real_trials else []:
        rate, times, backends[backend] = real(backend, engine, rounds, real_trials)
        rates.append(rate)
        measured[rate.name] = times
        write(out, rates, measured, backends)
    click.echo(out.with_suffix(".md").read_text())
    default = next(one for one in rates if one.name == "synthetic, usual noise" and one.rounds == 5)
    of_reasons = (default.neither, default.kernels_only, default.queue_only)
    verdicts = min(default.compared - default.false, default.found)
    told = min(count or 0 for count in of_reasons)
    if verdicts < REQUIRED * default.compared or told < OF_REASONS * default.compared:
        raise click.ClickException("too many wrong verdicts at the default rounds")


if __name__ == "__main__":
    main()
