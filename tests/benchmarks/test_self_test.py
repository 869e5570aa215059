"""How often what is said of times is wrong: verdicts on differences, and the bands of one run's
figures.

Both are counted with synthetic noise and fixed seeds.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pytest

from benchmarks.trust.self_test import (
    NOISES,
    Counts,
    coverage,
    findings_of_coverage,
    findings_of_rates,
    synthetic,
)
from parallel_core.compare.results import Cell
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.formulas import Formula, interval_of, ratio
from parallel_core.measurement.result import Case
from tests.parallel_core.compare.made_up import result

TRIALS = 60
REQUIRED, OF_REASONS = 0.95, 0.9
"""Shares of right verdicts, and of right reasons."""


@pytest.fixture(scope="module")
def rates() -> Counts:
    """Return the full count's kind of cells of which targets are set, with fewer cells."""
    return synthetic("usual", 5, TRIALS)


def test_few_verdicts_are_wrong(rates: Counts) -> None:
    assert rates["compared"] == TRIALS
    assert rates["found"] >= REQUIRED * TRIALS
    assert rates["false"] <= (1 - REQUIRED) * TRIALS


@pytest.mark.parametrize("reason", ["neither", "kernels_only", "queue_only"])
def test_slow_operations_and_queues_are_named_by_their_own_part(rates: Counts, reason: str) -> None:
    assert rates[reason] >= OF_REASONS * TRIALS


def test_targets_are_set_of_the_usual_noise_at_the_default_rounds() -> None:
    counts = {"compared": 200, "false": 5, "found": 190, "neither": 1, "kernels_only": 2}
    counts |= {"queue_only": 3}
    default = {"name": "synthetic, usual noise", "rounds": 5, **counts}
    findings = [*findings_of_rates([default, {**default, "rounds": 2}])]
    assert [finding.interval.estimate for finding in findings] == 2 * [2.5, 95.0, 0.5, 1.0, 1.5]
    of_default, of_two_rounds = findings[:5], findings[5:]
    assert [str(finding.target) for finding in of_default] == ["≤ 5", "≥ 95", *3 * ["≥ 90"]]
    assert [finding.target for finding in of_two_rounds] == 5 * [None]


def test_intervals_of_single_cells_hold_the_true_median() -> None:
    counts = [coverage(noise, processes, 400) for processes in (5, 7) for noise in NOISES]
    for count, finding in zip(counts, findings_of_coverage(counts), strict=True):
        assert count["below"] + count["above"] <= 0.1 * count["cells"]
        missed = 100 * (count["below"] + count["above"]) / count["cells"]
        assert finding.interval.estimate == pytest.approx(100 - missed)


class Truth(NamedTuple):
    """Usual seconds of a lab's cases, of which the last contains the others, and the band that a
    figure is then in.
    """

    lab: str
    figure: str
    seconds: Mapping[str, float]
    band: str
    formula: Formula | None = None
    """In place of the figure's own, if the program chooses what it compares."""
    dispatched: float = 0.01
    """The share of each time after which control returns."""


WAITS = ("wait for one result", "waitall")
ALONE = ("on cpu:1 alone", "on cpu:2 alone", "on all together")
OVERLAP = ("run", "copy", "run and copy together")
BOOK = ("run", "copy the book's way", "together the book's way")
THREE = ("products on cpu:1", "products on cpu:2", "copies both ways", "all at once")
OF_CASES: Mapping[tuple[str, str, tuple[str, ...]], Mapping[str, float]] = {
    ("async", "wait_fraction", WAITS): {"selective": 10, "not-selective": 1},
    ("parallel", "parallel_speedup", ALONE): {
        "hindered": 2.8,
        "serial": 2,
        "partly": 1.33,
        "parallel": 1,
    },
    ("overlap", "overlap_efficiency", OVERLAP): {
        "hindered": 2.8,
        "serial": 2,
        "partly": 1.5,
        "hidden": 1,
    },
    ("overlap", "book_overlap_efficiency", BOOK): {"serial": 2, "hidden": 1},
    ("three-way", "saved_fraction", THREE): {
        "hindered": 3.8,
        "serial": 3,
        "partly": 2.25,
        "parallel": 1.5,
    },
}
"""By lab, figure and cases, of which all but the last take a second: the last one's seconds by what
is then true.
"""
OF_TWO: Mapping[tuple[str, str], Mapping[str, float]] = {
    ("independent-ops", "parallel_speedup"): {"hindered": 0.6, "serial": 1.0, "parallel": 1.9},
    ("independent-ops", "independence_speedup"): {"in-order": 1.0, "parallel": 2.0},
    ("independent-ops", "threads_speedup"): {"unchanged": 1.0, "faster": 2.0},
    ("small-ops", "small_speedup"): {
        "hindered": 0.5,
        "no-help": 1.0,
        "partly": 1.5,
        "parallel": 2.0,
    },
    ("small-ops", "small_advantage_over_threads"): {"neither": 1.0, "launches": 2.0},
    ("dependencies", "bound_fraction"): {"slower": 0.6, "near": 1.0},
    ("dependencies", "speedup"): {"cost": 0.7, "no-difference": 1.0, "paid": 2.0},
    ("batch-scaling", "scaled_batch_speedup"): {"more": 1.6},
    ("batch-scaling", "scaled_batch_scaling_efficiency"): {"serial": 0.5, "parallel": 1.0},
    ("evaluate", "evaluation_speedup"): {"faster": 2.0},
    ("allreduce", "native_speedup_over_star"): {"faster": 2.0, "equal": 1.0},
    ("allreduce", "spread_roots_speedup"): {"slower": 0.5},
    ("partitioning", "data_parallel_advantage"): {"equal": 1.0, "faster": 2.0},
    ("batch-norm", "synchronising_cost"): {"equal": 1.0, "slower": 2.0},
}
"""Figures that are the ratio of two cases, which the program chooses, and what is true of which
ratio.
"""
DISPATCHED = {"queued": 0.01, "partly": 0.5, "not-queued": 1.0}
TRUTHS: list[Truth] = []
"""Every band of every figure, with times in which it is true."""
for band, share in DISPATCHED.items():
    TRUTHS.append(Truth("async", "dispatch_fraction", {"10 products": 1}, band, dispatched=share))
for (lab, figure, case_names), seconds_by_band in OF_CASES.items():
    *part_names, last_name = case_names
    for band, seconds in seconds_by_band.items():
        case_seconds = {**dict.fromkeys(part_names, 1), last_name: seconds}
        TRUTHS.append(Truth(lab, figure, case_seconds, band))
for (lab, figure), ratio_by_band in OF_TWO.items():
    for band, slow_over_fast in ratio_by_band.items():
        case_seconds = {"slow": slow_over_fast, "fast": 1}
        TRUTHS.append(Truth(lab, figure, case_seconds, band, ratio("slow", "fast")))


class Noise(NamedTuple):
    """Standard deviations of logarithms of single times and of the drift from round to round, and
    the share of the times that something else disturbs by far more.
    """

    single: float
    drift: float
    disturbed_share: float


QUIET = Noise(0.01, 0.01, 0.01)
USUAL = Noise(0.03, 0.02, 0.05)
ROUNDS, RUNS = 5, 20


def bands(truth: Truth, noise: Noise) -> list[str | None]:
    """Return the bands in which a figure is placed in all runs; None where it is left open."""
    metric = EXPERIMENTS[truth.lab].metric_named(truth.figure)
    seed_of_truth = sum(map(ord, f"{truth.lab}{truth.figure} {truth.band}"))
    generator = np.random.default_rng((0, ROUNDS, seed_of_truth))
    # Shares of what is possible depend on the workers and the cores.
    run = result(
        Cell(truth.lab, "any", "async"),
        truth.seconds,
        parameters={"workers": "1,2"},
        metrics={"possible_on_cores_fraction": 0.5},
    )
    codes = []
    for _ in range(RUNS):
        cases = timed(truth, noise, generator)
        if truth.formula is None:
            interval = metric.measured(cases)
        else:
            interval = interval_of(truth.formula, cases, is_ratio=True)
        assert interval is not None
        band = metric.place(interval, run)
        codes.append(band.code if band else None)
    return codes


def timed(truth: Truth, noise: Noise, generator: np.random.Generator) -> dict[str, Case]:
    """Return cases whose rounds take their usual seconds, but for the noise: all times of a round
    drift alike.
    """
    drift = np.cumsum(generator.normal(0, noise.drift, ROUNDS))
    *part_names, last_name = truth.seconds
    cases = {}
    for name, usual_seconds in truth.seconds.items():
        logarithms = drift + generator.normal(0, noise.single, ROUNDS)
        is_disturbed = generator.random(ROUNDS) < noise.disturbed_share
        logarithms += is_disturbed * generator.uniform(0.05, 0.7, ROUNDS)
        seconds = usual_seconds * np.exp(logarithms)
        dispatch_seconds = truth.dispatched * seconds
        parts = tuple(part_names) if name == last_name else ()
        cases[name] = Case(name, tuple(seconds), tuple(dispatch_seconds), parts=parts)
    return cases


@pytest.mark.parametrize(
    "truth", TRUTHS, ids=lambda truth: f"{truth.lab}: {truth.figure} {truth.band}"
)
def test_few_bands_of_a_run_are_false_and_what_is_true_is_found(truth: Truth) -> None:
    usual_bands = bands(truth, USUAL)
    false_bands = [band for band in usual_bands if band not in (None, truth.band)]
    assert len(false_bands) <= 0.05 * RUNS
    quiet_bands = bands(truth, QUIET)
    missed_bands = [band for band in quiet_bands if band != truth.band]
    assert len(missed_bands) <= 0.05 * RUNS


def test_every_lab_whose_figure_is_of_times_is_counted() -> None:
    # Their figures are those of another experiment, or follow from fits and counts that their own
    # tests judge.
    elsewhere = {
        "eager-cpu",
        "graph",
        "barriers",
        "cost-model",
        "data-parallel",
        "building-blocks",
        "learning-rates",
    }
    assert {truth.lab for truth in TRUTHS} == EXPERIMENTS.keys() - elsewhere
