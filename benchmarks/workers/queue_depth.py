"""Time how long Python takes to issue an operation while the queue behind a busy device grows."""

from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import backends
from backends import Array, Backend
from backends.host import on_cores
from benchmarks.workers.answer import compose
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.timing import measure as timed_on
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

    The cases `DEPTH queued` are of one operation that is issued when so many are queued. At each
    depth it is repeated until about `operations` were issued, but `FEWEST` times at least.
    """
    loaded = backends.load(backend, 2, "cpu", "async", 1)
    device = loaded.devices[0]
    one = loaded.asarray(np.ones((1, 2), dtype=np.float32), device)
    matrix = Trial(loaded, {}).normal(SIDE, device)
    multiply = partial(loaded.launch, loaded.ops.matmul, matrix, matrix)
    seconds, problems = {}, []
    # The issuing thread has the other device's core to itself, as if cores were left over.
    with without_garbage_collection(), on_cores(set(loaded.cores[1])):
        product = median(timed_on(loaded, multiply)[1] for _ in range(5))
        each, _ = issue(loaded, one, multiply, 1000, 4)
        for depth in depths:
            products = 1 + round(MARGIN * depth * each / product)
            repetitions, failures = min(100, max(FEWEST, operations // depth)), 0
            taken: list[float] = []
            while len(taken) < repetitions and failures < PATIENCE:
                following, busy = issue(loaded, one, multiply, depth, products)
                if busy:
                    taken.append(following)
                else:
                    failures, products = failures + 1, 2 * products
            if failures == PATIENCE:
                problems.append(
                    f"the device could not be kept busy while {depth} operations were issued"
                )
                break
            seconds[f"{depth} queued"] = taken
    return compose(seconds, {backend: loaded.version}, problems)


def issue(
    backend: Backend, x: Array, multiply: Callable[[], Array], depth: int, products: int
) -> tuple[float, bool]:
    """Queue `depth` increments behind products, and a few more.

    Return the median seconds that those few took, and whether the device was busy with its products
    until all were issued.
    """
    backend.waitall()
    add, launch = backend.ops.add, backend.launch
    for _ in range(products):
        blocker = multiply()
    for _ in range(depth):
        y = launch(add, x, 1)
    times = [perf_counter()]
    for _ in range(NEXT):
        y = launch(add, x, 1)
        times.append(perf_counter())
    backend.wait(blocker)
    # A wait for what is done takes no time; a product takes milliseconds.
    busy = perf_counter() - times[-1] > 1e-4
    backend.waitall()
    del y
    return float(np.median(np.diff(times))), busy
