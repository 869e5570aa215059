"""Grading of labs: what each asks, and how an engine is judged, step by step.

That is done in processes with limits of time and memory. The engine is never loaded here: its
process says what it computed from inputs that this one drew, and what is expected stays here.
"""

import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from backends.conformance import Limits, search
from backends.conformance.judging import short
from backends.conformance.serving import Task
from backends.conformance.worker import HangError, Worker, WorkError
from backends.errors import BackendError
from backends.registry import load
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.counts import Count, write
from parallel_core.labs import programs
from parallel_core.labs.programs import SmallProgram
from parallel_core.measurement.result import Result
from parallel_core.system.errors import MeasurementError

FOLDER = Path(__file__).parent
ENGINE = "MyEngine"
PROGRAMS = 200
MOST_BYTES = 4 * 2**30
"""By how much the process of a step may grow."""
MOST_STARTING_SECONDS = 10.0
"""What an engine may take to start."""
MOST_SECONDS = 30.0
"""What a step may take then; an experiment, twice as long."""
PROGRAM_SECONDS = 5.0
"""For one random program."""
BUDGET = 3.0
"""Seconds for which an experiment measures before it counts."""
LEAST_SHARE = 0.5
"""Of a count: without the right queue it is near 0, with it near 1, on a busy machine too."""


class Lab(NamedTuple):
    """A lab, in which an engine is built.

    A small program must give NumPy's values, and an experiment's first count show the order that
    the queues allow.
    """

    title: str
    devices: int
    program: SmallProgram
    experiment: str
    options: Mapping[str, int]
    """Of the experiment: multiplying takes some milliseconds, and copying each result too."""

    @property
    def order(self) -> Count:
        """The count of the experiment."""
        return EXPERIMENTS[self.experiment].counts[0]


LABS: Mapping[str, Lab] = {
    "queue": Lab("Lab 1: a queue", 1, programs.INCREMENTS, "async", {"size": 500}),
    "two-queues": Lab("Lab 2: two queues", 2, programs.RACE, "parallel", {"size": 500}),
    "hide-a-copy": Lab(
        "Lab 3: hide a copy",
        2,
        programs.OVERWRITE,
        "overlap",
        {"size": 500, "products": 25, "copies": 30},
    ),
}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a step; of a failed one with what was got, expected, and the program."""

    what: str
    of: int
    state: Literal["passed", "failed"]
    got: str = ""
    expected: str = ""
    program: str = ""


def graded(lab: Lab, engine: str, seed: int) -> Iterator[Outcome]:
    """Judge an engine, step by step, on inputs of a seed."""
    random = np.random.default_rng(seed)
    yield judge_values(lab, engine, lab.program, random)
    yield judge_values(lab, engine, programs.PROMPTLY, random)
    yield judge_random_programs(lab, engine, seed)
    yield judge_order(lab, engine)


def judge_values(
    lab: Lab, engine: str, program: SmallProgram, random: np.random.Generator
) -> Outcome:
    """Compare what a small program computes on an engine with what NumPy does."""
    failed = partial(Outcome, program.what, 10, "failed", program=inspect.getsource(program.run))
    vectors = random.integers(0, 100, (program.vectors, 3)).astype(np.float32)
    try:
        got = computed(lab, engine, program.run, *vectors)
    except MeasurementError as error:
        return failed(str(error), "an end without an error")
    if isinstance(got, str) and got in programs.INSTEAD:
        return failed(got, programs.INSTEAD[got])
    expected = program.expected(*vectors)
    if not _is_equal(got, expected):
        return failed(short(got), short(expected))
    return Outcome(program.what, 10, "passed")


def judge_random_programs(lab: Lab, engine: str, seed: int) -> Outcome:
    """Judge an engine by random programs, until one shows something wrong."""
    what = f"Give NumPy's values and errors in {PROGRAMS} random programs."
    limits = Limits(
        seed=seed,
        programs=PROGRAMS,
        seconds=MOST_SECONDS,
        devices=lab.devices,
        deadline=PROGRAM_SECONDS,
        starting_seconds=MOST_STARTING_SECONDS,
        memory=MOST_BYTES,
    )
    try:
        found = next(
            search(partial(load, engine, device_kind="cpu", threads_per_device=1), limits), None
        )
    except BackendError as error:
        return Outcome(what, 40, "failed", str(error), "an engine that can be loaded")
    if found is None:
        return Outcome(what, 40, "passed")
    program = found.text(f"load('engine.py:{engine}', devices={{}})")
    return Outcome(what, 40, "failed", found.finding.what, "what NumPy gives", program)


def judge_order(lab: Lab, engine: str) -> Outcome:
    """Judge an engine by the first count of the lab's experiment."""
    what = f"In the experiment {lab.experiment!r}, at least half of the {lab.order.counted}."
    command = f"parallel-core run {lab.experiment} --backend engine.py:{engine}"
    failed = partial(Outcome, what, 40, "failed", program=command)
    try:
        result = measured(lab, engine)
    except MeasurementError as error:
        return failed(str(error), "an end without an error")
    # Times that cannot be true leave order as it is.
    errors = [problem for problem in result.problems if problem not in result.disturbances]
    if errors:
        return failed("; ".join(errors), "what NumPy gives")
    counted = result.counts.get(lab.order.name)
    if counted is None:
        return failed("; ".join(("nothing was counted", *result.notes)), "a count")
    if counted.count < LEAST_SHARE * counted.of:
        return failed(write(counted), f"at least half of {counted.of}")
    return Outcome(what, 40, "passed", write(counted))


def computed(lab: Lab, engine: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function of `programs` returns on an engine.

    Raises MeasurementError, as `_answer` does.
    """
    return _answer(lab, engine, MOST_SECONDS, function, *arguments)


def measured(lab: Lab, engine: str) -> Result:
    """Measure the lab's experiment on an engine; raises MeasurementError, as `_answer` does."""
    text = _answer(
        lab,
        engine,
        2 * MOST_SECONDS,
        programs.measurement,
        lab.experiment,
        {"budget": BUDGET, **lab.options},
    )
    try:
        return Result.from_json(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise MeasurementError("gave no result that can be read") from error


def _answer(lab: Lab, engine: str, seconds: float, *request: Any) -> Any:
    """Return the answer to a request, in a process of an engine.

    Raises MeasurementError if the engine cannot be loaded, raises, hangs or ends its process.
    """
    loader = partial(load, engine, device_kind="cpu", threads_per_device=1)
    task = Task(
        loader,
        programs.compute,
        lab.devices,
        starting_seconds=MOST_STARTING_SECONDS,
        memory=MOST_BYTES,
    )
    try:
        with closing(Worker(task)) as worker:
            answers = list(worker.call(lab.devices, *request, seconds=seconds))
    except HangError as error:
        raise MeasurementError(f"gave no result within {seconds:g} s and was killed") from error
    except (BackendError, WorkError) as error:
        raise MeasurementError(str(error)) from error
    if len(answers) != 1:
        raise MeasurementError(f"gave {len(answers)} results, not one")
    return answers[0]


def drawn(lab: Lab, engine: str, width: int = 60) -> str:
    """Draw what each thread of an engine did in a small program: a line for each, a letter for each
    task's time.
    """
    try:
        answer = computed(lab, engine, programs.timeline)
    except MeasurementError as error:
        return f"no timeline: {error}"
    if not isinstance(answer, list) or not all(map(_is_span, answer)):
        return "no timeline: the engine's spans are not those of tasks"
    if not answer:
        return "no timeline: no task was computed"
    first = min(start for _, _, start, _ in answer)
    seconds = max(end for _, _, _, end in answer) - first
    lines: dict[str, list[str]] = {}
    for what, thread, start, end in answer:
        line = lines.setdefault(thread, [" "] * (width + 1))
        left = int(width * (start - first) / seconds)
        right = int(width * (end - first) / seconds)
        line[left : right + 1] = what[0] * (right + 1 - left)
    return "\n".join(f"{thread[:12]:12} {''.join(line)}" for thread, line in lines.items())


def _is_equal(got: Any, expected: Any) -> bool:
    """Return whether all numbers are the same: the vectors' whole numbers have no errors of
    rounding.
    """
    if isinstance(expected, tuple):
        is_alike = isinstance(got, tuple) and len(got) == len(expected)
        return is_alike and all(map(_is_equal, got, expected))
    return isinstance(got, np.ndarray) and np.array_equal(got, expected)


def _is_span(value: Any) -> bool:
    match value:
        case (str(what), str(), float(start), float(end)):
            return bool(what) and math.isfinite(start) and start < end < math.inf
    return False
