"""Time epochs of our training in processes of one device and one core each that run at once and never meet.

What they reach together bounds what devices of one process can: their cores disturb each other in the same way, and
nothing is exchanged, awaited or launched for another device.
"""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from threading import Barrier
from typing import Any

import backends
from backends.host import core_numbers
from benchmarks.workers.answer import answer, compose
from benchmarks.workers.data import few_tests
from parallel_core.measurement.result import Case
from parallel_core.training.batches import Settings
from parallel_core.training.loop import train
from parallel_core.training.step import get_params

DEADLINE = 120.0
"""Seconds that a process waits for the others."""


def measure(backend: str, processes: int, batch_size: int, images: int, epochs: int) -> dict[str, Any]:
    """Train in each process and time all epochs but the first, which begin together; the slowest gives the time.

    Each process trains with all images. The figure `loss` is the first epoch's last one.
    """
    settings = Settings(epochs=epochs + 1, batch_size=batch_size, limit=images // batch_size)
    with multiprocessing.Manager() as manager, ProcessPoolExecutor(processes, _spawn()) as pool:
        barrier = manager.Barrier(processes)
        trainings = [
            pool.submit(_train, backend, core, settings, barrier)
            for core, _ in zip(core_numbers(), range(processes), strict=False)
        ]
        taken = [training.result() for training in trainings]
    (version,) = {version for _, _, version in taken}
    slowest = tuple(max(seconds) for seconds in zip(*(seconds for seconds, _, _ in taken), strict=True))
    return compose([Case("epoch", slowest, ())], {backend: version}, metrics={"loss": taken[0][1]})


def _spawn() -> multiprocessing.context.SpawnContext:
    return multiprocessing.get_context("spawn")


def _train(backend: str, core: int, settings: Settings, barrier: Barrier) -> tuple[list[float], float, str]:
    """Train on one core; return the seconds of all epochs but the first, the first one's last loss, and the version."""
    os.sched_setaffinity(0, {core})
    loaded = backends.load(backend, 1, "cpu", "async", 1)
    params = [get_params(loaded, device, settings.seed) for device in loaded.devices]
    epochs = train(loaded, params, few_tests(), settings)
    first = next(epochs)
    seconds = []
    for _ in range(settings.epochs - 1):
        barrier.wait(DEADLINE)
        seconds.append(next(epochs).seconds)
    return seconds, first.losses[-1], loaded.version


if __name__ == "__main__":
    answer(measure)
