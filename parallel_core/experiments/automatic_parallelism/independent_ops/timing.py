"""Independent products and a chain, timed in turn: here, and in a process with other workers and threads."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.measuring import Units, largest_error, run_elsewhere, time_in_turn
from parallel_core.experiments.products import PRODUCTS, products, products_as_unit
from parallel_core.measurement.result import Case

__all__ = ["chain", "joined", "named", "time_elsewhere", "time_here", "with_threads"]

Timed = tuple[dict[str, Case], float]
"""Cases by name, and the largest relative error of what they compute."""


def chain(backend: Backend, x: Array) -> Array:
    """Launch 50 products of which each needs the one before."""
    y = x
    for _ in range(PRODUCTS):
        y = backend.launch(backend.ops.matmul, y, x)
    return y


def _chain_as_one(matmul: Callable[..., Array], x: Array) -> Array:
    y = x
    for _ in range(PRODUCTS):
        y = matmul(y, x)
    return y


def time_here(backend: Backend, size: int, rounds: int, budget: float) -> Timed:
    """Time independent products and a chain on the first device.

    The bare time of independent products is that of one worker's share of them.
    """
    # The powers of an orthogonal matrix neither grow nor shrink.
    drawn = np.linalg.qr(np.random.default_rng(0).standard_normal((size, size)))[0].astype(np.float32)
    x = backend.asarray(drawn, backend.devices[0])
    workers = backend.workers_per_device
    independent, in_chain = named("independent", workers), named("chain", workers)
    multiply_in_chain = backend.ops.as_unit(partial(_chain_as_one, backend.ops.matmul))
    cases = time_in_turn(
        backend,
        {independent: partial(products, backend, x), in_chain: partial(chain, backend, x)},
        rounds,
        units=Units(
            {
                independent: products_as_unit(backend, x, -(-PRODUCTS // workers)),
                in_chain: partial(backend.launch, multiply_in_chain, x),
            },
            {independent: (independent,), in_chain: (in_chain,)},
        ),
        budget=budget,
    )
    made = [*products(backend, x), chain(backend, x)]
    expected = [drawn @ drawn] * PRODUCTS + [np.linalg.matrix_power(drawn, PRODUCTS + 1)]
    return cases, largest_error(map(backend.to_numpy, made), expected)


def time_elsewhere(backend: Backend, workers: int, threads: int, size: int, rounds: int, budget: float) -> Timed:
    """Time the same in a fresh process, on one device with these workers and threads for each of them."""
    options = {"workers": workers, "workers-compared": workers, "size": size, "rounds": rounds, "budget": budget}
    result = run_elsewhere("independent-ops", backend, threads, options)
    unlike = threads != backend.threads_per_device
    cases = [with_threads(case, threads) if unlike else case for case in result.cases]
    return {case.name: case for case in cases}, result.checks["max_relative_error"]


def joined(before: Case, after: Case) -> Case:
    """Put the times of two measurements of one case together."""
    return replace(
        before,
        seconds=before.seconds + after.seconds,
        dispatch_seconds=before.dispatch_seconds + after.dispatch_seconds,
        warmup_seconds=before.warmup_seconds + after.warmup_seconds,
        bare_seconds=before.bare_seconds + after.bare_seconds,
    )


def named(what: str, workers: int) -> str:
    """Name a case: `chain, 2 workers`."""
    return f"{what}, {workers} {'worker' if workers == 1 else 'workers'}"


def with_threads(case: Case, threads: int) -> Case:
    """Name a case by the threads of each worker too."""
    return replace(case, name=f"{case.name}, {threads} threads each")
