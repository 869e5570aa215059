"""Time training with gradients exchanged after the backward pass and during it, in turn, in one process."""

from typing import Any

import backends
from benchmarks.workers.answer import answer, compose
from benchmarks.workers.data import few_tests
from parallel_core.experiments import run_data_parallel
from parallel_core.result import Case
from parallel_core.training import Settings

EXCHANGES = ("after", "during")


def measure(backend: str, width: int, batch_size: int, steps: int, turns: int) -> dict[str, Any]:
    """Train on two devices of one thread each, by turns in both ways; a turn is two epochs, of which one is timed.

    The cases `after` and `during` are seconds a step; the figures are those of `during`.
    """
    loaded = backends.load(backend, 2, "cpu", "async", 1)
    data = few_tests()
    seconds: dict[str, list[float]] = {exchange: [] for exchange in EXCHANGES}
    problems: list[str] = []
    for _ in range(turns):
        for exchange in EXCHANGES:
            settings = Settings(epochs=2, batch_size=batch_size, limit=steps, exchange=exchange, width=width)
            result = run_data_parallel(loaded, data, settings)
            seconds[exchange].append(result.cases[0].seconds[-1] / steps)
            problems += result.problems
    figures = {name: result.metrics[name] for name in ("buckets", "buckets_reduced_early")}
    cases = [Case(exchange, tuple(taken), tuple(taken)) for exchange, taken in seconds.items()]
    return compose(cases, {backend: loaded.version}, problems, figures)


if __name__ == "__main__":
    answer(measure)
