"""Run experiments beside processes that spin, and keep what each run and each count said.

    python -m benchmarks.experiments.under_load --spinning 0
    python -m benchmarks.experiments.under_load --spinning 2 --repetitions 200 --budget 2

Each spinning process takes as much of one core as the scheduler gives it. What the runs beside none
of them said is what the others are held against: a count should mean the same, and an interval
should hold the figure of the quiet machine.
"""

import asyncio
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import click

from backends.host import core_numbers
from benchmarks.harness.findings import read_json, results_folder, write_text
from benchmarks.harness.targets import markdown_table
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.counts import Count
from parallel_core.measurement.result import Counted, Result
from parallel_core.system.files import write_json
from parallel_core.system.machine import describe_machine
from parallel_core.system.subprocesses import supervise

NAME = "experiments/under-load"
BACKENDS, ENGINES = ("mxnet", "torch"), ("async", "sync")
QUIET = "0"
"""The key of the runs beside no spinning process."""
DEADLINE = 1200.0
"""Seconds that a run may take."""
MOST_SPINNING, MOST_REPETITIONS = 64, 1000
FAILED = "failed"

Run = dict[str, Any]
"""What one run said: its experiment, backend and engine, its status, seconds, counts and figures;
or why it failed.
"""


@contextmanager
def spinning(processes: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Let processes of the usual priority spin meanwhile."""
    spin = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(spin) for _ in range(processes)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def run_once(name: str, backend: str, engine: str, options: Sequence[str]) -> Run:
    """Run an experiment in a fresh process with further options of `run`."""
    about: Run = {"experiment": name, "backend": backend, "engine": engine}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        command = (
            *(sys.executable, "-P", "-m", "parallel_core", "run", name),
            *("--backend", backend, "--engine", engine, "--json", str(path)),
            *options,
        )
        began = monotonic()
        outcome = asyncio.run(supervise(command, DEADLINE, set(core_numbers())))
        about |= {"status": outcome.status, "seconds": round(monotonic() - began, 1)}
        if not path.exists():
            return about | {FAILED: outcome.reason(DEADLINE)}
        result = Result.from_json(read_json(path))
    experiment = EXPERIMENTS[name]
    main = result.interval(experiment.main.name)
    return about | {
        "counts": {
            count.name: codes_of(count, result.counts[count.name])
            for count in experiment.counts
            if count.name in result.counts
        },
        "metric": experiment.main.name,
        "interval": None if main is None else [bound_or_none(one) for one in astuple(main)],
        "answer": list(result.answer.sentences) if result.answer else [],
    }


def bound_or_none(bound: float) -> float | None:
    """Return a bound as JSON knows it."""
    return bound if math.isfinite(bound) else None


def codes_of(count: Count, said: Counted) -> dict[str, int]:
    """Return how many repetitions of a count meant what, by the answers' codes."""
    of_each = said.of_each or (said.of,) * len(said.repetitions)
    bands = map(count.band, said.repetitions, of_each)
    return dict(Counter(band.code for band in bands))


def table(runs: Mapping[str, Sequence[Run]]) -> str:
    """Write how many repetitions beside spinning processes meant what most quiet ones mean."""
    loads = sorted(set(runs) - {QUIET})
    quiet = {identity(run): run for run in runs.get(QUIET, ())}
    rows = []
    for of, calm in quiet.items():
        if FAILED in calm:
            rows.append([*of, FAILED, calm[FAILED], *("–" for _ in loads)])
            continue
        loaded = [found(runs[load], of) for load in loads]
        for name, codes in calm.get("counts", {}).items():
            usual = max(codes, key=lambda code: codes[code])
            kept = [
                f"{run['counts'][name].get(usual, 0)} of {sum(run['counts'][name].values())}"
                if run and name in run.get("counts", {})
                else "–"
                for run in loaded
            ]
            rows.append([*of, name, usual, *kept])
        rows.append([*of, calm["metric"], *(clock(calm, run) for run in (calm, *loaded))])
        seconds = [f"{run['seconds']:.0f} s, status {run['status']}" for run in loaded if run]
        rows.append([*of, "the run", f"{calm['seconds']:.0f} s, status {calm['status']}", *seconds])
    headings = ["experiment", "backend", "engine", "count", "quiet"]
    return markdown_table([*headings, *(f"{load} spinning" for load in loads)], rows)


def clock(quiet: Run, run: Run | None) -> str:
    """Write the interval of a run's main figure, and mark one that misses the quiet estimate."""
    if run is None or run.get("interval") is None:
        return "–"
    estimate, low, high = run["interval"]
    if None in (estimate, low, high):
        return "unknown"
    expected = quiet["interval"] and quiet["interval"][0]
    holds = expected is None or low <= expected <= high
    return f"{estimate:.3g} ({low:.3g} to {high:.3g}){'' if holds else ', missed'}"


def identity(run: Run) -> tuple[str, str, str]:
    """Return what was run: experiment, backend and engine."""
    return run["experiment"], run["backend"], run["engine"]


def found(runs: Sequence[Run], wanted: tuple[str, str, str]) -> Run | None:
    """Return the run of an experiment, backend and engine, if there is one."""
    return next((run for run in runs if identity(run) == wanted), None)


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=results_folder)
@click.option(
    "--spinning",
    "processes",
    type=click.IntRange(0, MOST_SPINNING),
    default=0,
    show_default=True,
    help="Processes that spin meanwhile.",
)
@click.option(
    "--repetitions",
    type=click.IntRange(1, MOST_REPETITIONS),
    help="Repetitions of each count. Default: what a run takes.",
)
@click.option("--budget", type=click.FloatRange(1), help="Seconds that each run takes times.")
@click.option("--engine", type=click.Choice(ENGINES), help="Only this one. Default: both.")
@click.argument("names", nargs=-1, type=click.Choice(list(EXPERIMENTS)))
def main(
    out: Path,
    processes: int,
    repetitions: int | None,
    budget: float | None,
    engine: str | None,
    names: Sequence[str],
) -> None:
    """Run the experiments NAMES, by default all that count, on MXNet and PyTorch with and without
    queues, and write OUT/experiments/under-load.json.

    Runs beside as many spinning processes that are in the file already stay, unless they are run
    anew.
    """
    path = out / f"{NAME}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    written = read_json(path) if path.exists() else {"runs": {}}
    runs: dict[str, list[Run]] = written["runs"]
    of_load = runs.setdefault(str(processes), [])
    for name in names or [one.name for one in EXPERIMENTS.values() if one.counts]:
        options = [] if repetitions is None else ["--count", str(repetitions)]
        if budget is not None and EXPERIMENTS[name].budget is not None:
            options += ["--budget", str(budget)]
        for backend, on_engine in product(BACKENDS, [engine] if engine else ENGINES):
            with spinning(processes):
                run = run_once(name, backend, on_engine, options)
            of_load[:] = [other for other in of_load if identity(other) != identity(run)]
            of_load.append(run)
            click.echo(f"{name}, {backend}, {on_engine}: {run['seconds']} s", err=True)
            machine = describe_machine()
            write_json(path, {"schema": 1, "benchmark": NAME, "machine": machine, "runs": runs})
    text = table(runs)
    write_text(path.with_suffix(".md"), f"{text}\n")
    click.echo(text)


if __name__ == "__main__":
    main()
