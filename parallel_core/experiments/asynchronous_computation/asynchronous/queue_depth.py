"""Does a deep queue cost memory? Python may run far ahead of the device; the question is who holds the results."""

import numpy as np

from backends import Array, Backend
from parallel_core.system.machine import peak_memory_growth

__all__ = ["WAIT_EVERY", "measure_queue_memory"]

STEPS = 100
WAIT_EVERY = (1, 10, 100)
SIDE = 1024


def measure_queue_memory(backend: Backend) -> dict[str, float]:
    """Measure the peak growth of resident memory, in bytes, over 100 increments of a 4 MiB array.

    Results are dropped or kept, and waited for every 1, 10 or 100 steps. Empty if the system does not report it.
    """
    x = backend.asarray(np.zeros((SIDE, SIDE), dtype=np.float32), backend.devices[0])
    growth = {
        f"peak_bytes_{'kept' if keep else 'dropped'}_waiting_every_{every}": peak_memory_growth(
            lambda keep=keep, every=every: _fill_queue(backend, x, keep, every)  # type: ignore[misc]
        )
        for keep in (False, True)
        for every in WAIT_EVERY
    }
    return {name: float(grown) for name, grown in growth.items() if grown is not None}


def _fill_queue(backend: Backend, x: Array, keep: bool, every: int) -> None:
    """Launch 100 increments, keeping the results or dropping them, and wait at every `every`-th step."""
    kept = []
    for step in range(1, STEPS + 1):
        y = backend.launch(backend.ops.add, x, 1.0)
        if keep:
            kept.append(y)
        if step % every == 0:
            backend.wait(y)
    backend.waitall()
