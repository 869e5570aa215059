"""What the exercises showed: a first run as it is printed, a trace, and the answer to an
exercise.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backends.errors import unknown
from backends.registry import title
from benchmarks.experiments.exercises import NAME, SHOWN, TRACED, TRACED_ON, WIDTH
from benchmarks.harness.findings import read_json, source_of
from benchmarks.harness.targets import markdown_table
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.conclusions import answer_of
from parallel_core.measurement.confidence_intervals import Interval, with_bounds
from parallel_core.measurement.fresh_process import run_arguments
from parallel_core.measurement.result import Result
from parallel_core.system.formatting import figure
from parallel_core.system.machine import describe_machine
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.result import show, show_again


def first_run(folder: Path) -> str:
    """Show what a person sees of a run, and what the other engine says."""
    run = read_json(folder / NAME)["runs"][SHOWN]
    left_out = {"series": {}, "environment": describe_machine()}
    first, other = (
        Result.from_json({**left_out, **run["results"][side]}) for side in ("torch", "torch sync")
    )
    stream = io.StringIO()
    console = terminal_console(file=stream, width=WIDTH, color_system=None)
    show(first, console)
    given = {"backend": "torch"}
    show_again(first, given, console)
    sizes = EXPERIMENTS[SHOWN].sizes_chosen_in(first, given)
    lines = [
        f"$ parallel-core run {run_arguments(SHOWN, given)}",
        *(line.rstrip() for line in stream.getvalue().strip().splitlines()),
        "",
        f"$ parallel-core run {run_arguments(SHOWN, {**given, **sizes, 'engine': 'sync'})}",
        *answer_of(EXPERIMENTS[SHOWN].metrics, EXPERIMENTS[SHOWN].changes, other).sentences[:1],
    ]
    return _printed(folder, lines, run)


def trace(folder: Path) -> str:
    """Show what is printed of a trace: its longest case, and how it agrees with the clock."""
    run = read_json(folder / NAME)["runs"][TRACED]
    lines = run["results"][TRACED_ON]["printed"]
    # The table of all cases comes before, and what agrees comes behind.
    first = next((place for place, line in enumerate(lines) if line.startswith("“")), 0)
    last = next(
        (place for place, line in enumerate(lines) if line.startswith("Of the other ")), len(lines)
    )
    return _printed(folder, lines[first:last], run)


def _printed(folder: Path, lines: Sequence[str], run: Mapping[str, Any]) -> str:
    return "\n".join(["```text", *lines, "```", source_of(folder, {NAME: run})])


def answer(folder: Path, name: str) -> str:
    """Give an exercise's answer on every framework: what was counted, then its figures.

    Raises ValueError for a name that is not in the file.
    """
    runs = read_json(folder / NAME)["runs"]
    if name not in runs:
        raise ValueError(unknown("exercise", name, runs))
    experiment = EXPERIMENTS[name]
    # A framework on another engine than its own has that behind its name.
    results = {side: one for side, one in runs[name]["results"].items() if " " not in side}
    counted = [
        [f"`{count.name}`", *(_count(count.name, result) for result in results.values())]
        for count in experiment.counts
    ]
    figures = [
        [f"`{metric.name}`", *(_figure(metric.name, result) for result in results.values())]
        for metric in experiment.metrics
        if metric is experiment.main or metric.bands
    ]
    problems = ["", *(_problem(result) for result in results.values())]
    rows = [row for row in (*counted, *figures, problems) if any(row[1:])]
    headings = ["", *map(title, results)]
    return "\n".join([markdown_table(headings, rows), source_of(folder, {NAME: runs[name]})])


def _count(name: str, result: Mapping[str, Any]) -> str:
    """Write a count, such as `24 of 25`; empty if there is none."""
    counted = result.get("counts", {}).get(name)
    return f"{counted['count']:,} of {counted['of']:,}" if counted else ""


def _figure(name: str, result: Mapping[str, Any]) -> str:
    """Write a figure, with its interval if it has one; empty if there is none."""
    value, bounds = (result.get(key, {}).get(name) for key in ("metrics", "metric_intervals"))
    if value is None:
        return ""
    return with_bounds(Interval(value, *bounds)) if bounds else figure(value)


def _problem(result: Mapping[str, Any]) -> str:
    """Say why a result does not count; empty if it does."""
    if "failed" in result:
        return f"not measured: {result['failed']}"
    return " ".join(f"INVALID: {problem}." for problem in result["problems"])
