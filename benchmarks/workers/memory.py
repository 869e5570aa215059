"""Measure how much memory training takes on some devices."""

from typing import Any

import numpy as np

import backends
from benchmarks.workers.answer import answer, compose
from benchmarks.workers.data import few_tests
from parallel_core.system.machine import peak_memory_growth
from parallel_core.training.batches import Settings
from parallel_core.training.lenet import initial_parameters
from parallel_core.training.loop import train
from parallel_core.training.step import get_params


def measure(backend: str, devices: int, width: int, batch_size: int, steps: int) -> dict[str, Any]:
    """Train for some steps and give `peak_bytes`, by how much resident memory rose, and `parameter_bytes`, of one copy.

    The batch is that of all devices together, so that what the images take does not grow with the devices.
    """
    loaded = backends.load(backend, devices, "cpu", "async", 1)
    data = few_tests()
    settings = Settings(epochs=1, batch_size=batch_size, limit=steps, width=width)

    def training() -> None:
        params = [get_params(loaded, device, settings.seed, width) for device in loaded.devices]
        for _ in train(loaded, params, data, settings):
            pass
        loaded.waitall()

    grown = peak_memory_growth(training)
    problems = [] if grown is not None else ["the system does not say how much memory a process takes"]
    size = sum(array.nbytes for array in initial_parameters(settings.seed, width))
    figures = {"peak_bytes": float(grown or np.nan), "parameter_bytes": float(size)}
    return compose([], {backend: loaded.version}, problems, figures)


if __name__ == "__main__":
    answer(measure)
