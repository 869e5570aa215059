"""What a launch in our queue of worker threads is made of, each part by itself, as often as there are increments.

All else is calls of functions, the loop, and what the thread finds no longer in its caches.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from queue import SimpleQueue
from time import perf_counter
from typing import Any

import numpy as np

from backends import Backend
from backends.torch.streams.future import Future
from parallel_core.measurement.timing import Timing

__all__ = ["LAUNCH_PARTS", "launch_parts"]

FIND, MAKE, PUT, COUNT = LAUNCH_PARTS = (
    "finding the queue",
    "making the future and its lock",
    "numbering and putting",
    "counting the reader",
)


def launch_parts(backend: Backend, repetitions: int) -> dict[str, Callable[[], Timing]]:
    """Return what times each part of a launch on the first device, by name; `backend` is asynchronous PyTorch."""
    device = backend.devices[0]
    x: Any = backend.asarray(np.ones((1, 2), dtype=np.float32), device)
    queues: Any = vars(backend)["_compute"]
    numbers, queue, launched = count(), SimpleQueue[Future](), Future(device)

    def find() -> None:
        for _ in range(repetitions):
            queues[x.device]

    def make() -> None:
        for _ in range(repetitions):
            Future(device)

    def put() -> None:
        for _ in range(repetitions):
            next(numbers)
            queue.put(launched)

    def count_reader() -> None:
        for number in range(repetitions):
            x.add_reader(number, launched.end, queue)

    parts = {FIND: find, MAKE: make, PUT: put, COUNT: count_reader}
    return {name: partial(seconds_of, part) for name, part in parts.items()}


def seconds_of(part: Callable[[], None]) -> Timing:
    """Time a part, which waits for nothing."""
    start = perf_counter()
    part()
    taken = perf_counter() - start
    return taken, taken
