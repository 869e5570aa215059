"""What the exercises showed: a first run as it is printed, a trace, and the answer to an
exercise.
"""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from backends.errors import unknown
from backends.registry import title
from benchmarks.harness.results import read_json
from benchmarks.harness.targets import markdown_table
from benchmarks.measurements.exercises import FILE
from benchmarks.tables.screens import answered_anew
from benchmarks.tables.sources import source_of
from parallel_core.compare.storage import read_comparison
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import Interval, with_bounds
from parallel_core.system.formatting import figure
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.result import show
from parallel_core.terminal.timeline import show_figures, show_prices
from parallel_core.traces.ranks.reading import read_ranks

SHOWN, SHOWN_ON = "parallel", ("torch", "async")
"""The experiment, backend and engine of which the pages show what a run prints."""
TRACED = "overlap"
"""The experiment of which they show what is printed of a trace."""
WIDTH = 80
"""Characters of a printed line."""


def first_run(folder: Path) -> str:
    """Show what a run prints: that of one process of a comparison."""
    comparison = read_comparison(folder)
    (cell,) = (
        results
        for results in comparison.of(SHOWN)
        if (results.cell.backend, results.cell.engine) == SHOWN_ON
    )
    machine = {**comparison.machine, "utc": comparison.utc}
    source = source_of(folder, {"comparison.json": {"machine": machine}})
    return _printed(lambda console: show(answered_anew(cell.valid[0]), console), source)


def trace(folder: Path) -> str:
    """Show what is printed of a trace of the experiment that hides copies."""
    path = folder / f"{TRACED}.json.gz"
    (recorded,) = read_ranks([path]).values()

    def show_trace(console: Console) -> None:
        show_figures(recorded.figures, console, EXPERIMENTS[TRACED].case)
        show_prices(recorded.prices, console)

    return _printed(show_trace, f"\nFrom [{path.name}]({path}).")


def _printed(show_on: Callable[[Console], object], source: str) -> str:
    """Return what is printed on a console as a block of text, and where it comes from."""
    stream = io.StringIO()
    show_on(terminal_console(file=stream, width=WIDTH, color_system=None))
    lines = [line.rstrip() for line in stream.getvalue().strip().splitlines()]
    return "\n".join(["```text", *lines, "```", source])


def answer(folder: Path, name: str) -> str:
    """Give an exercise's answer on every framework: what was counted, then its figures.

    Raises ValueError for a name that is not in the file.
    """
    file = f"{FILE}.json"
    runs = read_json(folder / file)["runs"]
    if name not in runs:
        raise ValueError(unknown("exercise", name, runs))
    experiment = EXPERIMENTS[name]
    # Older files have frameworks on another engine than their own, which stands behind the name.
    results = {side: result for side, result in runs[name]["results"].items() if " " not in side}
    rows = []
    for count in experiment.counts:
        cells = [_count(count.name, result) for result in results.values()]
        rows.append([f"`{count.name}`", *cells])
    for metric in experiment.metrics:
        if metric is experiment.main or metric.bands:
            cells = [_figure(metric.name, result) for result in results.values()]
            rows.append([f"`{metric.name}`", *cells])
    rows.append(["", *map(_problem, results.values())])
    rows = [row for row in rows if any(row[1:])]
    table = markdown_table(["", *map(title, results)], rows)
    return "\n".join([table, source_of(folder, {file: runs[name]})])


def _count(name: str, result: Mapping[str, Any]) -> str:
    """Write a count, such as `24 of 25`; empty if there is none."""
    counted = result.get("counts", {}).get(name)
    return f"{counted['count']:,} of {counted['of']:,}" if counted else ""


def _figure(name: str, result: Mapping[str, Any]) -> str:
    """Write a figure, with its interval if it has one; empty if there is none."""
    value = result.get("metrics", {}).get(name)
    bounds = result.get("metric_intervals", {}).get(name)
    if value is None:
        return ""
    return with_bounds(Interval(value, *bounds)) if bounds else figure(value)


def _problem(result: Mapping[str, Any]) -> str:
    """Say why a result does not count; empty if it does."""
    if "failed" in result:
        return f"not measured: {result['failed']}"
    # In older files a problem is its sentence.
    problems = [note if isinstance(note, str) else note["sentence"] for note in result["problems"]]
    return " ".join(f"INVALID: {problem}." for problem in problems)
