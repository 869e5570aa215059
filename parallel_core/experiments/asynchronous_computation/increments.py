"""Increments of an array: how long they take, waited for one by one or once, and how many are
queued.
"""

from dataclasses import replace
from functools import partial
from itertools import count
from math import isfinite

import numpy as np

from backends import Array
from parallel_core.experiments.runner.counts import Count
from parallel_core.experiments.runner.metrics import LOWEST, Band, DirectAnswer
from parallel_core.experiments.runner.tallies import (
    Tallying,
    most_unfinished_at_return,
    unfinished_at_return,
)
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.runner.work import Launch, Work
from parallel_core.experiments.workloads import (
    FEWEST_TIMINGS,
    incremented,
    increments,
    multiplied,
    ones,
    size_up_to,
)
from parallel_core.measurement.confidence_intervals import with_bounds
from parallel_core.measurement.result import Result
from parallel_core.measurement.timing import measure

EACH, ONCE, SINGLE = (
    "increments, waiting each time",
    "increments, waiting once",
    "increments in one launch",
)
BEHIND = "increments behind multiplications"
"""A case that is not timed, but recorded by a profiler."""
RECORDED_INCREMENTS, MULTIPLICATIONS = 1000, 20
"""The launches of that case. The multiplications take longer than launching the increments does,
under a profiler too.
"""
ELEMENTS = 2
STEPS_OF_THE_BOOK = 10_000


def time_increments(trial: Trial, steps: int | None) -> None:
    """Time increments: with a wait after each, with one wait at the end, and in one launch."""
    backend = trial.backend
    x = ones(trial, trial.devices[0], ELEMENTS)
    matrix = trial.normal(size_up_to(trial, 0.01, 1000).value, trial.devices[0])
    if steps is None:
        steps = steps_that_fit(trial, x)
        trial.parameters["steps"] = steps
    once = increments(trial, x, steps, trial.devices[0])
    trial.time(EACH, Work(partial(waiting_each_time, trial, x, steps)), bare=(once,))
    trial.time(ONCE, once)
    trial.time(SINGLE, in_one_launch(trial, x, once, steps))
    trial.check("increments", [incremented(trial, x, 1)], [np.full((1, ELEMENTS), 2.0)])
    trial.run(0.95)
    behind = partial(launch_behind_multiplications, trial, x, matrix)
    trial.takes[BEHIND] = partial(measure, backend, behind)
    # What a single launch of all increments does not take is the cost of launching each.
    trial.found_by(
        "launch_cost_seconds", lambda times: (times[ONCE] - times[SINGLE]) / steps, is_ratio=False
    )
    trial.found_by("increment_seconds", lambda times: times[ONCE] / steps)


def waiting_each_time(trial: Trial, x: Array, steps: int) -> Array:
    """Launch increments, and wait for each; return the last one."""
    for _ in range(steps):
        y = trial.backend.wait(incremented(trial, x, 1))
    return y


def steps_that_fit(trial: Trial, x: Array) -> int:
    """Return how many increments, 100 to 10,000 in hundreds, fit the budget in all timings."""
    few = 50
    _, waiting_each = measure(trial.backend, partial(waiting_each_time, trial, x, few))
    _, waiting_once = measure(trial.backend, partial(incremented, trial, x, few))
    # Each is timed with a wait, without, in one launch, and twice as units.
    seconds_of_step = (waiting_each + 4 * waiting_once) / few
    seconds_of_timing = trial.left(0.95) / FEWEST_TIMINGS
    steps = 100 * round(seconds_of_timing / seconds_of_step / 100)
    return max(100, min(10_000, steps))


def once_or_each_time(result: Result) -> DirectAnswer | None:
    """Say whether waiting once is faster than each time, for how many increments, and why."""
    speedup = result.interval("async_speedup")
    if speedup is None or not isfinite(speedup.high):
        return None
    steps = result.parameters["steps"]
    written = with_bounds(speedup)
    increments = f"{steps:,} increments of {ELEMENTS} elements"
    if steps != STEPS_OF_THE_BOOK:
        increments += f" (the book has {STEPS_OF_THE_BOOK:,})"
    if speedup.low > 1:
        return DirectAnswer(
            "once",
            f"Once: {written} times as fast as each time, for {increments}, because Python waits 1 "
            f"time in place of {steps:,}.",
        )
    if speedup.high < 1:
        return DirectAnswer(
            "each-time", f"Each time: waiting once is {written} times as fast, for {increments}."
        )
    return DirectAnswer(
        None,
        f"Neither is shown to be faster: once is {written} times as fast as each time, for "
        f"{increments}, so this run cannot tell.",
    )


def launch_behind_multiplications(trial: Trial, x: Array, matrix: Array) -> None:
    """Launch increments while the device is busy with multiplications.

    On an idle device an increment is done at once, and does not show whether it was queued.
    """
    multiplied(trial, matrix, MULTIPLICATIONS)
    incremented(trial, x, RECORDED_INCREMENTS)


def in_one_launch(trial: Trial, x: Array, once: Work, steps: int) -> Work:
    """Make the work of all increments in one launch.

    A framework that compiles functions would leave all increments but the last out of this one, so
    the work is then the unit of `once`.
    """
    backend, add = trial.backend, trial.backend.ops.add
    # An iterator counts the calls: a function that captures a number is compiled for each one.
    calls = count()

    def increment(start: Array, steps: int) -> Array:
        next(calls)
        for _ in range(steps):
            y = add(start, 1.0)
        return y

    backend.wait(backend.launch(increment, x, 1))
    calls_before = next(calls)
    backend.wait(backend.launch(increment, x, 1))
    # A compiled function is not called again.
    is_compiled = next(calls) == calls_before + 1
    launch: Launch = partial(backend.launch, increment, x, steps)
    if is_compiled and once.unit:
        launch = once.unit
    return Work(launch, once.unit, once.times)


def _of_increments(tally: Tallying) -> Tallying:
    """Leave out the first launches of a repetition, which are of the multiplications."""
    return lambda repetition: tally(
        replace(repetition, launches=repetition.launches[MULTIPLICATIONS:])
    )


UNFINISHED = Count(
    "increments_unfinished_at_return",
    "increments were not done when their calls had returned",
    case=BEHIND,
    tally=_of_increments(unfinished_at_return),
    title="Increments queued",
    bands=(
        Band(LOWEST, "not-queued", "Behind multiplications no increment was queued"),
        # A single one is proof. Some engines bound how many may be queued.
        Band(1e-6, "queued", "Behind multiplications increments were queued"),
    ),
)
MOST_UNFINISHED = replace(
    UNFINISHED,
    name="most_increments_unfinished_at_return",
    counted="at a time, at the most",
    tally=_of_increments(most_unfinished_at_return),
    title="",
)
