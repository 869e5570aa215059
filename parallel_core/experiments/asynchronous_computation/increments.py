"""Increments of an array: their time, and the cost model that predicts it.

Book: Dive into Deep Learning, "Asynchronous Computation": with t1 to issue an operation, t2 to
compute it and t3 to report its result, n operations that are waited for once take t1 + n · t2 + t3,
if the backend is the slower side.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from math import isfinite

import numpy as np

from backends import Array
from parallel_core.experiments.asynchronous_computation.fitting import CostModel, fit_cost_model
from parallel_core.experiments.runner.counts import Count
from parallel_core.experiments.runner.metrics import LOWEST, Band, DirectAnswer, Metric
from parallel_core.experiments.runner.tallies import (
    Repetition,
    Tally,
    most_unfinished_at_return,
    unfinished_at_return,
)
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.runner.work import Work
from parallel_core.experiments.workloads import (
    FEWEST_TIMINGS,
    incremented,
    increments,
    multiplied,
    ones,
    size_up_to,
)
from parallel_core.measurement.confidence_intervals import exponential, with_bounds
from parallel_core.measurement.result import Case, Result
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
    """Fit the cost model, then time increments: with a wait after each, with one wait at the end,
    and in one launch.
    """
    backend, add = trial.backend, trial.backend.ops.add
    x = ones(trial, trial.devices[0], ELEMENTS)
    matrix = trial.normal(size_up_to(trial, 0.01, 1000).value, trial.devices[0])
    model = fit_cost_model(trial, x, matrix, 0.3 * trial.left(0.95), rounds=trial.rounds)
    if steps is None:
        steps = steps_that_fit(model, trial.left(0.95))
        trial.parameters["steps"] = steps
    once = increments(trial, x, steps, trial.devices[0])

    def waiting_each_time() -> Array:
        for _ in range(steps):
            y = backend.wait(backend.launch(add, x, 1.0))
        return y

    trial.time(EACH, Work(waiting_each_time), bare=(once,))
    trial.time(ONCE, once)
    trial.time(SINGLE, in_one_launch(trial, x, once, steps))
    trial.check("increments", [incremented(trial, x, 1)], [np.full((1, ELEMENTS), 2.0)])
    cases = trial.run(0.95)
    behind = partial(launch_behind_multiplications, trial, x, matrix)
    trial.takes[BEHIND] = partial(measure, backend, behind)
    find_figures(trial, model, cases, steps)


def steps_that_fit(model: CostModel, seconds: float) -> int:
    """Return how many increments, 100 to 10,000 in hundreds, fit `seconds` in all timings."""
    # What an increment takes in each of the cases that are timed.
    waiting_each = model.waiting_each(1)
    waiting_once = max(model.t1, model.t2)
    in_one_launch_or_in_units = model.t1 + model.t2
    seconds_of_step = waiting_each + waiting_once + 2 * in_one_launch_or_in_units
    seconds_of_timing = seconds / FEWEST_TIMINGS
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


def find_figures(trial: Trial, model: CostModel, cases: Mapping[str, Case], steps: int) -> None:
    """Find the cost of a launch, and what was measured beside what the model predicts."""
    # What a single launch of all increments does not take is the cost of launching each.
    trial.found_by(
        "launch_cost_seconds", lambda times: (times[ONCE] - times[SINGLE]) / steps, is_ratio=False
    )
    trial.found_by("increment_seconds", lambda times: times[ONCE] / steps)
    trial.found(T2_OVER_T1.name, model.t2_over_t1)
    once, each = cases[ONCE], cases[EACH]
    one_increment = replace(once, seconds=tuple(seconds / steps for seconds in once.seconds))
    trial.found("measured_over_predicted", exponential(model.log_error(one_increment, steps)))
    trial.found("t1_seconds", model.t1)
    trial.found("t2_seconds", model.t2)
    trial.found("t3_seconds", model.t3)
    trial.found("measured_once_seconds", once.median)
    trial.found("predicted_once_seconds", model.waiting_once(steps))
    trial.found("book_predicted_once_seconds", model.waiting_once_by_the_book(steps))
    trial.found("measured_each_seconds", each.median)
    trial.found("predicted_each_seconds", model.waiting_each(steps))


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

    def increment_in_one_launch() -> Array:
        return backend.launch(increment, x, steps)

    backend.wait(backend.launch(increment, x, 1))
    calls_before = next(calls)
    backend.wait(backend.launch(increment, x, 1))
    # A compiled function is not called again.
    is_compiled = next(calls) == calls_before + 1
    launch = once.unit if is_compiled and once.unit else increment_in_one_launch
    return Work(launch, once.unit, once.times)


def unfinished_increments(repetition: Repetition) -> Tally:
    """Count the increments that were not done when their calls had returned."""
    return unfinished_at_return(_of_increments(repetition))


def most_unfinished_increments(repetition: Repetition) -> Tally:
    """Count the most increments that were launched and not done at one return of a call."""
    return most_unfinished_at_return(_of_increments(repetition))


def _of_increments(repetition: Repetition) -> Repetition:
    """Return a repetition without its first launches, which are of the multiplications."""
    return replace(repetition, launches=repetition.launches[MULTIPLICATIONS:])


UNFINISHED = Count(
    "increments_unfinished_at_return",
    "increments were not done when their calls had returned",
    case=BEHIND,
    tally=unfinished_increments,
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
    tally=most_unfinished_increments,
    title="",
)
T2_OVER_T1 = Metric(
    "t2_over_t1",
    means="the time to compute the smallest operation over that to issue it: below 1 Python is "
    "slower",
    about="the ratio of t2 to t1",
    not_if_counted="inside",
    bands=(
        Band(LOWEST, "inside", "Nothing was queued, so issuing an increment contains computing it"),
        Band(
            0.02,
            "python",
            "Issuing an increment takes longer than computing it, against the book's assumption",
        ),
        Band(
            1.0,
            "device",
            "Computing an increment takes longer than issuing it, as the book assumes",
        ),
    ),
)
