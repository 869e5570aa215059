"""Grading of labs: the steps of each lab, and the judgement of an engine.

The engine runs in other processes, which are killed when they hang or take too much memory. Its
results are compared here with the expected ones.
"""

import inspect
import json
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
"""The most bytes by which the process of a step may grow."""
MOST_STARTING_SECONDS = 10.0
"""The most seconds that an engine may take to start."""
MOST_SECONDS = 30.0
"""The most seconds that a step may take after that; an experiment may take twice as long."""
PROGRAM_SECONDS = 5.0
"""The most seconds that one random program may take."""
BUDGET = 3.0
"""The seconds for which an experiment measures before it counts."""
LEAST_SHARE = 0.5
"""The smallest share of a count that passes. It is near 0 without the right queue and near 1 with
it, on a busy machine too.
"""


class Lab(NamedTuple):
    """A lab, in which a reader builds an engine.

    The engine must give NumPy's values in a small program, and show in an experiment's first count
    the order that its queues allow.
    """

    title: str
    devices: int
    program: SmallProgram
    experiment: str
    options: Mapping[str, int]
    """The experiment's options: a multiplication takes some milliseconds, and so do the copies of
    its result.
    """

    @property
    def order(self) -> Count:
        """The first count of the experiment."""
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
    """The outcome of a step."""

    what: str
    """The engine's task in the step, in a sentence."""
    of: int
    """The points of the step."""
    state: Literal["passed", "failed"]
    got: str = ""
    """What the engine gave."""
    expected: str = ""
    """What a failed engine should have given."""
    program: str = ""
    """The program that a failed engine ran."""


def graded(lab: Lab, engine: str, seed: int) -> Iterator[Outcome]:
    """Yield the outcomes of a lab's steps for an engine, on inputs that are drawn from a seed."""
    random = np.random.default_rng(seed)
    yield judge_values(lab, engine, lab.program, random)
    yield judge_values(lab, engine, programs.PROMPTLY, random)
    yield judge_random_programs(lab, engine, seed)
    yield judge_order(lab, engine)


def judge_values(
    lab: Lab, engine: str, program: SmallProgram, random: np.random.Generator
) -> Outcome:
    """Judge an engine by a small program, whose values must be NumPy's."""
    failed = partial(Outcome, program.what, 10, "failed", program=inspect.getsource(program.run))
    vectors = random.integers(0, 100, (program.vectors, 3)).astype(np.float32)
    try:
        values = computed(lab, engine, program.run, *vectors)
    except MeasurementError as error:
        return failed(str(error), "an end without an error")
    if isinstance(values, str) and values in programs.INSTEAD:
        return failed(values, programs.INSTEAD[values])
    expected = program.expected(*vectors)
    if not _is_equal(values, expected):
        return failed(short(values), short(expected))
    return Outcome(program.what, 10, "passed")


def judge_random_programs(lab: Lab, engine: str, seed: int) -> Outcome:
    """Judge an engine by random programs, until one of them fails."""
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
    loader = partial(load, engine, device_kind="cpu", threads_per_device=1)
    try:
        failure = next(search(loader, limits), None)
    except BackendError as error:
        return Outcome(what, 40, "failed", str(error), "an engine that can be loaded")
    if failure is None:
        return Outcome(what, 40, "passed")
    program = failure.text(f"load('engine.py:{engine}', devices={{}})")
    return Outcome(what, 40, "failed", failure.finding.what, "what NumPy gives", program)


def judge_order(lab: Lab, engine: str) -> Outcome:
    """Judge an engine by the first count of the lab's experiment."""
    what = f"In the experiment {lab.experiment!r}, at least half of the {lab.order.counted}."
    command = f"parallel-core run {lab.experiment} --backend engine.py:{engine}"
    failed = partial(Outcome, what, 40, "failed", program=command)
    try:
        result = measured(lab, engine)
    except MeasurementError as error:
        return failed(str(error), "an end without an error")
    # Disturbed times do not make a count wrong.
    if result.errors:
        return failed("; ".join(map(str, result.errors)), "what NumPy gives")
    counted = result.counts.get(lab.order.name)
    if counted is None:
        return failed("; ".join(("nothing was counted", *map(str, result.notes))), "a count")
    if counted.count < LEAST_SHARE * counted.of:
        return failed(write(counted), f"at least half of {counted.of}")
    return Outcome(what, 40, "passed", write(counted))


def computed(lab: Lab, engine: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function of `programs` on an engine, in its process.

    Raises MeasurementError, as `_answer` does.
    """
    return _answer(lab, engine, MOST_SECONDS, function, *arguments)


def measured(lab: Lab, engine: str) -> Result:
    """Measure the lab's experiment on an engine; raises MeasurementError, as `_answer` does."""
    options = {"budget": BUDGET, **lab.options}
    request = (programs.measurement, lab.experiment, options)
    text = _answer(lab, engine, 2 * MOST_SECONDS, *request)
    return Result.from_json(json.loads(text))


def _answer(lab: Lab, engine: str, seconds: float, *request: Any) -> Any:
    """Return the answer to a request in the process of an engine: a function with its arguments.

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
            (answer,) = worker.call(lab.devices, *request, seconds=seconds)
    except HangError as error:
        raise MeasurementError(f"gave no result within {seconds:g} s and was killed") from error
    except (BackendError, WorkError) as error:
        raise MeasurementError(str(error)) from error
    return answer


def drawn(lab: Lab, engine: str, width: int = 60) -> str:
    """Draw a timeline of an engine's threads in a small program: a line for each thread, with the
    first letter of each task as long as the task ran.
    """
    try:
        spans = computed(lab, engine, programs.timeline)
    except MeasurementError as error:
        return f"no timeline: {error}"
    if not spans:
        return "no timeline: no task was computed"
    first = min(start for _, _, start, _ in spans)
    last = max(end for _, _, _, end in spans)
    letters_by_thread: dict[str, list[str]] = {}
    for what, thread, start, end in spans:
        letters = letters_by_thread.setdefault(thread, [" "] * (width + 1))
        left = int(width * (start - first) / (last - first))
        right = int(width * (end - first) / (last - first))
        letters[left : right + 1] = what[0] * (right + 1 - left)
    lines = []
    for thread, letters in letters_by_thread.items():
        drawn_letters = "".join(letters)
        lines.append(f"{thread[:12]:12} {drawn_letters}")
    return "\n".join(lines)


def _is_equal(got: Any, expected: Any) -> bool:
    """Return whether two arrays, or tuples of arrays, have the same numbers.

    They are whole numbers, so there are no rounding errors.
    """
    if isinstance(expected, tuple):
        if not isinstance(got, tuple) or len(got) != len(expected):
            return False
        return all(map(_is_equal, got, expected))
    return isinstance(got, np.ndarray) and np.array_equal(got, expected)
