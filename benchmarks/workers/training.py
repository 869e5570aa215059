"""Time epochs of our own training, one a turn."""

from dataclasses import replace
from time import perf_counter
from typing import Any

import backends
from backends import Array
from benchmarks.harness.side_by_side import turns
from benchmarks.workers.answer import compose
from parallel_core import run_data_parallel
from parallel_core.system.machine import peak_memory_growth
from parallel_core.training.batches import Exchange, Settings, batches
from parallel_core.training.dataset import load_fashion_mnist
from parallel_core.training.lenet import initial_parameters
from parallel_core.training.loop import train_epoch
from parallel_core.training.step import get_params


def measure(
    backend: str,
    devices: int,
    batch_size: int,
    images: int,
    exchange: Exchange = "after",
    width: int = 1,
) -> dict[str, Any]:
    """Train on devices of one thread each, and time an epoch a turn after a first one; the case is
    named `epoch`.

    The input pipeline alone, without training, is the case `batches`. With an exchange `during`, a
    step is checked against NumPy, and `buckets` and `buckets_reduced_early` are figures. The figure
    `loss` is the first epoch's last one, `peak_bytes` by how much resident memory rose in it, and
    `parameter_bytes` is of one copy. A batch is that of all devices together, so that what images
    take does not grow with the devices.
    """
    loaded = backends.load(backend, devices, "cpu", "async", 1)
    data = load_fashion_mnist()
    limit = images // batch_size
    settings = Settings(
        batch_size=batch_size, limit=limit, exchange=exchange, width=width, epochs=1
    )
    params: list[Array] = []
    losses: list[float] = []

    def first_epoch() -> None:
        params.extend(get_params(loaded, device, settings.seed, width) for device in loaded.devices)
        losses.extend(train_epoch(loaded, params, data, settings, 1).losses)

    growth = peak_memory_growth(first_epoch)
    assert growth is not None, "the system does not say how much memory a process takes"
    parameter_bytes = sum(array.nbytes for array in initial_parameters(settings.seed, width))
    figures = {
        "loss": losses[-1],
        "peak_bytes": float(growth),
        "parameter_bytes": float(parameter_bytes),
    }
    problems: tuple[str, ...] = ()
    if exchange == "during":
        result = run_data_parallel(loaded, data=data, settings=replace(settings, limit=1))
        for figure in ("buckets", "buckets_reduced_early"):
            figures[figure] = result.metrics[figure]
        problems = tuple(map(str, result.problems))
    seconds: dict[str, list[float]] = {"epoch": [], "batches": []}
    for turn in turns():
        seconds["epoch"].append(train_epoch(loaded, params, data, settings, 1 + turn).seconds)
        start = perf_counter()
        for _ in batches(data, settings, 1 + turn):
            pass
        seconds["batches"].append(perf_counter() - start)
    return compose(seconds, {backend: loaded.version}, problems, figures)
