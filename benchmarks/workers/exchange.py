"""Time training with gradients exchanged after the backward pass and during it, epoch by epoch in turn."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import backends
from backends import Backend
from benchmarks.workers.answer import answer, compose
from benchmarks.workers.data import few_tests
from benchmarks.workers.sides import next_epoch
from parallel_core import run_data_parallel
from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import interleave
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import Dataset
from parallel_core.training.loop import train
from parallel_core.training.step import get_params

ALWAYS = 1000


def measure(backend: str, cells: list[tuple[int, int, int]], epochs: int) -> dict[str, Any]:
    """Train on two devices of one thread each, for each (width, batch, steps) of an epoch.

    The cases `width W, batch B, after` and `…, during` are seconds a step; the figures `width W, batch B, buckets` and
    `…, buckets_reduced_early` are of `during`.
    """
    loaded = backends.load(backend, 2, "cpu", "async", 1)
    data = few_tests()
    cases: list[Case] = []
    figures: dict[str, float] = {}
    problems: list[str] = []
    for width, batch_size, steps in cells:
        name = f"width {width}, batch {batch_size}"
        settings = Settings(epochs=ALWAYS, batch_size=batch_size, limit=steps, exchange="during", width=width)
        # A single step, which is also checked against NumPy.
        result = run_data_parallel(loaded, data=data, settings=replace(settings, epochs=1, limit=1))
        problems += result.problems
        figures |= {f"{name}, {figure}": result.metrics[figure] for figure in ("buckets", "buckets_reduced_early")}
        taken, differences = time_both(loaded, data, settings, name, epochs)
        cases += taken
        problems += differences
    return compose(cases, {backend: loaded.version}, problems, figures)


def time_both(
    backend: Backend, data: Dataset, settings: Settings, name: str, epochs: int
) -> tuple[list[Case], list[str]]:
    """Time a step of both exchanges, by epochs in turn; also return a sentence if their losses differ."""
    losses: dict[str, list[tuple[float, ...]]] = {"after": [], "during": []}
    takes = {}
    for exchange, own in losses.items():
        params = [get_params(backend, device, settings.seed, settings.width) for device in backend.devices]
        training = train(backend, params, data, replace(settings, exchange=exchange))
        takes[f"{name}, {exchange}"] = partial(next_epoch, training, own)
    taken = interleave(takes, rounds=epochs)
    assert settings.limit is not None
    cases = [
        replace(case, seconds=tuple(seconds / settings.limit for seconds in case.seconds), dispatch_seconds=())
        for case in taken
    ]
    error = relative_error(*(np.array(own[0]) for own in losses.values()))
    return cases, [] if error < 1e-4 else [f"{name}: losses differ by {error:.1e} with the exchange"]


if __name__ == "__main__":
    answer(measure)
