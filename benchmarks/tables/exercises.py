"""What the exercises showed: a first run as it is printed, a trace, a row for each exercise, and the answer to one."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from backends.errors import unknown
from backends.registry import title
from benchmarks.experiments.exercises import NAME, SHOWN, TRACED, TRACED_ON, WIDTH
from benchmarks.harness.findings import read_json, source_of
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.conclusions import answer_of
from parallel_core.measurement.answer import WHAT_WOULD_CHANGE_IT
from parallel_core.measurement.confidence_intervals import Interval, with_bounds
from parallel_core.measurement.result import Result
from parallel_core.system.formatting import figure
from parallel_core.system.machine import describe_machine
from parallel_core.terminal.result import show


def first_run(folder: Path) -> str:
    """Show what a person sees of a run, and what the other engine says."""
    run = read_json(folder / NAME)["runs"][SHOWN]
    left_out = {"series": {}, "environment": describe_machine()}
    first, other = (Result.from_json({**left_out, **run["results"][side]}) for side in ("mxnet", "torch sync"))
    stream = io.StringIO()
    show(first, Console(file=stream, width=WIDTH, highlight=False, color_system=None))
    lines = [
        f"$ parallel-core run {SHOWN} --backend mxnet",
        *(line.rstrip() for line in stream.getvalue().strip().splitlines()),
        "",
        f"$ parallel-core run {SHOWN} --backend torch --engine sync",
        *answer_of(EXPERIMENTS[SHOWN].metrics, EXPERIMENTS[SHOWN].changes, other).sentences[:1],
    ]
    return _printed(folder, lines, run)


def trace(folder: Path) -> str:
    """Show what is printed of a trace: its longest case, and how it agrees with the clock."""
    run = read_json(folder / NAME)["runs"][TRACED]
    lines = run["results"][TRACED_ON]["printed"]
    # The table of all cases comes before, and what agrees comes behind.
    first = next((place for place, line in enumerate(lines) if line.startswith("“")), 0)
    last = next((place for place, line in enumerate(lines) if line.startswith("Of the other ")), len(lines))
    return _printed(folder, lines[first:last], run)


def _printed(folder: Path, lines: Sequence[str], run: Mapping[str, Any]) -> str:
    return "\n".join(["```text", *lines, "```", source_of(folder, {NAME: run})])


def exercises(folder: Path) -> str:
    """Give each exercise's figure on every framework, and the first sentence of what it says."""
    runs = {name: run for name, run in read_json(folder / NAME)["runs"].items() if EXPERIMENTS[name].occasion}
    lines = []
    for name, run in runs.items():
        metric = EXPERIMENTS[name].main.name
        lines += [f"`{name}`: `{metric}`", ""]
        for side, result in _on_own_engine(run["results"]):
            said = f"not measured: {result['failed']}" if "failed" in result else _first_sentence(metric, result)
            lines.append(f"- {side}: {said}")
        lines.append("")
    # Exercises that were measured alike stand together.
    sources = dict.fromkeys(source_of(folder, {NAME: run}).strip() for run in runs.values())
    return "\n".join([*lines, " ".join(sources)])


def _on_own_engine(results: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Iterate over the frameworks that a file holds; one on another engine than its own has that behind its name."""
    yield from ((title(side), result) for side, result in results.items() if " " not in side)


def _first_sentence(metric: str, result: Mapping[str, Any]) -> str:
    said = f"INVALID: {result['problems'][0]}" if result["problems"] else result["explanation"]
    value = result["metrics"].get(metric)
    sentence = re.split(r"(?<=\.) ", said)[0] if not result["problems"] else said
    return sentence if value is None else f"{figure(value)}. {sentence}"


def answer(folder: Path, name: str) -> str:
    """Give an exercise's answer on every framework: its figure, its sentences, and what would change them.

    Raises ValueError for a name that is not in the file.
    """
    runs = read_json(folder / NAME)["runs"]
    if name not in runs:
        raise ValueError(unknown("exercise", name, runs))
    metric = EXPERIMENTS[name].main.name
    told = [f"**{side}**{_answered(metric, result)}" for side, result in _on_own_engine(runs[name]["results"])]
    return "\n\n".join([*told, source_of(folder, {NAME: runs[name]}).strip()])


def _answered(metric: str, result: Mapping[str, Any]) -> str:
    if "failed" in result:
        return f": not measured: {result['failed']}"
    shown = ""
    if metric in result["metrics"]:
        value, bounds = result["metrics"][metric], result.get("metric_intervals", {}).get(metric)
        written = (
            with_bounds(Interval(value, *bounds)) if bounds else "was not found" if value is None else figure(value)
        )
        shown = f", `{metric}` {written}"
    # A file from before there were answers has none.
    given = result.get("answer") or {"sentences": [result["explanation"], *result["notes"]], "would_change": ""}
    change = [f"{WHAT_WOULD_CHANGE_IT} {given['would_change']}"] if given["would_change"] else []
    problems = [f"INVALID: {problem}." for problem in result["problems"]]
    return f"{shown}: {' '.join([*problems, *given['sentences'], *change])}"
