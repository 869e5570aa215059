"""Every exercise once on each framework, with the same options, and what it said.

A single run has no interval: its numbers are for reading along, and `parallel-core compare` is for
conclusions.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.runs import DEADLINE, run_experiment
from benchmarks.harness.side_by_side import versions_and_kernels
from parallel_core.experiments import EXPERIMENTS
from parallel_core.system.machine import describe_machine

SIDES = ("mxnet", "torch")
OPTIONS: Mapping[str, Sequence[str]] = {"learning-rates": ("--limit", "100")}
"""A budget would give the frameworks trainings of different lengths."""
FILE = "experiments/exercises"
RAW = ("series", "tasks", "environment")
"""What is left out of a result, besides the times of its cases."""
REHEARSED = "parallel"


def measure(request: Request, names: Sequence[str]) -> Iterator[Report]:
    """Run exercises on each framework; those that are not run anew stay as they were, with their
    machine and commit.
    """
    runs = dict(request.stored.get("runs", {}))
    exercises = [name for name, experiment in EXPERIMENTS.items() if experiment.occasion]
    if request.quick:
        exercises = [REHEARSED]
    for name in names or exercises:
        click.echo(name, err=True)
        results = run_on_sides(name)
        backends = [result["backend"] for result in results.values() if "backend" in result]
        sources = versions_and_kernels(backends)
        runs[name] = {"machine": describe_machine(), **sources, "results": results}
        yield Report(notes=failures(runs), data={"runs": runs})


def failures(runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say which runs failed, and why."""
    sentences = []
    for name, run in runs.items():
        for side, result in run["results"].items():
            if "failed" in result:
                sentences.append(f"{name} on {side} failed: {result['failed']}\n")
    return sentences


def run_on_sides(experiment: str) -> dict[str, dict[str, Any]]:
    """Run an experiment on each of its sides; what the first one that succeeds chooses, the others
    get.
    """
    results: dict[str, dict[str, Any]] = {}
    sizes: dict[str, Any] = {}
    for side in SIDES:
        results[side] = run_once(experiment, side, sizes)
        if "failed" not in results[side] and not sizes:
            parameters = results[side]["parameters"]
            sizes = {name: parameters[name] for name in EXPERIMENTS[experiment].calibrated}
    return results


def run_once(experiment: str, backend: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Run an experiment in a fresh process and return its result without the raw values, or
    `{"failed": reason}`.

    Sizes that are not among the given ones are chosen.
    """
    options = ["--backend", backend, *OPTIONS.get(experiment, ())]
    for name, value in sizes.items():
        options += [f"--{name}", str(value)]
    outcome, result = run_experiment(experiment, *options)
    if result is None:
        return {"failed": outcome.reason(DEADLINE)}
    kept = {name: value for name, value in result.items() if name not in RAW}
    return {**kept, "cases": []}


MEASUREMENT = Measurement(
    file=FILE,
    title="Exercises",
    question="What does each exercise say, run once on each framework? NAMES: all by default.",
    method=Method(2, "2026-11-29", "half of the time has to lie beside for a count of overlap"),
    measure=measure,
    rounds=1,
    options=[click.argument("names", nargs=-1, type=click.Choice(list(EXPERIMENTS)))],
)
