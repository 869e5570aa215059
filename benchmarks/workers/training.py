"""Time epochs of our own training."""

from time import perf_counter
from typing import Any

import backends
from benchmarks.workers.answer import answer, compose
from benchmarks.workers.data import few_tests
from parallel_core.measurement.result import Case
from parallel_core.training.batches import Settings, batches
from parallel_core.training.loop import train
from parallel_core.training.step import get_params


def measure(backend: str, devices: int, batch_size: int, images: int, epochs: int) -> dict[str, Any]:
    """Train on devices of one thread each and time all epochs but the first; the case is named `epoch`.

    The input pipeline alone, without training, is the case `batches`. The figure `loss` is the first epoch's last one.
    """
    loaded = backends.load(backend, devices, "cpu", "async", 1)
    data = few_tests()
    settings = Settings(epochs=epochs + 1, batch_size=batch_size, limit=images // batch_size)
    params = [get_params(loaded, device, settings.seed) for device in loaded.devices]
    first, *timed = train(loaded, params, data, settings)
    alone = []
    for epoch in range(1, epochs + 2):
        start = perf_counter()
        for _ in batches(data, settings, epoch):
            pass
        alone.append(perf_counter() - start)
    cases = [Case("epoch", tuple(epoch.seconds for epoch in timed), ()), Case("batches", tuple(alone[1:]), ())]
    return compose(cases, {backend: loaded.version}, metrics={"loss": first.losses[-1]})


if __name__ == "__main__":
    answer(measure)
