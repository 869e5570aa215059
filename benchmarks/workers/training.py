"""Time epochs of our own training, one a turn."""

from time import perf_counter, process_time
from typing import Any

import backends
from benchmarks.harness.turns import turns
from benchmarks.workers.answer import answer, compose
from benchmarks.workers.data import few_tests
from parallel_core.measurement.result import Case
from parallel_core.training.batches import Settings, batches
from parallel_core.training.loop import train_epoch
from parallel_core.training.step import get_params


def measure(backend: str, devices: int, batch_size: int, images: int, exchange: bool = True) -> dict[str, Any]:
    """Train on devices of one thread each, and time an epoch a turn after a first one; the case is named `epoch`.

    What all threads took of the processor meanwhile is the case `processor`, and the input pipeline alone, without
    training, is `batches`. Without `exchange` each device trains by itself on its rows of each batch. The figure `loss`
    is the first epoch's last one.
    """
    loaded = backends.load(backend, devices, "cpu", "async", 1)
    if not exchange:
        vars(loaded)["allreduce"] = tuple
    data = few_tests()
    settings = Settings(batch_size=batch_size, limit=images // batch_size)
    params = [get_params(loaded, device, settings.seed) for device in loaded.devices]
    loss = train_epoch(loaded, params, data, settings, 1).losses[-1]
    seconds, of_processor, alone = [], [], []
    for turn in turns():
        before = process_time()
        seconds.append(train_epoch(loaded, params, data, settings, 1 + turn).seconds)
        of_processor.append(process_time() - before)
        start = perf_counter()
        for _ in batches(data, settings, 1 + turn):
            pass
        alone.append(perf_counter() - start)
    cases = [
        Case("epoch", tuple(seconds), ()),
        Case("processor", tuple(of_processor), ()),
        Case("batches", tuple(alone), ()),
    ]
    return compose(cases, {backend: loaded.version}, metrics={"loss": loss})


if __name__ == "__main__":
    answer(measure)
