"""How often a comparison is wrong: cells compared with themselves, and with a planted slow-down of a tenth.

    python benchmarks/self_test.py --real 3 --out benchmarks/results/NAME

Synthetic cells have the noise of real ones: every process is off by a hundredth, one in fifty is disturbed by up to a
quarter, single repetitions are off by a hundredth and sometimes by a half, and the machine drifts from round to round.
With --real N real cells follow, N trials on each framework and engine: 50 products on each device and on both, run in
rounds A B C. A and B are the same, and C multiplies matrices of 496 instead of 480, which is 10 % more work. Intervals
and verdicts come from the code of `parallel-core compare`. The three cases of a real trial come from the same
processes: the intervals of the rates treat them as independent, which they are not.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from parallel_core.comparison.cells import Cell, CellResults, FailedRun
from parallel_core.comparison.plan import Plan
from parallel_core.comparison.processes import run_once
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import compare_times
from parallel_core.measurement.result import Case, Result
from parallel_core.system.machine import describe_machine

PLANTED = 1.10
REPETITIONS = 5
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
    """How many comparisons called a difference that does not exist, and how many found the planted one."""

    name: str
    rounds: int
    compared: int
    false: int
    found: int

    def row(self) -> str:
        """Write a row of the table."""
        shares = " | ".join(
            f"{count / self.compared:.1%} ({bounds(count, self.compared)})" for count in (self.false, self.found)
        )
        return f"| {self.name} | {self.rounds} | {self.compared} | {shares} |"


def bounds(count: int, of: int) -> str:
    """Write the 95 % interval of a share (Wilson 1927)."""
    z = 1.96
    share = count / of
    centre = (share + z**2 / (2 * of)) / (1 + z**2 / of)
    half = z / (1 + z**2 / of) * (share * (1 - share) / of + z**2 / (4 * of**2)) ** 0.5
    return f"{max(0, centre - half):.1%}–{min(1, centre + half):.1%}"


def processes(generator: np.random.Generator, noise: Noise, drift: np.ndarray, factor: float) -> CellResults:
    """Return the synthetic results of a cell: one for each step of the drift."""
    results = []
    for step in drift:
        off = generator.normal(0, noise.process)
        if generator.random() < noise.disturbed:
            off += generator.uniform(0.03, 0.25)
        repetitions = generator.normal(0, noise.repetition, REPETITIONS)
        repetitions += (generator.random(REPETITIONS) < noise.spikes) * generator.uniform(0.05, 0.5, REPETITIONS)
        seconds = tuple(float(one) for one in factor * np.exp(step + off + repetitions))
        results.append(Result("parallel", {}, {}, (Case(CASE, seconds, seconds),), {}, {}, "", environment={}))
    return CellResults(CELL, tuple(results))


def case_verdict(results: CellResults, others: CellResults, case: str) -> str:
    """Return the verdict on a case in two cells."""
    return compare_times(results.medians(case), others.medians(case))[1]


def synthetic(name: str, rounds: int, trials: int) -> Rates:
    """Compare synthetic cells with themselves and with slower ones."""
    generator = np.random.default_rng((rounds, list(NOISES).index(name)))
    false = detected = 0
    for _ in range(trials):
        drift = np.cumsum(generator.normal(0, NOISES[name].drift, rounds))
        one, same, slower = (processes(generator, NOISES[name], drift, factor) for factor in (1, 1, PLANTED))
        false += case_verdict(same, one, CASE) != "no difference shown"
        detected += case_verdict(slower, one, CASE) == "slower"
    return Rates(f"synthetic, {name} noise", rounds, trials, false, detected)


Trials = list[dict[str, list[list[float]]]]
"""For each trial and case the medians of the processes on the sides A, B and C, in seconds."""


def real(backend: str, engine: str, rounds: int, trials: int) -> tuple[Rates, Trials]:
    """Compare a real cell with itself and with one that does a tenth more; return the rates and the measured times."""
    plan = Plan((EXPERIMENTS["parallel"],), (backend,), (engine,), {backend: sys.executable}, rounds, "quick")
    cell = plan.cells[0]
    verdicts: list[tuple[str, str]] = []
    measured: Trials = []
    for trial in range(trials):
        sides: list[list[Result]] = [[], [], []]
        for turn in range(rounds):
            click.echo(f"{cell}: trial {trial + 1} of {trials}, round {turn + 1} of {rounds}", err=True)
            for results, size in zip(sides, (480, 480, 496), strict=True):
                outcome = asyncio.run(run_once(plan, cell, {"size": size}, turn))
                if isinstance(outcome, FailedRun):
                    raise click.ClickException(f"{cell}: {outcome.reason}")
                results.append(outcome)
        one, same, slower = (CellResults(cell, tuple(results)) for results in sides)
        verdicts += [(case_verdict(same, one, case), case_verdict(slower, one, case)) for case in one.case_names]
        measured.append({case: [list(side.medians(case)) for side in (one, same, slower)] for case in one.case_names})
    # Invalid processes may leave too few on one side for a verdict.
    verdicts = [both for both in verdicts if "too few runs" not in both]
    false = sum(called != "no difference shown" for called, _ in verdicts)
    detected = sum(called == "slower" for _, called in verdicts)
    return Rates(f"real, {cell.side}", rounds, len(verdicts), false, detected), measured


def noise_of(trials: Trials) -> str:
    """Describe how far real processes were from their side's median."""
    sides = [side for trial in trials for side in trial.get(CASE, [])[:2] if side]
    off = np.concatenate([np.log(np.asarray(side) / np.median(side)) for side in sides])
    quartiles = np.percentile(off, (25, 75))
    return (
        f"half of the processes within {(quartiles[1] - quartiles[0]) / 2:.1%} of the median, "
        f"{np.mean(off > 0.03):.0%} slower by more than 3 %, the farthest by {np.exp(off.max()) - 1:.0%}"
    )


def table(rates: Sequence[Rates], trials: dict[str, Trials], machine: dict[str, Any]) -> str:
    """Write the rates as Markdown."""
    lines = [
        f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, {machine['utc']}",
        "",
        "| cells | rounds | comparisons | called different from itself | planted 10 % found |",
        "| --- | --- | --- | --- | --- |",
        *(one.row() for one in rates if one.compared),
        "",
        *(f"- {name}: {noise_of(of_cell)}" for name, of_cell in trials.items()),
    ]
    return "\n".join(lines) + "\n"


def write(out: Path, rates: Sequence[Rates], trials: dict[str, Trials]) -> None:
    """Write the results so far, as JSON and as Markdown."""
    machine = describe_machine()
    everything = {"machine": machine, "rates": [vars(one) for one in rates], "trials": trials}
    out.with_suffix(".json").write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n")
    out.with_suffix(".md").write_text(table(rates, trials, machine))


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
    write(out, rates, measured)
    for backend, engine in [(b, e) for b in ("mxnet", "torch") for e in ("async", "sync")] if real_trials else []:
        rate, times = real(backend, engine, rounds, real_trials)
        rates.append(rate)
        measured[rate.name] = times
        write(out, rates, measured)
    click.echo(out.with_suffix(".md").read_text())
    default = next(one for one in rates if one.name == "synthetic, usual noise" and one.rounds == 5)
    if default.false > 0.05 * default.compared or default.found < 0.95 * default.compared:
        raise click.ClickException("too many wrong verdicts at the default rounds")


if __name__ == "__main__":
    main()
