"""Why not to wait: `y = x + 1`, 10 000 times, waiting after each step or once at the end, and a model of both times.

The book splits an increment into t1 (Python issues it), t2 (the backend computes it) and t3 (the result is reported
back). Waiting each time costs 10 000 · (t1 + t2 + t3); waiting once costs t1 + 10 000 · t2 + t3, provided that the
backend is the slower side: 10 000 · t2 > 9 999 · t1. For operations as small as this one that often does not hold,
so the longer of t1 and t2 is repeated in our prediction, and the book's stands beside it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import median
from time import perf_counter

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.measuring import Units, time_in_turn
from parallel_core.experiments.products import MOST_IN_UNIT, largest_size, normal_matrix
from parallel_core.measurement.confidence_intervals import Interval, decide
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import Timing, countdown, measure, without_garbage_collection
from parallel_core.measurement.verdicts import over_rounds

__all__ = [
    "CostModel",
    "fit_cost_model",
    "increment",
    "increments_as_unit",
    "matrix_to_wait_behind",
    "row_of_ones",
    "time_increments",
]

EACH, ONCE, SINGLE = "increments, waiting each time", "increments, waiting once", "increments in one launch"
BLOCKER_SECONDS, LARGEST_BLOCKER = 0.01, 1000
"""About how long a product that keeps the device busy takes at the most, and the most rows that it has."""


@dataclass(frozen=True)
class CostModel:
    """Seconds per operation: t1 to issue it, t2 to compute it, t3 to hear that it is done."""

    t1: float
    t2: float
    t3: float
    t2_over_t1: Interval | None = None
    """The ratio with its interval; None if it is exact."""
    issued: tuple[float, ...] = ()
    computed: tuple[float, ...] = ()
    """What t1 and t2 are the medians of; empty if they are exact."""

    @property
    def slower_side(self) -> int | None:
        """0 if Python is the slower side, 1 if the device is; None if the noise leaves it open."""
        ratio = self.t2 / self.t1
        return decide(self.t2_over_t1 or Interval(ratio, ratio, ratio), 1.0)

    def waiting_once(self, steps: int) -> float:
        """Predict the seconds of `steps` operations that are waited for at the end."""
        return self.t1 + (steps - 1) * max(self.t1, self.t2) + self.t2 + self.t3

    def waiting_once_by_the_book(self, steps: int) -> float:
        """Predict the same under the book's assumption that the backend is the slower side."""
        return self.t1 + steps * self.t2 + self.t3

    def waiting_each(self, steps: int) -> float:
        """Predict the seconds of `steps` operations that are each waited for."""
        return steps * (self.t1 + self.t2 + self.t3)


def row_of_ones(backend: Backend, elements: int = 2) -> Array:
    """Load the array that is incremented: 1 × 2, as in the book, to show overheads."""
    return backend.asarray(np.ones((1, elements), dtype=np.float32), backend.devices[0])


def increment(backend: Backend, x: Array, steps: int) -> Array:
    """Launch `steps` increments; each makes a new array, of which the last is returned."""
    for _ in range(steps):
        y = backend.launch(backend.ops.add, x, 1.0)
    return y


def _increment_and_wait(backend: Backend, x: Array, steps: int) -> Array:
    for _ in range(steps):
        y = backend.wait(backend.launch(backend.ops.add, x, 1.0))
    return y


def _increment_in_one_launch(backend: Backend, x: Array, steps: int) -> Array:
    """Launch one function that makes all the increments: what remains is the framework's own cost."""
    add = backend.ops.add

    def increments(start: Array) -> Array:
        for _ in range(steps):
            y = add(start, 1.0)
        return y

    return backend.launch(increments, x)


def increments_as_unit(backend: Backend, x: Array, steps: int) -> Callable[[], Array]:
    """Return what launches as many increments with nothing queued between them, many as several units.

    Each increments the one before, so that none has to be kept and none can be left out.
    """
    lengths = [min(MOST_IN_UNIT, steps - first) for first in range(0, steps, MOST_IN_UNIT)]
    units = {length: backend.ops.as_unit(partial(_increment_often, backend.ops.add, length)) for length in set(lengths)}

    def launch() -> Array:
        for length in lengths:
            y = backend.launch(units[length], x)
        return y

    return launch


def _increment_often(add: Callable[..., Array], steps: int, y: Array) -> Array:
    for _ in range(steps):
        y = add(y, 1.0)
    return y


def time_increments(backend: Backend, steps: int, rounds: int, budget: float) -> tuple[tuple[Case, Case, Case], float]:
    """Time the increments waited for each, once, and made in one launch; return the cases and the largest error."""
    x = row_of_ones(backend)
    each, once, single = time_in_turn(
        backend,
        {
            EACH: partial(_increment_and_wait, backend, x, steps),
            ONCE: partial(increment, backend, x, steps),
            SINGLE: partial(_increment_in_one_launch, backend, x, steps),
        },
        rounds,
        units=Units(
            {"increments": increments_as_unit(backend, x, steps)},
            dict.fromkeys((EACH, ONCE, SINGLE), ("increments",)),
        ),
        budget=budget,
    ).values()
    error = float(np.max(np.abs(backend.to_numpy(increment(backend, x, 1)) - 2)))
    return (each, once, single), error


def matrix_to_wait_behind(backend: Backend) -> Array:
    """Load a matrix on the first device, large enough for few of its products to take long, and not for too long."""
    return normal_matrix(backend, largest_size(backend, BLOCKER_SECONDS, LARGEST_BLOCKER), backend.devices[0])


def fit_cost_model(
    backend: Backend, x: Array, matrix: Array, steps: int = 1000, rounds: int = 5, budget: float = inf
) -> CostModel:
    """Measure t1, t2 and t3 of an increment of `x` apart, without timing the totals that they are to predict.

    `x` is on the first device. That is kept busy with products of the matrix while `steps` increments are issued:
    issuing them costs t1 each, and what the device needs for them after its products is t2 each. t3 is what remains of
    a single increment's round trip. There are fewer rounds if they would take more than the budget of seconds.
    """
    left = countdown(budget)
    issued = measure(backend, partial(increment, backend, x, steps))[0]
    # The fastest of three: too few products would end before all increments are issued.
    product = min(measure(backend, partial(backend.launch, backend.ops.matmul, matrix, matrix))[1] for _ in range(3))
    blockers = 1 + round(4 * issued / product)

    def behind_products() -> Timing:
        backend.waitall()
        for _ in range(blockers):
            last = backend.launch(backend.ops.matmul, matrix, matrix)
        start = perf_counter()
        increment(backend, x, steps)
        sent = perf_counter() - start
        backend.wait(last)
        start = perf_counter()
        backend.waitall()
        return sent / steps, (perf_counter() - start) / steps

    def round_trip() -> float:
        backend.waitall()
        start = perf_counter()
        backend.wait(backend.launch(backend.ops.add, x, 1.0))
        return perf_counter() - start

    with without_garbage_collection():
        taken = [behind_products()]
        while len(taken) < rounds and left(0.9) > 0:
            taken.append(behind_products())
        trips = [round_trip()]
        while len(trips) < 20 * rounds and left(1.0) > 0:
            trips.append(round_trip())
    t1, t2 = median(sent for sent, _ in taken), median(drained for _, drained in taken)
    ratio = over_rounds(lambda computed, issued: computed / issued, *zip(*((b, a) for a, b in taken), strict=True))
    issued_each, computed_each = zip(*taken, strict=True)
    return CostModel(t1, t2, max(0.0, median(trips) - t1 - t2), ratio, issued_each, computed_each)
