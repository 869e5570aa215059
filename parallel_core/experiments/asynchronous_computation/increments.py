"""Why not to wait: `y = x + 1`, many times, waiting after each step or once at the end, and a model of both times.

The book's cost model splits an operation into t1 (Python issues it), t2 (the backend computes it) and t3 (the result is
reported back). Waiting after each of n operations takes n · (t1 + t2 + t3). Waiting once takes t1 + n · t2 + t3,
provided that the backend is the slower side: n · t2 > (n - 1) · t1. For operations as small as an increment that often
does not hold. So our prediction repeats the longer of t1 and t2, and the book's stands beside it.
"""

from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import median
from time import perf_counter

import numpy as np

from backends import Array
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.trial import Trial, Work
from parallel_core.experiments.works import FEWEST_TIMINGS, incremented, increments, largest_size, multiplied
from parallel_core.measurement.confidence_intervals import Interval, exponential
from parallel_core.measurement.timing import Timing, measure
from parallel_core.measurement.verdicts import over_rounds

__all__ = [
    "EACH",
    "ONCE",
    "CostModel",
    "fit_cost_model",
    "matrix_to_wait_behind",
    "row_of_ones",
    "t2_over_t1",
    "time_increments",
]

EACH, ONCE, SINGLE = "increments, waiting each time", "increments, waiting once", "increments in one launch"
FEWEST_STEPS, STEPS = 100, 10_000

BLOCKER_SECONDS, LARGEST_BLOCKER = 0.01, 1000
"""About how long a multiplication that keeps the device busy takes at the most, and the most rows that it has."""
TRIPS = 20
"""How often an increment is launched and waited for in a round."""
INSIDE = 0.02
"""A share of t1: if t2 is less, the operation was computed before control returned."""


def t2_over_t1(name: str) -> Metric:
    """Declare the ratio of t2 to t1, which tells whether Python or the device is the slower side."""
    return Metric(
        name,
        means="the time to compute the smallest operation over that to issue it: below 1 Python is slower",
        about="the ratio of t2 to t1",
        bands=(
            Band(LOWEST, "inside", "Nothing was queued, so issuing an increment contains computing it"),
            Band(INSIDE, "python", "Python is the slower side for an increment, against the book's assumption"),
            Band(1.0, "device", "The device is the slower side for an increment, as the book assumes"),
        ),
    )


@dataclass(frozen=True)
class CostModel:
    """Seconds of an operation: t1 to issue it and t2 to compute it, in each round, and t3 to hear that it is done."""

    issued: tuple[float, ...]
    computed: tuple[float, ...]
    t3: float

    @property
    def t1(self) -> float:
        """The median seconds to issue it."""
        return median(self.issued)

    @property
    def t2(self) -> float:
        """The median seconds to compute it."""
        return median(self.computed)

    @property
    def t2_over_t1(self) -> Interval:
        """How many times longer computing takes than issuing: below 1 Python is the slower side."""
        return exponential(over_rounds(lambda computed, issued: np.log(computed / issued), self.computed, self.issued))

    def waiting_once(self, steps: int) -> float:
        """Predict the seconds of `steps` operations that are waited for at the end."""
        return self.t1 + (steps - 1) * max(self.t1, self.t2) + self.t2 + self.t3

    def waiting_once_by_the_book(self, steps: int) -> float:
        """Predict the same under the book's assumption that the backend is the slower side."""
        return self.t1 + steps * self.t2 + self.t3

    def waiting_each(self, steps: int) -> float:
        """Predict the seconds of `steps` operations that are each waited for."""
        return steps * (self.t1 + self.t2 + self.t3)


def row_of_ones(trial: Trial, elements: int = 2) -> Array:
    """Load the array that is incremented: 1 × 2, as in the book, to show overheads."""
    return trial.backend.asarray(np.ones((1, elements), dtype=np.float32), trial.devices[0])


def matrix_to_wait_behind(trial: Trial) -> Array:
    """Load a matrix on the first device that is large enough to keep it busy for long by a few multiplications."""
    return trial.normal(largest_size(trial, BLOCKER_SECONDS, LARGEST_BLOCKER), trial.devices[0])


def fit_cost_model(
    trial: Trial, x: Array, matrix: Array, steps: int = 1000, rounds: int = 5, budget: float = inf
) -> CostModel:
    """Measure t1, t2 and t3 of an increment of `x` separately, without timing the totals that they are to predict.

    The device of both arrays is kept busy with multiplications of the matrix while `steps` increments are issued:
    issuing them costs t1 each, and what the device needs for them after its multiplications is t2 each. t3 is what
    remains of a single increment's round trip.
    """
    backend, increment = trial.backend, partial(incremented, trial, x)
    issued = measure(backend, partial(increment, steps))[0]
    # The fastest of three: too few multiplications would end before all increments are issued.
    multiply = partial(multiplied, trial, matrix, 1)
    blockers = 1 + round(4 * issued / min(measure(backend, multiply)[1] for _ in range(3)))

    def behind_multiplications() -> Timing:
        backend.waitall()
        for _ in range(blockers):
            (last,) = multiply()
        start = perf_counter()
        increment(steps)
        sent = perf_counter() - start
        backend.wait(last)
        start = perf_counter()
        backend.waitall()
        return sent / steps, (perf_counter() - start) / steps

    probe = Trial(backend, {}, rounds, budget)
    probe.time("t1 and t2", take=behind_multiplications)
    probe.time("round trip", Work(lambda: [backend.wait(increment(1)) for _ in range(TRIPS)]), repeats=TRIPS)
    parts, trip = probe.run(1.0).values()
    t1s, t2s = parts.dispatch_seconds, parts.seconds
    return CostModel(t1s, t2s, max(0.0, trip.median - median(t1s) - median(t2s)))


def time_increments(trial: Trial, steps: int | None) -> None:
    """Fit the cost model, then time increments waited for each time and once, and made in one launch.

    None are 10 000 steps, or as many as the budget allows.
    """
    x, launch, add = row_of_ones(trial), trial.backend.launch, trial.backend.ops.add
    model = fit_cost_model(trial, x, matrix_to_wait_behind(trial), budget=0.3 * trial.left(0.95))
    if steps is None:
        # Once by launches, and twice within some: in one, and in units.
        of_a_step = model.waiting_each(1) + max(model.t1, model.t2) + 2 * (model.t1 + model.t2)
        allowed = round(trial.left(0.95) / FEWEST_TIMINGS / of_a_step / 100) * 100
        steps = trial.parameters["steps"] = max(FEWEST_STEPS, min(STEPS, allowed))
    once = increments(trial, x, steps)

    def waiting_each_time() -> Array:
        for _ in range(steps):
            y = trial.backend.wait(launch(add, x, 1.0))
        return y

    def in_one_launch(start: Array) -> Array:
        for _ in range(steps):
            y = add(start, 1.0)
        return y

    trial.time(EACH, Work(waiting_each_time), bare=(once,))
    trial.time(ONCE, once)
    # What remains is the framework's own cost.
    trial.time(SINGLE, Work(partial(launch, in_one_launch, x)), bare=(once,))
    trial.check("increments", [incremented(trial, x, 1)], [np.full((1, 2), 2.0)])
    cases = trial.run(0.95)
    trial.found_by("launch_cost_seconds", lambda times: (times[ONCE] - times[SINGLE]) / steps, is_ratio=False)
    trial.found("t2_over_t1", model.t2_over_t1)
    for name, found in {
        "t1": model.t1,
        "t2": model.t2,
        "t3": model.t3,
        "measured_once": cases[ONCE].median,
        "predicted_once": model.waiting_once(steps),
        "book_predicted_once": model.waiting_once_by_the_book(steps),
        "measured_each": cases[EACH].median,
        "predicted_each": model.waiting_each(steps),
    }.items():
        trial.found(f"{name}_seconds", found)
