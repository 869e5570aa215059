"""What the exercises showed: a first run as it is printed, a trace, a row for each exercise, and the answer to one."""

import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from backends.errors import unknown
from backends.registry import title
from benchmarks.experiments.exercises import SHOWN, TRACED, TRACED_ON, WIDTH
from benchmarks.tables.markdown import read_json, source_of
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.conclusions import answer_of
from parallel_core.measurement.answer import WHAT_WOULD_CHANGE_IT
from parallel_core.measurement.confidence_intervals import Interval, with_bounds
from parallel_core.measurement.result import Result
from parallel_core.system.formatting import figure
from parallel_core.system.machine import describe_machine
from parallel_core.terminal.result import show

__all__ = ["answer", "exercises", "first_run", "trace"]

EXERCISES = "experiments/exercises.json"


def first_run(folder: Path) -> str:
    """Show what a person sees of a run, and what the other engine says."""
    written = read_json(folder / EXERCISES)
    results = written["runs"][SHOWN]["results"]
    left_out = {"series": {}, "environment": describe_machine()}
    first, other = (Result.from_json({**left_out, **results[side]}) for side in ("mxnet", "torch sync"))
    stream = io.StringIO()
    show(first, Console(file=stream, width=WIDTH, highlight=False, color_system=None))
    lines = [
        f"$ parallel-core run {SHOWN} --backend mxnet",
        *(line.rstrip() for line in stream.getvalue().strip().splitlines()),
        "",
        f"$ parallel-core run {SHOWN} --backend torch --engine sync",
        *answer_of(EXPERIMENTS[SHOWN].metrics, EXPERIMENTS[SHOWN].changes, other).sentences[:1],
    ]
    return "\n".join(["```text", *lines, "```", "", source_of(folder, (EXERCISES, written["runs"][SHOWN]))])


def trace(folder: Path) -> str:
    """Show what is printed of a trace: its longest case, and how it agrees with the clock."""
    run = read_json(folder / EXERCISES)["runs"][TRACED]
    lines = run["results"][TRACED_ON]["printed"]
    # The table of all cases comes before, and what agrees comes behind.
    first = next((place for place, line in enumerate(lines) if line.startswith("“")), 0)
    last = next((place for place, line in enumerate(lines) if line.startswith("Of the other ")), len(lines))
    return "\n".join(["```text", *lines[first:last], "```", "", source_of(folder, (EXERCISES, run))])


def exercises(folder: Path) -> str:
    """Give each exercise's figure on every framework, and the first sentence of what it says."""
    runs = {name: run for name, run in read_json(folder / EXERCISES)["runs"].items() if EXPERIMENTS[name].occasion}
    lines = []
    for name, run in runs.items():
        said = [f"- {title(side)}: {_said(name, result)}" for side, result in _on_own_engine(run["results"])]
        lines += [f"`{name}`: `{EXPERIMENTS[name].main.name}`", "", *said, ""]
    return "\n".join([*lines, source_of(folder, *((EXERCISES, run) for run in runs.values()))])


def _on_own_engine(results: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Iterate over the frameworks that a file holds; one on another engine than its own has that behind its name."""
    yield from ((side, result) for side, result in results.items() if " " not in side)


def _said(experiment: str, result: Mapping[str, Any]) -> str:
    if "failed" in result:
        return f"not measured: {result['failed']}"
    value = result["metrics"].get(EXPERIMENTS[experiment].main.name)
    first_sentence = re.split(r"(?<=\.) ", result["explanation"])[0]
    said = f"INVALID: {result['problems'][0]}" if result["problems"] else first_sentence
    return said if value is None else f"{figure(value)}. {said}"


def answer(folder: Path, name: str) -> str:
    """Give an exercise's answer on every framework: its figure, its sentences, and what would change them.

    Raises ValueError for a name that is not in the file.
    """
    runs = read_json(folder / EXERCISES)["runs"]
    if name not in runs:
        raise ValueError(unknown("exercise", name, runs))
    results = runs[name]["results"]
    told = [f"**{title(side)}**{_answered(name, result)}" for side, result in _on_own_engine(results)]
    return "\n\n".join([*told, source_of(folder, (EXERCISES, runs[name]))])


def _answered(experiment: str, result: Mapping[str, Any]) -> str:
    if "failed" in result:
        return f": not measured: {result['failed']}"
    metric = EXPERIMENTS[experiment].main.name
    shown = f", `{metric}` {_with_bounds(result, metric)}" if metric in result["metrics"] else ""
    # A file from before there were answers has none.
    given = result.get("answer") or {"sentences": [result["explanation"], *result["notes"]], "would_change": ""}
    change = [f"{WHAT_WOULD_CHANGE_IT} {given['would_change']}"] if given["would_change"] else []
    problems = [f"INVALID: {problem}." for problem in result["problems"]]
    return f"{shown}: {' '.join([*problems, *given['sentences'], *change])}"


def _with_bounds(result: Mapping[str, Any], metric: str) -> str:
    value = result["metrics"][metric]
    if value is None:
        return "was not found"
    bounds = result.get("metric_intervals", {}).get(metric)
    return with_bounds(Interval(value, *bounds)) if bounds else figure(value)
