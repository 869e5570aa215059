"""Independent operations: does a framework run operations without dependencies in parallel on one device?

Book: Dive into Deep Learning, "Automatic Parallelism", exercise 1 (the operations of the book's `run` do not depend on
each other).

Prediction: A device's queue is served in order by one worker where nobody says otherwise, so independent operations run
one after the other, as a chain does: the framework uses what it knows of dependencies between devices only. Two workers
start an operation that does not depend on the one that runs: independent products then take half the time, and a chain
takes as long as before. Two threads within each product are another way to use the same two cores.

Method: 50 independent products on one device, and 50 in a chain, by one worker and by two, each with a core and threads
of its own; then by one worker with twice the threads. A framework reads the numbers of workers and threads when it
starts, so those that the loaded backend does not have are measured in fresh processes, on one device, afterwards.

Look at: `independence_speedup`, the chain's time over the independent products', by the fewest workers;
`parallel_speedup`, the independent products' time by the fewest workers over that by the most; `chain_speedup`, the
same for the chain; `threads_speedup`, the same for twice the threads instead of more workers.

Read: 1 is one after the other, and the number of workers is the most that can be reached. Where nothing is queued
(synchronous engines, NumPy), and on GPUs, there is one worker to measure: `parallel_speedup` and `chain_speedup` are 1
then because nothing is compared. Processes run one after another and not in turn, so that a machine that drifts shows
as a difference: one that is smaller than the spread is none.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from backends import Array, Backend
from backends.device import available_cores
from parallel_core.experiments.calibration import size_for
from parallel_core.experiments.independent_ops.answers import (
    about_chain,
    about_cores,
    about_threads,
    about_workers,
    explain,
)
from parallel_core.fresh_process import measure_elsewhere
from parallel_core.measurement import interleave, measure, relative_error
from parallel_core.result import Case, Result, describe_backend

__all__ = ["explain", "run"]

PRODUCTS = 50
TARGET_SECONDS = 0.2

Timed = tuple[dict[str, Case], float]
"""Cases by name, and the largest relative error of what they compute."""


def independent(backend: Backend, x: Array) -> list[Array]:
    """Launch 50 products that do not depend on each other, as the book's `run` does."""
    return [backend.launch(backend.ops.matmul, x, x) for _ in range(PRODUCTS)]


def chain(backend: Backend, x: Array) -> Array:
    """Launch 50 products of which each needs the one before."""
    y = x
    for _ in range(PRODUCTS):
        y = backend.launch(backend.ops.matmul, y, x)
    return y


def run(backend: Backend, workers_compared: Sequence[int] = (1, 2), size: int | None = None, rounds: int = 5) -> Result:
    """Time independent products and a chain on one device, here and in processes with other workers and threads.

    `workers_compared` are numbers of workers beside the backend's own; with that one alone, no process is started.
    `size` is the matrices' side; None chooses one with which a device takes about 0.2 s.
    """
    own, threads, device = backend.workers_per_device, backend.threads_per_device, backend.devices[0]
    size = size or size_for(backend, TARGET_SECONDS, PRODUCTS, device)
    wanted = sorted({own, *workers_compared})
    counts = wanted if backend.engine == "async" and device.kind == "cpu" else [own]
    others = [(workers, threads) for workers in counts if workers != own]
    if len(wanted) > 1 and device.kind == "cpu":
        others.append((counts[0], 2 * threads))

    cases, error = time_here(backend, size, rounds)
    for workers, each in others:
        more, other_error = time_elsewhere(backend, workers, each, size, rounds)
        cases, error = cases | more, max(error, other_error)

    by_few, chain_by_few = cases[named("independent", counts[0])], cases[named("chain", counts[0])]
    by_many, chain_by_many = cases[named("independent", counts[-1])], cases[named("chain", counts[-1])]
    metrics = {
        "independence_speedup": chain_by_few.median / by_few.median,
        "parallel_speedup": by_few.median / by_many.median,
        "chain_speedup": chain_by_few.median / chain_by_many.median,
    }
    notes = [about_workers(backend.engine, device.kind, by_few, by_many, (counts[0], counts[-1]))]
    if len(counts) > 1:
        notes.append(about_chain(chain_by_few, chain_by_many))
    if threaded := cases.get(with_threads(by_few, 2 * threads).name):
        metrics["threads_speedup"] = by_few.median / threaded.median
        notes.append(about_threads(by_few, threaded))
    notes.append(about_cores(max(workers * each for workers, each in [(own, threads), *others]), available_cores()))
    return Result(
        experiment="independent-ops",
        backend=describe_backend(backend),
        parameters={"size": size, "products": PRODUCTS, "workers": ",".join(map(str, counts)), "rounds": rounds},
        cases=tuple(cases.values()),
        metrics=metrics,
        checks={"max_relative_error": error},
        explanation=explain(by_few, chain_by_few, counts[0]),
        notes=tuple(filter(None, notes)),
        problems=() if error < 1e-4 else (f"products differ from NumPy's by {error:.1e} of the largest element",),
    )


def time_here(backend: Backend, size: int, rounds: int) -> Timed:
    """Time independent products and a chain on the first device."""
    # The powers of an orthogonal matrix neither grow nor shrink.
    drawn = np.linalg.qr(np.random.default_rng(0).standard_normal((size, size)))[0].astype(np.float32)
    x = backend.asarray(drawn, backend.devices[0])
    workers = backend.workers_per_device
    cases = interleave(
        {
            named("independent", workers): partial(measure, backend, partial(independent, backend, x)),
            named("chain", workers): partial(measure, backend, partial(chain, backend, x)),
        },
        rounds,
    )
    errors = [relative_error(backend.to_numpy(product), drawn @ drawn) for product in independent(backend, x)]
    power = np.linalg.matrix_power(drawn, PRODUCTS + 1)
    errors.append(relative_error(backend.to_numpy(chain(backend, x)), power))
    return {case.name: case for case in cases}, max(errors)


def time_elsewhere(backend: Backend, workers: int, threads: int, size: int, rounds: int) -> Timed:
    """Time the same in a fresh process, on one device with these workers and threads for each of them."""
    result = measure_elsewhere(
        "independent-ops",
        {
            "backend": backend.name,
            "engine": backend.engine,
            "devices": 1,
            "device-kind": "cpu",
            "threads": threads,
            "workers": workers,
            "workers-compared": workers,
            "size": size,
            "rounds": rounds,
        },
    )
    unlike = threads != backend.threads_per_device
    cases = [with_threads(case, threads) if unlike else case for case in result.cases]
    return {case.name: case for case in cases}, result.checks["max_relative_error"]


def named(what: str, workers: int) -> str:
    """Name a case: `chain, 2 workers`."""
    return f"{what}, {workers} {'worker' if workers == 1 else 'workers'}"


def with_threads(case: Case, threads: int) -> Case:
    """Name a case by the threads of each worker too."""
    return replace(case, name=f"{case.name}, {threads} threads each")
