"""How often a comparison is wrong: synthetic cells compared with themselves, and with a planted
slow-down of a tenth; how often the interval of a single cell misses the true median.

A slow-down is planted in the kernels, where the bare time grows with the whole, and in the queue,
where it does not: each has to be named by its own part of the time
(`parallel_core.compare.time_differences`) and by no other.

Synthetic cells have the noise of real ones: every process is off by a hundredth, one in fifty is
disturbed by up to a quarter, single repetitions are off by a hundredth and sometimes by a half, and
the machine drifts from round to round. Half of the variance between processes is common to a time
and its bare time, as are disturbances and drift. Intervals and verdicts come from the code of
`parallel-core compare`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.targets import Finding, Target, share
from parallel_core.compare.results import Cell, CellResults
from parallel_core.compare.time_differences import in_same_rounds, loudness_of, time_difference
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement import differences
from parallel_core.measurement.confidence_intervals import median_interval
from parallel_core.measurement.differences import Verdict, ratio_interval, verdict_on
from parallel_core.measurement.result import Case, Result

PLANTED = 1.10
BARE = 0.8
"""The share of a synthetic time that is bare."""
SHARED = 0.5
"""The share of the variance between processes that a time and its bare time have in common."""
REPETITIONS = 5
CELLS, QUICK_CELLS = 200, 10
"""Comparisons of each number of rounds and each noise."""
ROUNDS = (2, 3, 5, 10)
HELD = ("usual", 5)
"""The noise and the number of rounds of which targets are set."""
FALSE, REQUIRED, OF_REASONS = Target("at most", 5), Target("at least", 95), Target("at least", 90)
PROCESSES = range(2, 13)
"""How many processes the cells have whose intervals are counted."""
CELLS_OF_COVERAGE, QUICK_CELLS_OF_COVERAGE = 5000, 100
"""Of each number of processes and each noise; of 5000 one standard deviation of the share is
0.3 %.
"""
CELLS_OF_TRUTH = 100_000
CELL = Cell("parallel", "synthetic", "async")
BACKEND = {"name": CELL.backend, "engine": CELL.engine, "scheduler": ""}
EXPERIMENT = EXPERIMENTS[CELL.experiment]
Counts: TypeAlias = dict[str, Any]
"""What a file holds of a kind of cells: its name, its number of cells or comparisons, and what was
counted.
"""


class Judgement(NamedTuple):
    """What a comparison says of a cell and itself, then of slower ones."""

    false: bool
    """It is called different from itself."""
    found: bool
    """The planted tenth is found."""
    neither: bool
    """No reason is named for a difference from itself."""
    kernels_only: bool
    """Of slow operations, they alone are the reason."""
    queue_only: bool
    """Of a slow queue, waiting alone is the reason."""


TITLES: Mapping[str, tuple[str, Target]] = {
    "false": ("called different from itself", FALSE),
    "found": ("planted 10 % found", REQUIRED),
    "neither": ("equal: no reason", OF_REASONS),
    "kernels_only": ("slow operations: that reason alone", OF_REASONS),
    "queue_only": ("slow queue: waiting alone", OF_REASONS),
}


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


def measure(request: Request) -> Iterator[Report]:
    """Compare synthetic cells, and count the intervals that miss."""
    cells = QUICK_CELLS if request.quick else CELLS
    cells_of_coverage = QUICK_CELLS_OF_COVERAGE if request.quick else CELLS_OF_COVERAGE
    rates = [synthetic(noise, rounds, cells) for noise, rounds in product(NOISES, ROUNDS)]
    coverages = []
    for count, noise in product(PROCESSES, NOISES):
        coverages.append(coverage(noise, count, cells_of_coverage))
    findings = [*findings_of_rates(rates), *findings_of_coverage(coverages)]
    yield Report(findings, data={"rates": rates, "coverage": coverages})


def synthetic(noise: str, rounds: int, cells: int) -> Counts:
    """Compare synthetic cells with themselves and with slower ones."""
    generator = np.random.default_rng((rounds, list(NOISES).index(noise)))
    usual = NOISES[noise]
    judgements = []
    for _ in range(cells):
        drift = np.cumsum(generator.normal(0, usual.drift, rounds))
        cell = processes(generator, usual, drift)
        same = processes(generator, usual, drift)
        slow_operations = processes(generator, usual, drift, PLANTED, PLANTED * BARE)
        slow_queue = processes(generator, usual, drift, PLANTED)
        judgements.append(judge(cell, same, slow_operations, slow_queue))
    counts: Counts = {"name": f"synthetic, {noise} noise", "rounds": rounds, "compared": cells}
    for field in Judgement._fields:
        counts[field] = sum(getattr(judgement, field) for judgement in judgements)
    return counts


def processes(
    generator: np.random.Generator,
    noise: Noise,
    drift: np.ndarray,
    seconds: float = 1.0,
    bare_seconds: float = BARE,
) -> CellResults:
    """Return the synthetic results of a cell, with its usual seconds: one for each step of the
    drift.
    """
    results = []
    for step in drift:
        off = step + generator.normal(0, noise.process * SHARED**0.5)
        if generator.random() < noise.disturbed:
            off += generator.uniform(0.03, 0.25)
        times = repetitions(generator, noise, seconds * np.exp(off))
        bare_times = repetitions(generator, noise, bare_seconds * np.exp(off))
        case = Case(EXPERIMENT.case, times, times, bare_seconds=bare_times)
        results.append(Result(CELL.experiment, BACKEND, {}, (case,), {}, {}, "", environment={}))
    return CellResults(CELL, tuple(results))


def repetitions(generator: np.random.Generator, noise: Noise, usual: float) -> tuple[float, ...]:
    """Return the seconds of what usually takes so many in other processes of this kind."""
    off = generator.normal(0, noise.process * (1 - SHARED) ** 0.5)
    off += generator.normal(0, noise.repetition, REPETITIONS)
    spikes = generator.random(REPETITIONS) < noise.spikes
    off += spikes * generator.uniform(0.05, 0.5, REPETITIONS)
    seconds = usual * np.exp(off)
    return tuple(seconds.tolist())


def judge(
    cell: CellResults, same: CellResults, slow_operations: CellResults, slow_queue: CellResults
) -> Judgement:
    """Compare a cell with the same cell, with slower operations and with a slower queue."""
    sides = (same, slow_operations, slow_queue)
    noises = loudness_of((cell, *sides))
    reasons = []
    for side in sides:
        difference = time_difference(side, cell, EXPERIMENT.case, noises=noises)
        reasons.append(difference.reasons)
    return Judgement(
        false=verdict(same, cell, noises) != "no difference shown",
        found=verdict(slow_operations, cell, noises) == "slower",
        neither=reasons[0] == (),
        kernels_only=reasons[1] == ("operations",),
        queue_only=reasons[2] == ("rest",),
    )


def verdict(
    side: CellResults, cell: CellResults, noises: Mapping[str, differences.Noise]
) -> Verdict:
    """Return what a comparison says of a cell's time, held against another's."""
    of_side, of_cell = in_same_rounds(side, cell)
    times, other_times = of_side.medians(EXPERIMENT.case), of_cell.medians(EXPERIMENT.case)
    return verdict_on(
        ratio_interval(times, other_times, noises[EXPERIMENT.name]), len(of_side.valid)
    )


def coverage(noise: str, count: int, cells: int) -> Counts:
    """Count the synthetic cells of so many processes whose interval lies below or above the true
    median.
    """
    generator = np.random.default_rng((count, list(NOISES).index(noise)))
    many = process_times(np.random.default_rng(0), NOISES[noise], CELLS_OF_TRUTH)
    true_median = float(np.median(many))
    below = above = 0
    for _ in range(cells):
        interval = median_interval(process_times(generator, NOISES[noise], count).tolist())
        below += interval.high < true_median
        above += interval.low > true_median
    return {"noise": noise, "processes": count, "cells": cells, "below": below, "above": above}


def process_times(generator: np.random.Generator, noise: Noise, count: int) -> np.ndarray:
    """Draw the medians of so many processes of a cell, in its usual seconds, on a machine that does
    not drift.
    """
    disturbed = (generator.random(count) < noise.disturbed) * generator.uniform(0.03, 0.25, count)
    return np.exp(generator.normal(0, noise.process, count) + disturbed)


def findings_of_rates(rates: Sequence[Counts]) -> Iterator[Finding]:
    """List the share of comparisons that say what is right, or wrong, of each kind of cells."""
    noise, rounds = HELD
    for counts in rates:
        held = counts["rounds"] == rounds and noise in counts["name"]
        kind = f"{counts['name']}, {counts['rounds']} rounds, of {counts['compared']}"
        for name, (title, target) in TITLES.items():
            counted = share(counts[name], counts["compared"])
            yield Finding(f"{kind}: {title}", counted, "%", target if held else None)


def findings_of_coverage(coverages: Sequence[Counts]) -> Iterator[Finding]:
    """List the share of cells whose interval holds the true median."""
    for counts in coverages:
        holding = counts["cells"] - counts["below"] - counts["above"]
        name = f"{counts['processes']} processes, {counts['noise']} noise: the median is held"
        yield Finding(name, share(holding, counts["cells"]), "%")


MEASUREMENT = Measurement(
    file="trust/self-test",
    title="Verdicts on synthetic cells, and intervals of single ones",
    question="How often is a comparison wrong, and an interval, with synthetic noise?",
    method=Method(
        2, "2026-11-29", "cells of an experiment that is clearly louder say how loud it is"
    ),
    measure=measure,
    rounds=1,
)
