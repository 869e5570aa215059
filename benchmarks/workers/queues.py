"""What queueing a tiny operation costs: the least queue that there can be, queues that are held, and parts of a launch.

The least queue knows no errors, no readers and no end of the program. A worker that is held begins when all is
launched, so that neither thread waits for the other one. The parts of a launch in our queue of worker threads are each
timed by themselves, as often as there are increments; all else is calls of functions, the loop, and what the thread
finds no longer in its caches.
"""

import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from operator import add
from queue import SimpleQueue
from time import perf_counter
from typing import Any

import numpy as np

from backends import Backend
from backends.torch.streams.future import Future
from benchmarks.workers.sides import launch_increments, timed
from parallel_core.measurement.timing import Timing

BARE = "increments in a bare queue"
HELD, HELD_BARE = "increments, ours, held", "increments in a bare queue, held"
FIND, MAKE, PUT, COUNT = LAUNCH_PARTS = (
    "finding the queue",
    "making the future and its lock",
    "numbering and putting",
    "counting the reader",
)


class Awaited:
    """What a bare queue will compute: `value`, from when `done` is released."""

    __slots__ = ("args", "done", "fn", "value")

    def __init__(self, fn: Any, args: tuple[Any, ...]) -> None:
        self.done = threading.Lock()
        self.done.acquire()
        self.fn, self.args = fn, args


def queues(backend: Backend, increments: int) -> dict[str, Callable[[], Timing]]:
    """Return what times increments in a bare queue, and in both queues while they are held, by the cases' names."""
    import torch

    device = backend.devices[0]
    own: Any = backend.asarray(np.ones((1, 2), dtype=np.float32), device)
    one = torch.ones((1, 2))
    queue: SimpleQueue[Awaited] = SimpleQueue()

    def serve() -> None:
        while True:
            task = queue.get()
            task.value = task.fn(*[arg.value if arg.__class__ is Awaited else arg for arg in task.args])
            task.fn = task.args = None
            task.done.release()

    threading.Thread(target=serve, daemon=True).start()

    def launch(fn: Any, *args: Any) -> Awaited:
        task = Awaited(fn, args)
        queue.put(task)
        return task

    def launch_bare() -> Awaited:
        first = launch(torch.clone, one)
        for _ in range(increments):
            y = launch(add, first, 1)
        return y

    def wait_bare(last: Awaited) -> None:
        with last.done:
            pass

    def held(
        hold: Callable[[threading.Event], object], work: Callable[[], Any], wait: Callable[[Any], object]
    ) -> Timing:
        may_begin = threading.Event()
        hold(may_begin)

        def begin_and_wait(kept: Any) -> None:
            may_begin.set()
            wait(kept)

        return timed(work, begin_and_wait)

    def hold_ours(may_begin: threading.Event) -> None:
        backend.launch(lambda x: (may_begin.wait(), x)[1], own)

    launch_ours = partial(launch_increments, backend, own, increments)
    return {
        BARE: partial(timed, launch_bare, wait_bare),
        HELD_BARE: partial(held, lambda may_begin: launch(may_begin.wait), launch_bare, wait_bare),
        HELD: partial(held, hold_ours, launch_ours, backend.wait),
    }


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

    def seconds_of(part: Callable[[], None]) -> Timing:
        start = perf_counter()
        part()
        taken = perf_counter() - start
        return taken, taken

    parts = {FIND: find, MAKE: make, PUT: put, COUNT: count_reader}
    return {name: partial(seconds_of, part) for name, part in parts.items()}
