"""Time each experiment's work through our verbs and written directly in the framework, in turn, in one process."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

import backends
from benchmarks.workers.answer import answer, compose
from benchmarks.workers.data import few_tests
from benchmarks.workers.launch_parts import launch_parts
from benchmarks.workers.sides import (
    BARE,
    HELD,
    HELD_BARE,
    WORKS,
    Amounts,
    Side,
    executors,
    held_increments,
    ours,
    plain_mxnet,
    plain_torch,
)
from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import interleave

SIZE = 480


def measure(backend: str, engine: str, increments: int, batches: int, repetitions: int, epochs: int) -> dict[str, Any]:
    """Time all sides of all works; the cases are named `WORK, SIDE`.

    Of increments whose worker was held, there is a case for launching them and one for working them off.
    """
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
    in_turn = {work: {f"{work}, {name}": side.works[work] for name, side in sides.items()} for work in WORKS}
    if "executors" in sides:
        queues = {name: sides["executors"].works[name] for name in (BARE, HELD_BARE)}
        # In turn with the others, for their ratios are taken between neighbours.
        in_turn["increments"] |= {**queues, HELD: partial(held_increments, loaded, amounts)}
        in_turn["increments"] |= launch_parts(loaded, increments)
    cases = [
        case
        for work, timings in in_turn.items()
        for case in interleave(timings, rounds=epochs if work == "a LeNet epoch" else repetitions)
    ]
    cases = [part for case in cases for part in (parts(case) if case.name in (HELD, HELD_BARE) else [case])]
    return compose(cases, {backend: loaded.version}, problems(sides, matrix))


def parts(case: Case) -> list[Case]:
    """Return what launching took and what working off took, as cases."""
    worked_off = tuple(end - sent for sent, end in zip(case.dispatch_seconds, case.seconds, strict=True))
    return [Case(f"{case.name}: launching", case.dispatch_seconds, ()), Case(f"{case.name}: working", worked_off, ())]


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
