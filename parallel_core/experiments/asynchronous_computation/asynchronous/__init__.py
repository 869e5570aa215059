"""Asynchronous computation: when does control return, what does waiting wait for, and what does it cost?

Book: Dive into Deep Learning, "Asynchronous Computation".

Prediction: An asynchronous engine queues an operation and returns: Python gets control back after microseconds, and
waiting after each step costs more than waiting once. A synchronous one returns when the work is done.

Method: Four parts, a file each. `ten_products` times ten products in the backend and in NumPy, until control returns
and until all is done. `waiting` waits for one result, for everything, and by converting a result. `increments` adds 1
ten thousand times, waiting each time or once, and compares both times with a cost model whose parts are measured
apart. `queue_depth` measures the memory that a deep queue takes.

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
from parallel_core.experiments.asynchronous_computation.increments import fit_cost_model, row_of_ones, time_increments
from parallel_core.experiments.asynchronous_computation.ten_products import compare_with_numpy
from parallel_core.experiments.asynchronous_computation.waiting import compare_barriers, time_blockers
from parallel_core.experiments.experiment import Experiment, Parameter, Rounds
from parallel_core.experiments.measuring import result_of
from parallel_core.measurement.result import Result

__all__ = ["EXPERIMENT", "run"]


def run(
    backend: Backend,
    size: Annotated[int, Parameter("Side of the matrices.")] = 1000,
    steps: Annotated[int, Parameter("Number of increments.")] = 10_000,
    rounds: Rounds = 5,
) -> Result:
    """Measure dispatch against completion, barriers, blockers, the cost model and the memory of a deep queue."""
    reference = backends.load("numpy", devices=1, threads_per_device=backend.threads_per_device)
    (in_numpy, in_backend), error = compare_with_numpy(backend, reference, size, rounds)
    one, everything = compare_barriers(backend, size, rounds)
    blockers = time_blockers(backend, size, rounds)
    model = fit_cost_model(backend, row_of_ones(backend))
    (each, once, single), increment_error = time_increments(backend, steps, rounds)
    metrics = {
        "dispatch_fraction": in_backend.dispatch_median / in_backend.median,
        "speed_against_numpy": in_numpy.median / in_backend.median,
        "wait_fraction": one.median / everything.median,
        "async_speedup": each.median / once.median,
        "t1_seconds": model.t1,
        "t2_seconds": model.t2,
        "t3_seconds": model.t3,
        "measured_once_seconds": once.median,
        "predicted_once_seconds": model.waiting_once(steps),
        "book_predicted_once_seconds": model.waiting_once_by_the_book(steps),
        "measured_each_seconds": each.median,
        "predicted_each_seconds": model.waiting_each(steps),
        "launch_cost_seconds": (once.median - single.median) / steps,
        **measure_queue_memory(backend),
    }
    return result_of(
        "async",
        backend,
        parameters={"size": size, "steps": steps, "rounds": rounds},
        cases=(in_numpy, in_backend, one, everything, *blockers, each, once, single),
        metrics=metrics,
        explanation=verdicts.verdict(metrics["dispatch_fraction"], metrics["async_speedup"]),
        notes=verdicts.answer_questions(metrics, steps, backend.scheduler),
        error=error,
        compared="products",
        checks={"max_increment_error": increment_error},
        problems=() if increment_error < 1e-4 else (f"increments differ from NumPy's by {increment_error:.1e}",),
    )


EXPERIMENT = Experiment(
    name="async",
    position=1,
    run=run,
    case="increments, waiting once",
    metric="dispatch_fraction",
    queued_case="10 products",
    options={"full": {"rounds": 3}, "quick": {"rounds": 3, "size": 500, "steps": 2000}},
)
