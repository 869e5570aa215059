"""Time each experiment's work through our verbs and written directly in the framework, in turn, in one process."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import backends
from benchmarks.workers.answer import answer, compose
from benchmarks.workers.data import few_tests
from benchmarks.workers.sides import BARE, Amounts, Side, executors, ours, plain_mxnet, plain_torch
from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.timing import interleave

SIZE = 480


def measure(backend: str, engine: str, increments: int, batches: int, repetitions: int, epochs: int) -> dict[str, Any]:
    """Time all sides of all works; the cases are named `WORK, SIDE`."""
    loaded = backends.load(backend, 2, "cpu", engine, 1)
    matrix = np.random.default_rng(0).standard_normal((SIZE, SIZE), dtype=np.float32)
    amounts = Amounts(increments, batches, matrix, few_tests())
    sides = {"ours": ours(loaded, amounts)}
    if backend == "mxnet":
        sides["plain"] = plain_mxnet(amounts)
    else:
        sides["plain"] = plain_torch(amounts)
        if engine == "async":
            sides["executors"] = executors(amounts, [set(cores) for cores in loaded.cores])
    cases = [
        case
        for work in sides["ours"].works
        for case in interleave(
            {
                **{f"{work}, {name}": side.works[work] for name, side in sides.items()},
                # In turn with the others, for their ratios are taken between neighbours.
                **({BARE: sides["executors"].works[BARE]} if work == "increments" and "executors" in sides else {}),
            },
            rounds=epochs if work == "a LeNet epoch" else repetitions,
        )
    ]
    return compose(cases, {backend: loaded.version}, problems(sides, matrix))


def problems(sides: Mapping[str, Side], matrix: np.ndarray) -> list[str]:
    """Return a sentence for each side that differs from NumPy, or from the losses of our first epoch."""
    sentences = []
    for name, side in sides.items():
        error = relative_error(side.copied(), matrix @ matrix)
        if not error < 1e-4:
            sentences.append(f"{name}: products differ from NumPy's by {error:.1e}")
        # Later epochs drift apart, for frameworks and orders of addition round differently.
        error = relative_error(np.array(side.losses[0]), np.array(sides["ours"].losses[0]))
        if not error < 1e-4:
            sentences.append(f"{name}: losses differ from ours by {error:.1e}")
    return sentences


if __name__ == "__main__":
    answer(measure)
