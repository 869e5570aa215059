"""What the exercises showed: a first run as it is printed, a trace, and the answer to an
exercise.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backends.errors import unknown
from backends.registry import title
from benchmarks.experiments.exercises import NAME
from benchmarks.harness.findings import read_json, source_of
from benchmarks.harness.targets import markdown_table
from benchmarks.tables.screens import answered_anew
from parallel_core.comparison.storage import read_comparison
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import Interval, with_bounds
from parallel_core.system.formatting import figure
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.result import show
from parallel_core.terminal.timeline import show_figures, show_prices
from parallel_core.trace_analysis.trace_files import read_ranks

SHOWN, SHOWN_ON = "parallel", ("torch", "async")
"""The experiment, backend and engine of which the pages show what a run prints."""
TRACED = "overlap"
"""The experiment of which they show what is printed of a trace."""
WIDTH = 80
"""Characters of a printed line."""


def first_run(folder: Path) -> str:
    """Show what a run prints: that of one process of a comparison."""
    measured = read_comparison(folder)
    (cell,) = (
        results
        for results in measured.of(SHOWN)
        if (results.cell.backend, results.cell.engine) == SHOWN_ON
    )
    stream = io.StringIO()
    console = terminal_console(file=stream, width=WIDTH, color_system=None)
    show(answered_anew(cell.valid[0]), console)
    source = {"comparison.json": {"machine": {**measured.machine, "utc": measured.utc}}}
    return _printed(stream, source_of(folder, source))


def trace(folder: Path) -> str:
    """Show what is printed of a trace of the experiment that hides copies."""
    path = folder / f"{TRACED}.json.gz"
    (recorded,) = read_ranks([path]).values()
    stream = io.StringIO()
    console = terminal_console(file=stream, width=WIDTH, color_system=None)
    show_figures(recorded.figures, console, EXPERIMENTS[TRACED].case)
    show_prices(recorded.prices, console)
    return _printed(stream, f"\nFrom [{path.name}]({path}).")


def _printed(stream: io.StringIO, source: str) -> str:
    lines = (line.rstrip() for line in stream.getvalue().strip().splitlines())
    return "\n".join(["```text", *lines, "```", source])


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
