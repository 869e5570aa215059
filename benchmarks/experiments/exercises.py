"""Run every exercise once on each framework, with the same options, and keep what they said.

    python -m benchmarks.experiments.exercises

A single run has no interval: its numbers are for reading along, and `parallel-core compare` is for
conclusions.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from backends.host import core_numbers
from benchmarks.harness.findings import read_json, results_folder
from benchmarks.harness.side_by_side import versions_and_kernels
from parallel_core.experiments import EXPERIMENTS
from parallel_core.system.files import write_json
from parallel_core.system.formatting import listed
from parallel_core.system.machine import describe_machine
from parallel_core.system.subprocesses import supervise

SIDES = ("mxnet", "torch")
"""Backends; one on another engine than its own has that behind its name."""
OPTIONS: Mapping[str, Sequence[str]] = {"learning-rates": ("--limit", "100")}
"""A budget would give the frameworks trainings of different lengths."""
NAME = "experiments/exercises.json"
DEADLINE = 900.0
"""Seconds that a run may take."""
RAW = ("series", "tasks", "environment")
"""What is left out of a result, besides the times of its cases."""


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


def run_once(experiment: str, side: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Run an experiment in a fresh process and return its result without the raw values, or
    `{"failed": reason}`.

    Sizes that are not among the given ones are chosen.
    """
    backend, _, engine = side.partition(" ")
    options = [*OPTIONS.get(experiment, ()), *(["--engine", engine] if engine else [])]
    for name, value in sizes.items():
        options += [f"--{name}", str(value)]
    with TemporaryDirectory() as folder:
        json_file = Path(folder) / "result.json"
        program = (
            sys.executable,
            "-P",
            "-m",
            "parallel_core",
            "run",
            experiment,
            "--backend",
            backend,
        )
        command = (*program, *options, "--json", str(json_file))
        outcome = asyncio.run(supervise(command, DEADLINE, set(core_numbers())))
        if outcome.timed_out or not json_file.exists():
            return {"failed": outcome.reason(DEADLINE)}
        kept = {name: value for name, value in read_json(json_file).items() if name not in RAW}
    return {**kept, "cases": []}


def with_source(
    machine: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what the file holds of an exercise: its results, and what they were measured on."""
    backends = [result["backend"] for result in results.values() if "backend" in result]
    return {"machine": machine, **versions_and_kernels(backends), "results": results}


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=results_folder)
@click.argument("names", nargs=-1, type=click.Choice(list(EXPERIMENTS)))
def main(out: Path, names: Sequence[str]) -> None:
    """Run the exercises NAMES, all by default, and write OUT/experiments/exercises.json.

    Those that are not run anew stay as they were in the file, with their machine and commit.
    """
    path = out / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = describe_machine()
    runs: dict[str, Mapping[str, Any]] = read_json(path)["runs"] if names and path.exists() else {}
    for name in names or [one.name for one in EXPERIMENTS.values() if one.occasion]:
        click.echo(name, err=True)
        runs[name] = with_source(machine, run_on_sides(name))
        write_json(path, {"schema": 1, "benchmark": "exercises", "runs": runs})
    failed = [
        name
        for name, run in runs.items()
        if any("failed" in result for result in run["results"].values())
    ]
    click.echo(f"{len(runs)} exercises{f'; failed: {listed(failed)}' if failed else ''}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
