"""What each lab asks, and how an engine is judged: step by step, in processes with limits of time and memory."""

import asyncio
import inspect
import json
import math
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from backends.conformance import Limits, search
from backends.errors import BackendError
from backends.registry import load
from parallel_core.experiments import EXPERIMENTS
from parallel_core.labs import programs
from parallel_core.measurement.fresh_process import measure_elsewhere
from parallel_core.system.errors import MeasurementError, RequestError
from parallel_core.system.machine import usable_cores
from parallel_core.system.subprocesses import supervise

FOLDER = Path(__file__).parent
ENGINE = "MyEngine"
PROGRAMS = 200
MOST_BYTES, MOST_SECONDS = 4 * 2**30, 30.0
"""What a process of a step may take."""


class Lab(NamedTuple):
    """What is built: a small program must give NumPy's values, and an experiment's figure lie within bounds."""

    title: str
    devices: int
    program: Callable[..., Any]
    experiment: str
    least: float
    most: float


LABS: Mapping[str, Lab] = {
    "queue": Lab("Lab 1: a queue", 1, programs.increments, "async", 0, 0.5),
    "two-queues": Lab("Lab 2: two queues", 2, programs.race, "parallel", 1.7, 2.2),
    "hide-a-copy": Lab("Lab 3: hide a copy", 2, programs.overwrite, "overlap", 0.7, 1.2),
}


@dataclass(frozen=True)
class Outcome:
    """How a step ended; of a failed one, what was got and expected, and the smallest program that shows it."""

    what: str
    of: int
    state: Literal["passed", "failed", "not judged"]
    got: str = ""
    expected: str = ""
    program: str = ""


def graded(lab: Lab, engine: str, seed: int) -> Iterator[Outcome]:
    """Judge an engine, step by step, on inputs of a seed."""
    # Whatever is started inherits it.
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    steps: list[tuple[str, int, Callable[..., Any], str]] = [
        (program.__doc__ or "", 10, partial(_program, program), inspect.getsource(program))
        for program in (lab.program, programs.promptly)
    ]
    command = f"parallel-core run {lab.experiment} --backend engine.py:{engine}"
    steps += [
        (f"Give NumPy's values and errors in {PROGRAMS} random programs.", 40, _conformance, ""),
        (f"Reach {lab.least:g} to {lab.most:g} in the experiment {lab.experiment!r}.", 40, _experiment, command),
    ]
    for what, points, judge, shown in steps:
        try:
            state, *found = judge(lab, engine, seed)
        except (BackendError, MeasurementError, RequestError) as error:
            state, found = "failed", [str(error), "an end without an error"]
        # Random programs come with their own text.
        yield Outcome(what, points, state, *([*found, shown][:3] if state == "failed" else found))


def _program(program: Callable[..., Any], lab: Lab, engine: str, seed: int) -> Any:
    got, expected = in_process(engine, lab.devices, program.__name__, seed)
    return ("passed",) if got == expected else ("failed", str(got), str(expected))


def _conformance(lab: Lab, engine: str, seed: int) -> Any:
    limits = Limits(seed=seed, programs=PROGRAMS, seconds=MOST_SECONDS, devices=lab.devices, deadline=5)
    for found in search(partial(load, engine, device_kind="cpu", threads_per_device=1), limits):
        text = found.text(f"load('engine.py:{engine}', devices={{}})")
        return "failed", found.finding.what, "what NumPy gives", text
    return ("passed",)


def _experiment(lab: Lab, engine: str, seed: int) -> Any:  # noqa: ARG001
    if usable_cores() < lab.devices:
        return "not judged", f"{lab.devices} devices need as many cores"
    options = {"backend": engine, "devices": lab.devices, "budget": 10}
    result, name = measure_elsewhere(lab.experiment, options, 2 * MOST_SECONDS), EXPERIMENTS[lab.experiment].main.name
    value, is_busy = result.metrics.get(name) or 0.0, not result.is_undisturbed
    got = "; ".join([f"{name} {value:.2f}", *result.problems])
    # On a busy machine noise may make a right engine too slow, and a wrong one quick enough.
    low, high = result.metric_intervals.get(name, (-math.inf, math.inf)) if is_busy else (value, value)
    is_within = lab.least <= low and high <= lab.most
    # A time that cannot be true disturbs a result; the bounds of the lab leave room for it.
    is_wrong = bool(result.problems) and not result.is_merely_disturbed
    if is_busy and not is_wrong and (result.problems or not is_within):
        return "not judged", "the machine was busy"
    return ("passed", got) if is_within and not is_wrong else ("failed", got, f"{lab.least:g} to {lab.most:g}")


def in_process(engine: str, devices: int, name: str, seed: int) -> Any:
    """Return what a small program got and expected; raises MeasurementError if it fails or takes too long."""
    command = [sys.executable, "-P", "-m", "parallel_core.labs.programs", engine, str(devices), name, str(seed)]
    outcome = asyncio.run(supervise(command, MOST_SECONDS, set()))
    if outcome.status:
        raise MeasurementError(outcome.reason(MOST_SECONDS))
    return json.loads(outcome.output)


def drawn(lab: Lab, engine: str, width: int = 60) -> str:
    """Draw what each thread of an engine did in a small program: a line for each, a letter for each task's time."""
    try:
        spans, _ = in_process(engine, lab.devices, "timeline", 0)
    except MeasurementError as error:
        return f"no timeline: {error}"
    if not spans:
        return "no timeline: no task was computed"
    first, last = min(start for _, _, start, _ in spans), max(end for *_, end in spans)
    lines = {thread: [" "] * (width + 1) for _, thread, _, _ in spans}
    for what, thread, *edges in spans:
        left, right = (int(width * (edge - first) / (last - first)) for edge in edges)
        lines[thread][left : right + 1] = what[0] * (right + 1 - left)
    return "\n".join(f"{thread[:12]:12} {''.join(line)}" for thread, line in lines.items())
