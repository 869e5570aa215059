"""Counts beside processes that spin: how many repetitions mean what they mean on a quiet machine.

    python -m benchmarks under-load --spinning 0
    python -m benchmarks under-load --spinning 2 --repetitions 200

Each spinning process takes as much of one core as the scheduler gives it. What the runs beside none
of them said is what the others are held against.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

import click

from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.runs import DEADLINE, run_experiment, spinning
from benchmarks.harness.targets import Finding, share
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.counts import Count
from parallel_core.measurement.result import Counted, Result

BACKENDS, ENGINES = ("mxnet", "torch"), ("async", "sync")
QUIET = "0"
"""The key of the runs beside no spinning process."""
BUDGET = 2
"""Seconds that a run takes times for, of which nothing is kept."""
REHEARSED = "parallel"

Run: TypeAlias = dict[str, Any]
"""What one run said: its experiment, backend and engine, its status and counts; or why it
failed.
"""
Kind: TypeAlias = tuple[str, str, str]
"""An experiment on a backend and engine."""


def measure(
    request: Request, processes: int, repetitions: int | None, names: Sequence[str]
) -> Iterator[Report]:
    """Run experiments on each backend and engine; what was measured beside as many spinning
    processes before stays, unless it is run anew.
    """
    runs: dict[str, list[Run]] = dict(request.stored.get("runs", {}))
    counting = [name for name, experiment in EXPERIMENTS.items() if experiment.counts]
    if request.quick:
        counting = [REHEARSED]
    for kind in product(names or counting, BACKENDS, ENGINES):
        with spinning(processes):
            run = run_once(kind, repetitions)
        click.echo(f"{', '.join(kind)}: status {run['status']}", err=True)
        earlier = runs.get(str(processes), [])
        runs[str(processes)] = [other for other in earlier if kind_of(other) != kind] + [run]
        yield Report([*findings_of(runs)], data={"runs": runs})


def run_once(kind: Kind, repetitions: int | None) -> Run:
    """Run an experiment in a fresh process, with so many repetitions of each count, or as many as
    it takes.
    """
    name, backend, engine = kind
    experiment = EXPERIMENTS[name]
    options: list[object] = ["--backend", backend, "--engine", engine]
    if repetitions is not None:
        options += ["--count", repetitions]
    if experiment.budget is not None:
        options += ["--budget", BUDGET]
    outcome, answer = run_experiment(name, *options)
    run = {"experiment": name, "backend": backend, "engine": engine, "status": outcome.status}
    if answer is None:
        return {**run, "failed": outcome.reason(DEADLINE)}
    result = Result.from_json(answer)
    counts = {}
    for count in experiment.counts:
        if count.name in result.counts:
            counts[count.name] = codes_of(count, result.counts[count.name])
    return {**run, "counts": counts}


def codes_of(count: Count, counted: Counted) -> dict[str, int]:
    """Return how many repetitions of a count meant what, by the answers' codes."""
    of_each = counted.of_each or (counted.of,) * len(counted.repetitions)
    bands = map(count.band, counted.repetitions, of_each)
    return dict(Counter(band.code for band in bands))


def kind_of(run: Run) -> Kind:
    """Return what was run."""
    return run["experiment"], run["backend"], run["engine"]


def findings_of(runs: Mapping[str, Sequence[Run]]) -> Iterator[Finding]:
    """List for each number of spinning processes the share of repetitions that mean what most quiet
    ones of the same count mean: of each experiment, and of all.
    """
    quiet = {kind_of(run): run.get("counts", {}) for run in runs.get(QUIET, ())}
    for load in sorted(runs.keys() - {QUIET}):
        kept: Counter[str] = Counter()
        total: Counter[str] = Counter()
        for run in runs[load]:
            quiet_counts = quiet.get(kind_of(run), {})
            for name, codes in run.get("counts", {}).items():
                if quiet_codes := quiet_counts.get(name):
                    usual_code = max(quiet_codes, key=lambda code: quiet_codes[code])
                    kept[run["experiment"]] += codes.get(usual_code, 0)
                    total[run["experiment"]] += sum(codes.values())
        for experiment, count in total.items():
            name = f"{experiment} beside {load} spinning: of {count:,} repetitions"
            yield Finding(name, share(kept[experiment], count), "%")
        if total:
            name = f"all beside {load} spinning: of {total.total():,} repetitions"
            yield Finding(name, share(kept.total(), total.total()), "%")


MEASUREMENT = Measurement(
    file="experiments/under-load",
    title="Repetitions that mean beside other work what they mean on the quiet machine",
    question="Do counts mean the same beside spinning processes? NAMES: all that count by default.",
    method=Method(2, "2026-11-29", "half of the time has to lie beside for a count of overlap"),
    measure=measure,
    rounds=1,
    options=[
        click.option("--spinning", "processes", type=click.IntRange(0, 64), default=0),
        click.option("--repetitions", type=click.IntRange(1, 1000), help="Of each count."),
        click.argument("names", nargs=-1, type=click.Choice(list(EXPERIMENTS))),
    ],
)
