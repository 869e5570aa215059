"""Asynchronous computation: Python issues work and returns; the backend's engine does it.

Book: Dive into Deep Learning, "Asynchronous Computation". Four questions, a file each: when control returns
(`products`), what waiting waits for (`barriers`) and costs (`increments`), what a deep queue costs (`queue_depth`).
"""

import backends
from backends import Backend
from parallel_core.experiments.asynchronous.answers import answer_questions, explain
from parallel_core.experiments.asynchronous.barriers import compare_barriers, time_blockers
from parallel_core.experiments.asynchronous.increments import fit_cost_model, time_increments
from parallel_core.experiments.asynchronous.products import compare_with_numpy
from parallel_core.experiments.asynchronous.queue_depth import measure_queue_memory
from parallel_core.result import Result, describe_backend

__all__ = ["explain", "run"]


def run(backend: Backend, size: int = 1000, steps: int = 10_000, rounds: int = 5) -> Result:
    """Measure dispatch against completion, barriers, blockers, the cost model and the memory of a deep queue.

    `size` is the matrices' side, `steps` the number of increments.
    """
    reference = backends.load("numpy", devices=1, threads_per_device=backend.threads_per_device)
    (in_numpy, in_backend), error = compare_with_numpy(backend, reference, size, rounds)
    one, everything = compare_barriers(backend, size, rounds)
    blockers = time_blockers(backend, size, rounds)
    model = fit_cost_model(backend)
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
    errors = {"max_relative_error": error, "max_increment_error": increment_error}
    return Result(
        experiment="async",
        backend=describe_backend(backend),
        parameters={"size": size, "steps": steps, "rounds": rounds},
        cases=(in_numpy, in_backend, one, everything, *blockers, each, once, single),
        metrics=metrics,
        checks=errors,
        explanation=explain(metrics["dispatch_fraction"], metrics["async_speedup"]),
        notes=answer_questions(metrics, steps, backend.scheduler),
        problems=tuple(
            f"{name} is {value:.1e}: results differ from NumPy's" for name, value in errors.items() if not value < 1e-4
        ),
    )
