"""Time epochs of our training in processes of one device and one core each that run at once and never meet.

What they reach together bounds what devices of one process can: their cores disturb each other in the same way, and
nothing is exchanged, awaited or launched for another device.
"""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from threading import Barrier
from time import process_time
from typing import Any, NamedTuple

import backends
from backends.host import core_numbers
from benchmarks.workers.answer import answer, compose
from benchmarks.workers.data import few_tests
from parallel_core.measurement.result import Case
from parallel_core.training.batches import Settings
from parallel_core.training.loop import train_epoch
from parallel_core.training.step import get_params

DEADLINE = 120.0
"""Seconds that a process waits for the others."""


def measure(backend: str, processes: int, batch_size: int, images: int, epochs: int) -> dict[str, Any]:
    """Train in each process and time all epochs but the first, which begin together; the slowest gives the time.

    Each process trains with all images. What all took of the processor is the case `processor`. The figure `loss` is
    the first epoch's last one.
    """
    settings = Settings(epochs=epochs + 1, batch_size=batch_size, limit=images // batch_size)
    with multiprocessing.Manager() as manager, ProcessPoolExecutor(processes, _spawn()) as pool:
        barrier = manager.Barrier(processes)
        trainings = [
            pool.submit(_train, backend, core, settings, barrier)
            for core, _ in zip(core_numbers(), range(processes), strict=False)
        ]
        taken = [training.result() for training in trainings]
    (version,) = {one.version for one in taken}
    slowest = tuple(max(seconds) for seconds in zip(*(one.seconds for one in taken), strict=True))
    of_processor = tuple(sum(seconds) for seconds in zip(*(one.of_processor for one in taken), strict=True))
    cases = [Case("epoch", slowest, ()), Case("processor", of_processor, ())]
    return compose(cases, {backend: version}, metrics={"loss": taken[0].loss})


class _Training(NamedTuple):
    """What a process gave: the seconds of all epochs but the first, and those of its core, and the first one's loss."""

    seconds: list[float]
    of_processor: list[float]
    loss: float
    version: str


def _spawn() -> multiprocessing.context.SpawnContext:
    return multiprocessing.get_context("spawn")


def _train(backend: str, core: int, settings: Settings, barrier: Barrier) -> _Training:
    os.sched_setaffinity(0, {core})
    loaded = backends.load(backend, 1, "cpu", "async", 1)
    params = [get_params(loaded, device, settings.seed) for device in loaded.devices]
    data = few_tests()
    loss = train_epoch(loaded, params, data, settings, 1).losses[-1]
    seconds, of_processor = [], []
    for epoch in range(2, settings.epochs + 1):
        barrier.wait(DEADLINE)
        before = process_time()
        seconds.append(train_epoch(loaded, params, data, settings, epoch).seconds)
        of_processor.append(process_time() - before)
    return _Training(seconds, of_processor, loss, loaded.version)


if __name__ == "__main__":
    answer(measure)
