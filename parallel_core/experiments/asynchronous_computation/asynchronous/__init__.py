"""Asynchronous computation: when does control return, what does waiting wait for, and what does it cost?

Book: Dive into Deep Learning, "Asynchronous Computation".

Prediction: An asynchronous engine queues an operation and returns: Python gets control back after microseconds, and
waiting after each step costs more than waiting once. A synchronous one returns when the work is done.

Method: Four parts, a file each. `ten_products` times ten products in the backend and in NumPy, until control returns
and until all is done. `waiting` waits for one result, for everything, and by converting a result. `increments` adds 1
ten thousand times, waiting each time or once, and compares both times with a cost model whose parts are measured
apart. `queue_depth` measures the memory that a deep queue takes. Where the budget of seconds is too short for that,
matrices are smaller and increments fewer.

Look at: `dispatch_fraction`, the share of the products' time after which control returned; `async_speedup`, waiting
each time over waiting once; `wait_fraction`, waiting for one result over waiting for all.

Read: `dispatch_fraction` is near 0 for an engine that queues and near 1 for one that does not. Tiny operations show
what a call costs, and not how fast a framework computes. The cost model's predictions may be off by a fifth if Python
and the device slow each other down; the notes say by how much.
"""

from typing import Annotated

import backends
from backends import Backend
from parallel_core.experiments.asynchronous_computation.asynchronous import verdicts
from parallel_core.experiments.asynchronous_computation.asynchronous.queue_depth import measure_queue_memory
from parallel_core.experiments.asynchronous_computation.increments import (
    CostModel,
    fit_cost_model,
    matrix_to_wait_behind,
    row_of_ones,
    time_increments,
)
from parallel_core.experiments.asynchronous_computation.ten_products import compare_with_numpy
from parallel_core.experiments.asynchronous_computation.waiting import compare_barriers, time_blockers
from parallel_core.experiments.measuring import FEWEST_TIMINGS, result_of
from parallel_core.experiments.products import largest_size
from parallel_core.experiments.runner.declaration import BUDGET, OF_PRODUCTS, Budget, Experiment, Parameter, Rounds
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Result
from parallel_core.measurement.timing import countdown
from parallel_core.measurement.verdicts import dispatch_fraction, over_rounds, times_as_long

__all__ = ["EXPERIMENT", "enough_steps", "run"]

SIZE = 1000
FEWEST_STEPS, STEPS = 100, 10_000
PRODUCTS_OF_A_ROUND = 75
"""About how many products all parts time in a round, with their share of those that are checked."""


def run(
    backend: Backend,
    size: Annotated[int | None, Parameter("Side of the matrices. Default: 1000, or what the budget allows.")] = None,
    steps: Annotated[int | None, Parameter("Number of increments. Default: 10000, or what the budget allows.")] = None,
    rounds: Rounds = 5,
    budget: Budget = BUDGET,
) -> Result:
    """Measure dispatch against completion, barriers, blockers, the cost model and the memory of a deep queue."""
    left = countdown(budget)
    tell("the memory of a deep queue", 0.0)
    memory = measure_queue_memory(backend)
    if size is None:
        size = largest_size(backend, left(0.55) / PRODUCTS_OF_A_ROUND / FEWEST_TIMINGS, SIZE)
    reference = backends.load("numpy", devices=1, threads_per_device=backend.threads_per_device)
    (in_numpy, in_backend), error = compare_with_numpy(backend, reference, size, rounds, 0.55 * left(0.75))
    one, everything = compare_barriers(backend, size, rounds, 0.85 * left(0.75))
    blockers = time_blockers(backend, size, rounds, left(0.75))
    matrix = matrix_to_wait_behind(backend)
    tell("the cost model", 0.0)
    model = fit_cost_model(backend, row_of_ones(backend), matrix, budget=0.3 * left(0.95))
    if steps is None:
        steps = enough_steps(model, left(0.95) / FEWEST_TIMINGS)
    (each, once, single), increment_error = time_increments(backend, steps, rounds, left(0.95))
    intervals = {
        "dispatch_fraction": dispatch_fraction(in_backend),
        "speed_against_numpy": times_as_long(in_numpy, in_backend),
        "wait_fraction": times_as_long(one, everything),
        "async_speedup": times_as_long(each, once),
        "launch_cost_seconds": over_rounds(lambda a, b: (a - b) / steps, once.seconds, single.seconds),
    }
    metrics = {
        **{name: interval.estimate for name, interval in intervals.items()},
        "t1_seconds": model.t1,
        "t2_seconds": model.t2,
        "t3_seconds": model.t3,
        "measured_once_seconds": once.median,
        "predicted_once_seconds": model.waiting_once(steps),
        "book_predicted_once_seconds": model.waiting_once_by_the_book(steps),
        "measured_each_seconds": each.median,
        "predicted_each_seconds": model.waiting_each(steps),
        **memory,
    }
    return result_of(
        "async",
        backend,
        parameters={"size": size, "steps": steps, "rounds": rounds, "budget": budget},
        cases=(in_numpy, in_backend, one, everything, *blockers, each, once, single),
        metrics=metrics,
        intervals=intervals,
        explanation=verdicts.verdict(intervals["dispatch_fraction"], intervals["async_speedup"]),
        answer=verdicts.answer(backend, intervals, model, size),
        notes=verdicts.about_the_rest(metrics, intervals, steps, backend.scheduler),
        error=error,
        compared="products",
        checks={"max_increment_error": increment_error},
        problems=() if increment_error < 1e-4 else (f"increments differ from NumPy's by {increment_error:.1e}",),
    )


def enough_steps(model: CostModel, seconds: float) -> int:
    """Return 10 000, or as many steps as all ways of making them take no longer with than about these seconds."""
    # Once by launches, and twice within some: in one, and in units.
    of_a_step = model.waiting_each(1) + max(model.t1, model.t2) + 2 * (model.t1 + model.t2)
    return max(FEWEST_STEPS, min(STEPS, round(seconds / of_a_step / 100) * 100))


EXPERIMENT = Experiment(
    name="async",
    position=1,
    run=run,
    case="increments, waiting once",
    metric="dispatch_fraction",
    metric_means="the share of the products' time after which control returned: near 0 they were queued",
    metric_limits=(0.0, 1.0),
    settings=OF_PRODUCTS,
    queued_case="10 products",
    calibrated=("size", "steps"),
    options={"full": {"rounds": 3}, "quick": {"rounds": 3, "size": 500, "steps": 2000}},
)
