"""The cost model of the book: the time to issue an operation, to compute it and to report it."""

from dataclasses import dataclass, replace
from functools import partial
from math import log
from time import perf_counter
from typing import NamedTuple

import numpy as np

from backends import Array
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.runner.work import Work
from parallel_core.experiments.workloads import (
    incremented,
    multiplied,
)
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.over_rounds import over_rounds, times_as_long
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import Timing, measure

FEWEST_ISSUED = 10
"""The fewest increments from which a cost model is fitted."""


@dataclass(frozen=True)
class CostModel:
    """The seconds that an operation takes: t1 to issue it, t2 to compute it, t3 to report it."""

    issued: Case
    """The seconds to issue an operation, round by round."""
    computed: Case
    """The seconds to compute an operation, round by round."""
    t3: float

    @property
    def t1(self) -> float:
        """The median seconds to issue an operation."""
        return self.issued.median

    @property
    def t2(self) -> float:
        """The median seconds to compute an operation."""
        return self.computed.median

    @property
    def python_is_slower(self) -> bool:
        """Whether issuing takes as long as computing, or longer."""
        return self.t2 <= self.t1

    @property
    def t2_over_t1(self) -> Interval:
        """The time of computing over that of issuing."""
        return times_as_long(self.computed, self.issued)

    def waiting_once(self, steps: int) -> float:
        """Predict the seconds of `steps` operations that are waited for at the end."""
        longer = max(self.t1, self.t2)
        return self.t1 + (steps - 1) * longer + self.t2 + self.t3

    def waiting_once_by_the_book(self, steps: int) -> float:
        """Predict the same under the book's assumption that the backend is the slower side."""
        return self.t1 + steps * self.t2 + self.t3

    def log_error(self, measured: Case, steps: int, among: int = 1) -> Interval:
        """Return the logarithm of measured over predicted seconds of an operation.

        `steps` operations were waited for once, at the end. The prediction is that of
        `waiting_once`. The interval contains the noise of the measured case, of t1 and of t2.
        """

        def log_ratio(seconds: np.ndarray, t1: np.ndarray, t2: np.ndarray) -> np.ndarray:
            longer = np.maximum(t1, t2)
            # This is `waiting_once` over the steps.
            predicted = longer + (t1 + t2 + self.t3 - longer) / steps
            # A fitted time may be 0.
            return np.log(seconds / np.maximum(predicted, 1e-12))

        times = (measured.seconds, self.issued.seconds, self.computed.seconds)
        error = over_rounds(log_ratio, *times, paired=False, among=among)
        # Other programs may have taken a share of the measured time, or of the predicted one.
        measured_loss = log(measured.least_share)
        predicted_loss = log(self.issued.least_share)
        return replace(error, low=error.low + measured_loss, high=error.high - predicted_loss)


def fit_cost_model(
    trial: Trial, x: Array, matrix: Array, budget: float, steps: int, *, rounds: int
) -> CostModel:
    """Measure t1, t2 and t3 of an increment of `x` separately, and not the times that they predict.

    The device is kept busy with multiplications of the matrix, some milliseconds each, while
    `steps` increments are issued, or as many as may be in flight. To issue an increment takes t1.
    After its multiplications the device needs t2 for each increment. t3 is the time of a single
    increment's round trip without t1 and t2.
    """
    backend = trial.backend
    increment = partial(incremented, trial, x)
    multiply = partial(multiplied, trial, matrix, 1)
    issuing_all, _ = measure(backend, partial(increment, steps))
    seconds_to_issue = issuing_all / steps
    # The fastest of three: with too few multiplications they would end before the last increment is
    # issued.
    timings = [measure(backend, multiply) for _ in range(3)]
    seconds_to_multiply = min(seconds for _, seconds in timings)

    def time_behind_multiplications(count: int) -> _IncrementsBehind:
        """Launch multiplications, and increments behind them, and time the increments."""
        backend.waitall()
        # The multiplications take four times as long as issuing the increments.
        multiplications = 1 + round(4 * count * seconds_to_issue / seconds_to_multiply)
        for _ in range(multiplications):
            (last_product,) = multiply()
        start = perf_counter()
        increment(count)
        issued = perf_counter()
        backend.wait(last_product)
        multiplied = perf_counter()
        backend.waitall()
        done = perf_counter()
        return _IncrementsBehind(issued - start, multiplied - issued, done - multiplied)

    while backend.engine == "async" and steps > FEWEST_ISSUED:
        times = time_behind_multiplications(steps)
        if times.still_multiplying >= times.issuing:
            break
        # The multiplications ended too soon: if few increments may be in flight, issuing waits.
        steps //= 2

    def issuing_and_computing() -> Timing:
        times = time_behind_multiplications(steps)
        return times.issuing / steps, times.computing / steps

    round_trips = Work(lambda: [backend.wait(increment(1)) for _ in range(20)])
    probe = Trial(backend, {}, rounds, budget)
    probe.time("t1 and t2", take=issuing_and_computing)
    probe.time("round trip", round_trips, repeats=20)
    cases = probe.run(1.0)
    computed, round_trip = cases["t1 and t2"], cases["round trip"]
    # Until control returned increments were issued: t1.
    issued = replace(computed, seconds=computed.dispatch_seconds)
    t3 = max(0.0, round_trip.median - issued.median - computed.median)
    return CostModel(issued, computed, t3)


class _IncrementsBehind(NamedTuple):
    """The seconds of increments that were launched behind multiplications."""

    issuing: float
    still_multiplying: float
    """The seconds from the last launch until the multiplications were done."""
    computing: float
    """The seconds from then until the increments were done."""
