"""Multiply and copy on two devices of JAX, through our verbs and in plain JAX, in turn, in one
process.
"""

import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import backends
from benchmarks.workers.abstraction import timed
from benchmarks.workers.answer import compose
from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.timing import Timing, interleave
from parallel_core.measurement.timing import measure as timed_on

THREADS = Path("/proc/self/task")


def measure(size: int, products: int, copies: int, repetitions: int) -> dict[str, Any]:
    """Time both sides of each work; the cases are named `WORK, SIDE`, and the figures are shares of
    a copy's time.
    """
    backend = backends.load("jax", 2, "cpu", "async", 1)
    import jax

    matrix = np.random.default_rng(0).standard_normal((size, size), dtype=np.float32)
    x, other = (backend.asarray(matrix, device) for device in backend.devices)
    # Ours are arrays of JAX on clients that are kept to a core each; JAX's own two CPU devices
    # share one pool.
    place = jax.sharding.SingleDeviceSharding(next(iter(other.devices())))
    square = jax.jit(lambda a: a @ a)
    multiply = {"ours": lambda a: backend.launch(backend.ops.matmul, a, a), "plain": square}
    copy = {
        "ours": lambda a: backend.copy_to(a, backend.devices[1]),
        "plain": lambda a: jax.device_put(a, place, may_alias=False),
    }

    times = {
        "ours": partial(timed_on, backend),
        "plain": lambda launch: timed(launch, jax.block_until_ready),
    }
    results = [square(x) for _ in range(products)]
    takes: dict[str, Callable[[], Timing]] = {}
    for side in times:
        for work, launch in {
            "one device": lambda side=side: [multiply[side](x) for _ in range(products)],
            "two devices": lambda side=side: [
                multiply[side](a) for a in (x, other) for _ in range(products)
            ],
            "copies": lambda side=side: [copy[side](a) for a in results for _ in range(copies)],
            "copies beside": lambda side=side: [
                made
                for a in results
                for made in (multiply[side](x), *(copy[side](a) for _ in range(copies)))
            ],
        }.items():
            takes[f"{work}, {side}"] = partial(times[side], launch)
    seconds = {case.name: case.seconds for case in interleave(takes, rounds=repetitions)}
    before = processor_time()
    takes["copies, plain"]()
    spent = {thread: after - before.get(thread, 0) for thread, after in processor_time().items()}
    errors = {
        side: relative_error(np.asarray(copy[side](multiply[side](x))), matrix @ matrix)
        for side in times
    }
    wrong = [
        f"{side}: products differ from NumPy's by {error:.1e}"
        for side, error in errors.items()
        if error > 1e-4
    ]
    return compose(seconds, {"jax": jax.__version__}, wrong, shares(spent, backend.cores))


def processor_time() -> Mapping[int, int]:
    """Return the nanoseconds that each thread of this process has computed."""
    return {
        int(task.name): int((task / "schedstat").read_text().split()[0])
        for task in THREADS.iterdir()
    }


def shares(spent: Mapping[int, int], cores: Any) -> dict[str, float]:
    """Return the shares of the thread that calls, and of the threads that are kept to each device's
    cores.
    """
    source, destination = (frozenset(own) for own in cores)
    kept_to = {source: "source", destination: "destination"}
    parts = dict.fromkeys(("caller", "source", "destination"), 0)
    for thread, nanoseconds in spent.items():
        calls = thread == threading.get_native_id()
        # What else this process does is done for the one who calls.
        parts[
            "caller" if calls else kept_to.get(frozenset(os.sched_getaffinity(thread)), "caller")
        ] += nanoseconds
    return {f"{name}_share": part / sum(parts.values()) for name, part in parts.items()}
