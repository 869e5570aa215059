"""When plain MXNet makes a copy that is queued behind multiplications, and what of the book's
copies it hides.

MXNet reads the pieces of scratch memory that its CPU devices share once, at import: each setting
has its own process.
"""

import os
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import numpy

from benchmarks.workers.answer import compose, set_environment

QUEUED = 40
"""Multiplications before the copy of an array that is ready."""
PRODUCTS = 20
"""Multiplications of the book's cell."""


def measure(
    scratch: int, sizes: Sequence[int], copies: Sequence[int], repetitions: int
) -> dict[str, Any]:
    """Time both programs with square matrices of each size; `copies` is how often each result of
    the cell is copied.

    The figures are, by size, the share of the queued multiplications' time after which the copy was
    done, and the overlap efficiency of the book's cell.
    """
    set_environment(threads=1)
    os.environ["MXNET_CPU_TEMP_COPY"] = str(scratch)
    import mxnet as mx

    mx.npx.set_np()
    seconds: dict[str, list[float]] = {}
    figures: dict[str, float] = {}
    for size, copies_of_result in zip(sizes, copies, strict=True):
        values = numpy.random.default_rng(0).standard_normal((size, size), dtype=numpy.float32)
        x = mx.np.array(values, ctx=mx.cpu(1))
        # The first one touches its memory for the first time.
        share_before_copy(mx, x)
        shares = [share_before_copy(mx, x) for _ in range(repetitions)]
        figures[f"{size}: copy done after"] = median(shares)
        times = time_book_cell(mx, x, copies_of_result, repetitions)
        run, copy, together = map(median, times.values())
        figures[f"{size}: book's cell"] = (run + copy - together) / min(run, copy)
        for part, of_part in times.items():
            seconds[f"{size}: {part}"] = of_part
    return compose(seconds, {"mxnet": mx.__version__}, metrics=figures)


def share_before_copy(mx: Any, x: Any) -> float:
    """Return the share of the multiplications' time after which a copy that is queued behind them
    is done.
    """
    ready = x.copyto(mx.cpu(1))
    mx.npx.waitall()
    begin = perf_counter()
    results = [mx.np.dot(x, x) for _ in range(QUEUED)]
    # The wait stands in the queue of cpu(0), which has nothing else to do.
    ready.copyto(mx.cpu(2)).wait_to_read()
    copied = perf_counter()
    mx.npx.waitall()
    end = perf_counter()
    del results
    return (copied - begin) / (end - begin)


def time_book_cell(mx: Any, x: Any, copies: int, repetitions: int) -> dict[str, list[float]]:
    """Time the book's multiplications, its copies of the results to the host, and both together, in
    turn.
    """

    def run() -> list[Any]:
        return [mx.np.dot(x, x) for _ in range(PRODUCTS)]

    def copy_to_cpu(results: Sequence[Any]) -> list[Any]:
        return [result.copyto(mx.cpu()) for result in results for _ in range(copies)]

    results = run()
    mx.npx.waitall()
    parts: dict[str, Callable[[], object]] = {
        "run": run,
        "copy": lambda: copy_to_cpu(results),
        "together": lambda: copy_to_cpu(run()),
    }
    seconds: dict[str, list[float]] = {part: [] for part in parts}
    for repetition in range(repetitions + 1):
        for part, launch in parts.items():
            begin = perf_counter()
            launched = launch()
            mx.npx.waitall()
            end = perf_counter()
            del launched
            # The first repetition warms up.
            if repetition:
                seconds[part].append(end - begin)
    return seconds
