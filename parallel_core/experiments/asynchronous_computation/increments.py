"""Increments of an array: the time of ten thousand, the cost model that predicts it, and the memory
of queued ones.

Book: Dive into Deep Learning, "Asynchronous Computation": with t1 to issue an operation, t2 to
compute it and t3 to report its result, n operations that are waited for once take t1 + n · t2 + t3,
if the backend is the slower side.
"""

from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import log
from time import perf_counter

import numpy as np

from backends import Array
from parallel_core.experiments.runner.counts import Count
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.tallies import (
    Repetition,
    Tally,
    most_unfinished_at_return,
    unfinished_at_return,
)
from parallel_core.experiments.runner.trial import Trial, Work
from parallel_core.experiments.workloads import (
    FEWEST_TIMINGS,
    incremented,
    increments,
    multiplied,
    ones,
    size_up_to,
)
from parallel_core.measurement.confidence_intervals import Interval, exponential
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.timing import Timing, measure
from parallel_core.measurement.verdicts import over_rounds, times_as_long
from parallel_core.system.machine import peak_memory_growth

EACH, ONCE, SINGLE = (
    "increments, waiting each time",
    "increments, waiting once",
    "increments in one launch",
)
BEHIND = "increments behind multiplications"
"""Not timed, but recorded by a profiler: so many increments take it half a second."""
RECORDED_INCREMENTS, MULTIPLICATIONS = 1000, 20
"""The multiplications take some milliseconds each, and together longer than launching so many
increments under a profiler.
"""
FEWEST_ISSUED = 10
"""From fewer increments a cost is not fitted."""
SIDE = 1024
"""Of the matrix whose increments fill a queue."""


@dataclass(frozen=True)
class CostModel:
    """Seconds of an operation: t1 to issue it and t2 to compute it, in each round, and t3 to hear
    that it is done.
    """

    issued: Case
    computed: Case
    t3: float

    @property
    def t1(self) -> float:
        return self.issued.median

    @property
    def t2(self) -> float:
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
        return self.t1 + (steps - 1) * max(self.t1, self.t2) + self.t2 + self.t3

    def waiting_once_by_the_book(self, steps: int) -> float:
        """Predict the same under the book's assumption that the backend is the slower side."""
        return self.t1 + steps * self.t2 + self.t3

    def log_error(
        self, measured: Case, steps: int, disturbance: float = 0.0, among: int = 1
    ) -> Interval:
        """Return the logarithm of measured over predicted seconds of one of `steps` operations that
        are waited for at the end, with the noise of all three.

        The prediction is the longer of t1 and t2, and so many seconds more.
        """

        def log_ratio(seconds: np.ndarray, t1: np.ndarray, t2: np.ndarray) -> np.ndarray:
            longer = np.maximum(t1, t2)
            predicted = longer + (t1 + t2 + self.t3 - longer) / steps + disturbance
            # A disturbance below zero may leave nothing.
            return np.log(seconds / np.maximum(predicted, 1e-12))

        times = (measured.seconds, self.issued.seconds, self.computed.seconds)
        error = over_rounds(log_ratio, *times, paired=False, among=among)
        low, high = log(measured.least_share), log(self.issued.least_share)
        return replace(error, low=error.low + low, high=error.high - high)

    def waiting_each(self, steps: int) -> float:
        """Predict the seconds of `steps` operations that are each waited for."""
        return steps * (self.t1 + self.t2 + self.t3)


def fit_cost_model(
    trial: Trial, x: Array, matrix: Array, budget: float, steps: int = 1000, rounds: int = 5
) -> CostModel:
    """Measure t1, t2 and t3 of an increment of `x` separately, without timing the totals that they
    are to predict.

    The device of both arrays is kept busy with multiplications of the matrix (some milliseconds
    each) while `steps` increments are issued, or as many as may be in flight: issuing them costs t1
    each, and what the device needs for them after its multiplications is t2 each. t3 is what
    remains of a single increment's round trip.
    """
    backend, increment = trial.backend, partial(incremented, trial, x)
    issued = measure(backend, partial(increment, steps))[0] / steps
    # The fastest of three: too few multiplications would end before all increments are issued.
    multiply = partial(multiplied, trial, matrix, 1)
    multiplying = min(measure(backend, multiply)[1] for _ in range(3))

    def behind_multiplications(count: int) -> tuple[float, float, float]:
        """Return the seconds to issue increments, from then until the multiplications end, and from
        then on.
        """
        backend.waitall()
        for _ in range(1 + round(4 * count * issued / multiplying)):
            (last,) = multiply()
        start = perf_counter()
        increment(count)
        sent = perf_counter()
        backend.wait(last)
        free = perf_counter()
        backend.waitall()
        return sent - start, free - sent, perf_counter() - free

    while backend.engine == "async" and steps > FEWEST_ISSUED:
        sent, held, _ = behind_multiplications(steps)
        if held >= sent:
            break
        # The multiplications ended too soon: where few may be in flight, issuing waits for them.
        steps //= 2

    def timing() -> Timing:
        sent, _, computing = behind_multiplications(steps)
        return sent / steps, computing / steps

    probe = Trial(backend, {}, rounds, budget)
    probe.time("t1 and t2", take=timing)
    probe.time(
        "round trip", Work(lambda: [backend.wait(increment(1)) for _ in range(20)]), repeats=20
    )
    parts, trip = probe.run(1.0).values()
    t3 = max(0.0, trip.median - parts.dispatch_median - parts.median)
    return CostModel(replace(parts, seconds=parts.dispatch_seconds), parts, t3)


def time_increments(trial: Trial, steps: int | None) -> None:
    """Fit the cost model, then time increments waited for each time and once, and made in one
    launch.
    """
    backend, add = trial.backend, trial.backend.ops.add
    x = ones(trial, trial.devices[0], 2)
    matrix = trial.normal(size_up_to(trial, 0.01, 1000).value, trial.devices[0])
    model = fit_cost_model(trial, x, matrix, 0.3 * trial.left(0.95))
    if steps is None:
        # Once by launches, and twice within some: in one, and in units.
        of_a_step = model.waiting_each(1) + max(model.t1, model.t2) + 2 * (model.t1 + model.t2)
        allowed = round(trial.left(0.95) / FEWEST_TIMINGS / of_a_step / 100) * 100
        steps = trial.parameters["steps"] = max(100, min(10_000, allowed))
    once = increments(trial, x, steps, trial.devices[0])

    def waiting_each_time() -> Array:
        for _ in range(steps):
            y = backend.wait(backend.launch(add, x, 1.0))
        return y

    trial.time(EACH, Work(waiting_each_time), bare=(once,))
    trial.time(ONCE, once)
    trial.time(SINGLE, in_one_launch(trial, x, once, steps))
    trial.check("increments", [incremented(trial, x, 1)], [np.full((1, 2), 2.0)])
    cases = trial.run(0.95)
    behind = partial(launch_behind_multiplications, trial, x, matrix)
    trial.takes[BEHIND] = partial(measure, backend, behind)
    # Beyond a single launch, the rest is the framework's own cost.
    trial.found_by(
        "launch_cost_seconds", lambda times: (times[ONCE] - times[SINGLE]) / steps, is_ratio=False
    )
    trial.found_by("increment_seconds", lambda times: times[ONCE] / steps)
    trial.found(T2_OVER_T1.name, model.t2_over_t1)
    of_one = replace(cases[ONCE], seconds=tuple(s / steps for s in cases[ONCE].seconds))
    trial.found(OVER_PREDICTED.name, exponential(model.log_error(of_one, steps)))
    seconds = {"t1": model.t1, "t2": model.t2, "t3": model.t3}
    seconds |= {"measured_once": cases[ONCE].median, "predicted_once": model.waiting_once(steps)}
    seconds |= {"book_predicted_once": model.waiting_once_by_the_book(steps)}
    seconds |= {"measured_each": cases[EACH].median, "predicted_each": model.waiting_each(steps)}
    for name, found in seconds.items():
        trial.found(f"{name}_seconds", found)


def launch_behind_multiplications(trial: Trial, x: Array, matrix: Array) -> None:
    """Launch increments when the device is busy with multiplications.

    On an idle device one that is done at once does not show whether it was queued.
    """
    multiplied(trial, matrix, MULTIPLICATIONS)
    incremented(trial, x, RECORDED_INCREMENTS)


def in_one_launch(trial: Trial, x: Array, once: Work, steps: int) -> Work:
    """Make the increments in one launch.

    Where functions are compiled, they are units: all but the last would be left out.
    """
    backend, add, calls = trial.backend, trial.backend.ops.add, count()

    def increment(start: Array, steps: int) -> Array:
        next(calls)
        for _ in range(steps):
            y = add(start, 1.0)
        return y

    backend.wait(backend.launch(increment, x, 1))
    before = next(calls)
    backend.wait(backend.launch(increment, x, 1))
    is_compiled = next(calls) == before + 1
    launch = once.unit if is_compiled and once.unit else lambda: backend.launch(increment, x, steps)
    return Work(launch, once.unit, once.times)


def measure_memory(trial: Trial) -> None:
    """Find the memory that 100 queued increments of a matrix take while results are kept or
    dropped, on a CPU.
    """
    if trial.devices[0].kind == "gpu":
        # They do not lie in the memory of the host.
        return
    zeros = trial.backend.asarray(np.zeros((SIDE, SIDE), dtype=np.float32), trial.devices[0])
    # Compiling takes memory too.
    trial.backend.wait(incremented(trial, zeros, 1))
    for what in ("kept", "dropped"):
        for every in (1, 10, 100):
            grown = peak_memory_growth(partial(fill_queue, trial, zeros, what == "kept", every))
            trial.found(f"peak_bytes_{what}_waiting_every_{every}", grown)


def fill_queue(trial: Trial, x: Array, keep: bool, every: int) -> None:
    """Launch 100 increments, keep the results or drop them, and wait at every `every`-th."""
    kept = []
    for step in range(1, 101):
        y = incremented(trial, x, 1)
        if keep:
            kept.append(y)
        if step % every == 0:
            trial.backend.wait(y)
    trial.backend.waitall()


def unfinished_increments(repetition: Repetition) -> Tally:
    """Count the increments that were not done when their calls had returned."""
    return unfinished_at_return(_of_increments(repetition))


def most_unfinished_increments(repetition: Repetition) -> Tally:
    """Count the increments that were launched and not done when a call returned, where they were
    most.
    """
    return most_unfinished_at_return(_of_increments(repetition))


def _of_increments(repetition: Repetition) -> Repetition:
    """Return a repetition without the launches of its multiplications."""
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

OVER_PREDICTED = Metric(
    "measured_over_predicted",
    means="the time of increments that are waited for once over what the cost model predicts",
    about="measured over predicted",
    bands=(
        Band(LOWEST, "less", "Increments took less time than issuing and computing one predict"),
        Band(1 / 1.5, "predicted", "The longer of issuing and computing predicts increments' time"),
        Band(
            1.5,
            "more",
            "Increments took longer than issuing and computing one predict, so neither sets the "
            "pace by itself",
        ),
    ),
    said=lambda result: model_is_wrong(result),
)


def model_is_wrong(result: Result) -> bool:
    """Return whether the cost model, which is of queues, predicts another time than measured."""
    if result.backend["engine"] == "sync":
        return False
    return result.bands.get(OVER_PREDICTED.name) in ("less", "more")
