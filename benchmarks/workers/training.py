"""Time epochs of our own training, one a turn."""

from time import perf_counter
from typing import Any

import backends
from benchmarks.harness.side_by_side import turns
from benchmarks.workers.answer import compose
from parallel_core.training.batches import Settings, batches
from parallel_core.training.dataset import load_fashion_mnist
from parallel_core.training.loop import train_epoch
from parallel_core.training.step import get_params


def measure(backend: str, devices: int, batch_size: int, images: int) -> dict[str, Any]:
    """Train on devices of one thread each, and time an epoch a turn after a first one; the case is
    named `epoch`.

    The input pipeline alone, without training, is the case `batches`. The figure `loss` is the
    first epoch's last one. A batch is that of all devices together.
    """
    loaded = backends.load(backend, devices, "cpu", "async", 1)
    data = load_fashion_mnist()
    settings = Settings(batch_size=batch_size, limit=images // batch_size, epochs=1)
    params = [get_params(loaded, device, settings.seed) for device in loaded.devices]
    losses = train_epoch(loaded, params, data, settings, 1).losses
    seconds: dict[str, list[float]] = {"epoch": [], "batches": []}
    for turn in turns():
        seconds["epoch"].append(train_epoch(loaded, params, data, settings, 1 + turn).seconds)
        start = perf_counter()
        for _ in batches(data, settings, 1 + turn):
            pass
        seconds["batches"].append(perf_counter() - start)
    return compose(seconds, {backend: loaded.version}, metrics={"loss": losses[-1]})
