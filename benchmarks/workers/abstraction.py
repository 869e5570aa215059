"""Time each experiment's work through our verbs and written directly in the framework, in turn, in one process."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import backends
from benchmarks.workers.answer import compose
from benchmarks.workers.sides import BARE, WORKS, Amounts, Side, bare_queue, ours, plain_mxnet, plain_torch
from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.timing import interleave
from parallel_core.training.batches import Settings

SIZE = 480


def measure(backend: str, engine: str, increments: int, batches: int, repetitions: int, epochs: int) -> dict[str, Any]:
    """Time all sides of all works; the cases are named `WORK, SIDE`."""
    loaded = backends.load(backend, 2, "cpu", engine, 1)
    matrix = np.random.default_rng(0).standard_normal((SIZE, SIZE), dtype=np.float32)
    amounts = Amounts(increments, Settings(limit=batches), matrix)
    sides = {"ours": ours(loaded, amounts), "plain": (plain_mxnet if backend == "mxnet" else plain_torch)(amounts)}
    in_queues = backend == "torch" and engine == "async"
    if in_queues:
        sides["executors"] = plain_torch(amounts, [set(cores) for cores in loaded.cores])
    in_turn = {work: {f"{work}, {name}": side.works[work] for name, side in sides.items()} for work in WORKS}
    if in_queues:
        # In turn with the others, for their ratios are taken between neighbours.
        in_turn["increments"][BARE] = bare_queue(increments)
    seconds = {
        case.name: case.seconds
        for work, timings in in_turn.items()
        for case in interleave(timings, rounds=epochs if work == "a LeNet epoch" else repetitions)
    }
    return compose(seconds, {backend: loaded.version}, problems(sides, matrix))


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
