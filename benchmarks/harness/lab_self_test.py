"""How often the band that a run's figure is placed in is wrong: `Metric.place` judges times with synthetic noise.

    python -m benchmarks.harness.lab_self_test --trials 400

The truth of the times is known: in which band a metric of them lies. Every round drifts, all of its times alike; single
times are off by a share and sometimes disturbed by far more. A band is false if it is not the true one, and missed if
it is left open. A noise of a tenth may hide a lot: only false ones count. Labs without a truth would make claims
that nobody checks: a test finds them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click
import numpy as np

from benchmarks.harness.targets import markdown_table
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.metrics import Formula, Metric, interval_of, ratio
from parallel_core.measurement.result import Case, Result
from parallel_core.system.formatting import percent

MOST_FALSE = 0.05
Timed = Mapping[str, Case]


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logarithms, and the share of the times that something else disturbs."""

    single: float
    drift: float
    disturbed: float


NOISES = {"quiet": Noise(0.01, 0.01, 0.01), "usual": Noise(0.03, 0.02, 0.05), "loud": Noise(0.10, 0.05, 0.15)}


@dataclass(frozen=True)
class Truth:
    """Usual seconds of cases, of which the last contains the others, and the code of the band that a metric is in."""

    lab: str
    metric: str
    seconds: Mapping[str, float]
    right: str
    dispatched: float = 0.01
    """The share of each time after which control returns."""
    engine: str = "async"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    """Other figures of the result, on which `share` depends."""
    formula: Formula | None = None
    """In place of the metric's own, if the program chooses what it compares."""

    @property
    def name(self) -> str:
        """The metric and the band."""
        return f"{self.metric} {self.right}"

    @property
    def declared(self) -> Metric:
        """The metric as its experiment declares it."""
        return EXPERIMENTS[self.lab].metric_named(self.metric)

    def band_of(self, cases: Timed) -> str | None:
        """Return the code of the band that these times are said to lie in; None if it stays open."""
        declared = self.declared
        interval = declared.measured(cases) if self.formula is None else interval_of(self.formula, cases, is_ratio=True)
        assert interval is not None
        result = Result(
            experiment=self.lab,
            backend={"name": "any", "engine": self.engine, "devices": ["cpu:1", "cpu:2"]},
            parameters=self.parameters,
            cases=tuple(cases.values()),
            metrics={**self.figures, self.metric: interval.estimate},
            metric_intervals={name: (value, value) for name, value in self.figures.items()},
            checks={},
            explanation="",
            environment={},
        )
        band = declared.place(interval, result)
        return band and band.code


WAITS = ("wait for one result", "waitall")
ALONE = ("on cpu:1 alone", "on cpu:2 alone", "on all together")
OVERLAP = ("run", "copy", "run and copy together")
BOOK = ("run", "copy the book's way", "together the book's way")
THREE = ("products on cpu:1", "products on cpu:2", "copies both ways", "all at once")
OF_CASES: Mapping[tuple[str, str, tuple[str, ...]], Mapping[str, float]] = {
    ("async", "wait_fraction", WAITS): {"selective": 10, "not-selective": 1},
    ("parallel", "parallel_speedup", ALONE): {"hindered": 2.8, "serial": 2, "partly": 1.33, "parallel": 1},
    ("overlap", "overlap_efficiency", OVERLAP): {"hindered": 2.8, "serial": 2, "partly": 1.5, "hidden": 1},
    ("overlap", "book_overlap_efficiency", BOOK): {"serial": 2, "hidden": 1},
    ("three-way", "saved_fraction", THREE): {"hindered": 3.8, "serial": 3, "partly": 2.25, "parallel": 1.5},
}
"""By lab, metric and cases, of which all but the last take a second: the last one's seconds by what is then true."""
TWO = ("slow", "fast")
OF_TWO: Mapping[tuple[str, str], Mapping[str, float]] = {
    ("independent-ops", "parallel_speedup"): {"hindered": 0.6, "serial": 1.0, "parallel": 1.9},
    ("independent-ops", "independence_speedup"): {"in-order": 1.0, "parallel": 2.0},
    ("independent-ops", "threads_speedup"): {"unchanged": 1.0, "faster": 2.0},
    ("small-ops", "small_speedup"): {"hindered": 0.5, "no-help": 1.0, "partly": 1.5, "parallel": 2.0},
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
"""Figures that are the ratio of two cases, which the program chooses, and what is true of which ratio."""
DISPATCHED = {"queued": 0.01, "partly": 0.5, "not-queued": 1.0}
KNOWN: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("independent-ops", "parallel_speedup"): {"parameters": {"workers": "1,2"}},
    ("three-way", "saved_fraction"): {"figures": {"possible_on_cores_fraction": 0.5}},
}
TRUTHS = (
    *(
        Truth("async", "dispatch_fraction", {"10 products": 1}, code, dispatched=share)
        for code, share in DISPATCHED.items()
    ),
    *(
        Truth(lab, metric, {**dict.fromkeys(names, 1), names[-1]: last}, code, **KNOWN.get((lab, metric), {}))
        for (lab, metric, names), true in OF_CASES.items()
        for code, last in true.items()
    ),
    Truth("overlap", "overlap_efficiency", dict.fromkeys(OVERLAP, 1), "without-queue", engine="sync"),
    *(
        Truth(lab, metric, {"slow": by, "fast": 1}, code, formula=ratio(*TWO), **KNOWN.get((lab, metric), {}))
        for (lab, metric), true in OF_TWO.items()
        for code, by in true.items()
    ),
)


@dataclass(frozen=True)
class Counted:
    """How many bands were false, and how many left open what was there to be found."""

    false: int
    missed: int


def count(truth: Truth, noise: Noise, rounds: int, trials: int) -> Counted:
    """Let a lab judge times with noise, again and again."""
    generator = np.random.default_rng((0, rounds, sum(map(ord, truth.lab + truth.name))))
    codes = [truth.band_of(timed(truth, noise, rounds, generator)) for _ in range(trials)]
    false = sum(code not in (None, truth.right) for code in codes)
    return Counted(false, codes.count(None))


def timed(truth: Truth, noise: Noise, rounds: int, generator: np.random.Generator) -> Timed:
    """Return cases whose rounds take their usual seconds, but for the noise; the last one has the others as parts."""
    *others, last = truth.seconds
    drift = np.cumsum(generator.normal(0, noise.drift, rounds))

    def case(name: str, usual: float) -> Case:
        off = drift + generator.normal(0, noise.single, rounds)
        off += (generator.random(rounds) < noise.disturbed) * generator.uniform(0.05, 0.7, rounds)
        taken = tuple(float(one) for one in usual * np.exp(off))
        parts = tuple(others) if name == last else ()
        return Case(name, taken, tuple(truth.dispatched * one for one in taken), parts=parts)

    return {name: case(name, usual) for name, usual in truth.seconds.items()}


@click.command()
@click.option("--trials", type=click.IntRange(min=1), default=200, show_default=True, help="For each lab and noise.")
def main(trials: int) -> None:
    """Count wrong bands of every lab; exit with status 1 if more than one in twenty is false anywhere."""
    rows, worst = [], 0.0
    for truth in TRUTHS:
        for (name, noise), rounds in ((one, some) for one in NOISES.items() for some in (3, 5, 10)):
            found = count(truth, noise, rounds, trials)
            worst = max(worst, found.false / trials)
            shares = [percent(some / trials) for some in (found.false, found.missed)]
            rows.append([truth.lab, truth.name, name, str(rounds), *shares])
    click.echo(markdown_table(["lab", "truth", "noise", "rounds", "false", "missed"], rows))
    if worst > MOST_FALSE:
        raise click.ClickException(f"{percent(worst)} of the bands of one truth are false")


if __name__ == "__main__":
    main()
