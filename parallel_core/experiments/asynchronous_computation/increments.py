"""Why not to wait: `y = x + 1`, 10 000 times, waiting after each step or once at the end, and a model of both times.

The book splits an increment into t1 (Python issues it), t2 (the backend computes it) and t3 (the result is reported
back). Waiting each time costs 10 000 · (t1 + t2 + t3); waiting once costs t1 + 10 000 · t2 + t3, provided that the
backend is the slower side: 10 000 · t2 > 9 999 · t1. For operations as small as this one that often does not hold,
so the longer of t1 and t2 is repeated in our prediction, and the book's stands beside it.
"""

from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.measuring import time_in_turn
from parallel_core.experiments.products import normal_matrix
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import Timing, measure, without_garbage_collection

__all__ = ["CostModel", "fit_cost_model", "increment", "row_of_ones", "time_increments"]


@dataclass(frozen=True)
class CostModel:
    """Seconds per operation: t1 to issue it, t2 to compute it, t3 to hear that it is done."""

    t1: float
    t2: float
    t3: float

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


def time_increments(backend: Backend, steps: int, rounds: int) -> tuple[tuple[Case, Case, Case], float]:
    """Time the increments waited for each, once, and made in one launch; return the cases and the largest error."""
    x = row_of_ones(backend)
    each, once, single = time_in_turn(
        backend,
        {
            "increments, waiting each time": partial(_increment_and_wait, backend, x, steps),
            "increments, waiting once": partial(increment, backend, x, steps),
            "increments in one launch": partial(_increment_in_one_launch, backend, x, steps),
        },
        rounds,
    ).values()
    error = float(np.max(np.abs(backend.to_numpy(increment(backend, x, 1)) - 2)))
    return (each, once, single), error


def fit_cost_model(backend: Backend, x: Array, steps: int = 1000, rounds: int = 5) -> CostModel:
    """Measure t1, t2 and t3 of an increment of `x` apart, without timing the totals that they are to predict.

    `x` is on the first device. That is kept busy with products while `steps` increments are issued: issuing them costs
    t1 each, and what the device needs for them after its products is t2 each. t3 is what remains of a single
    increment's round trip.
    """
    matrix = normal_matrix(backend, 1000, backend.devices[0])
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
        taken = [behind_products() for _ in range(rounds)]
        trip = median(round_trip() for _ in range(20 * rounds))
    t1, t2 = median(sent for sent, _ in taken), median(drained for _, drained in taken)
    return CostModel(t1, t2, max(0.0, trip - t1 - t2))
