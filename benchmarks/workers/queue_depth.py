"""Time how long Python takes to issue an operation while the queue behind a busy device grows."""

from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import backends
from backends import Array, Backend
from backends.host import on_cores
from benchmarks.workers.answer import answer, compose
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import without_garbage_collection

SIDE = 1000
MARGIN = 1.5
"""The device is kept busy for so many times as long as issuing is expected to take."""
NEXT = 50
"""So many operations are timed, one by one, when the queue is as deep as is asked."""
PATIENCE = 5
FEWEST = 3
"""So often each depth is repeated at least: the fastest time counts."""


def measure(backend: str, depths: list[int], operations: int) -> dict[str, Any]:
    """Issue increments behind products that keep the device busy, and time them.

    The cases `DEPTH queued` are of one operation that is issued when so many are queued; the cases `DEPTH on average`
    are of those that were queued, the first included, which wakes more than it costs. At each depth it is repeated
    until about `operations` were issued, but `FEWEST` times at least.
    """
    loaded = backends.load(backend, 2, "cpu", "async", 1)
    device = loaded.devices[0]
    one = loaded.asarray(np.ones((1, 2), dtype=np.float32), device)
    matrix = Trial(loaded, {}).normal(SIDE, device)
    cases, problems = [], []
    # The issuing thread has the other device's core to itself, as if cores were left over.
    with without_garbage_collection(), on_cores(set(loaded.cores[1])):
        product = median(time_product(loaded, matrix) for _ in range(5))
        each, _, _ = issue(loaded, one, matrix, 1000, 4)
        for depth in depths:
            products = 1 + round(MARGIN * depth * each / product)
            repetitions, failures = min(100, max(FEWEST, operations // depth)), 0
            taken: list[tuple[float, float]] = []
            while len(taken) < repetitions and failures < PATIENCE:
                average, following, busy = issue(loaded, one, matrix, depth, products)
                if busy:
                    taken.append((average, following))
                else:
                    failures, products = failures + 1, 2 * products
            if failures == PATIENCE:
                problems.append(f"the device could not be kept busy while {depth} operations were issued")
                break
            cases.append(Case(f"{depth} queued", tuple(following for _, following in taken), ()))
            cases.append(Case(f"{depth} on average", tuple(average for average, _ in taken), ()))
    return compose(cases, {backend: loaded.version}, problems)


def time_product(backend: Backend, matrix: Array) -> float:
    """Return the seconds of one product."""
    start = perf_counter()
    backend.wait(backend.launch(backend.ops.matmul, matrix, matrix))
    return perf_counter() - start


def issue(backend: Backend, x: Array, matrix: Array, depth: int, products: int) -> tuple[float, float, bool]:
    """Queue `depth` increments behind products, and a few more.

    Return the seconds that each of the `depth` took on average, the median of the next ones, and whether the device
    was busy with its products until all were issued.
    """
    backend.waitall()
    add, launch = backend.ops.add, backend.launch
    for _ in range(products):
        blocker = launch(backend.ops.matmul, matrix, matrix)
    times = [perf_counter()]
    for _ in range(depth):
        y = launch(add, x, 1)
    times.append(perf_counter())
    for _ in range(NEXT):
        y = launch(add, x, 1)
        times.append(perf_counter())
    backend.wait(blocker)
    # A wait for what is done takes no time; a product takes milliseconds.
    busy = perf_counter() - times[-1] > 1e-4
    backend.waitall()
    del y
    return (times[1] - times[0]) / depth, float(np.median(np.diff(times[1:]))), busy


if __name__ == "__main__":
    answer(measure)
