"""Multiply and copy on two devices of JAX, through our verbs and in plain JAX, in turn, in one
process.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import backends
from benchmarks.workers.abstraction import timed
from benchmarks.workers.answer import compose
from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.timing import Timing, interleave
from parallel_core.measurement.timing import measure as timed_on

THREADS = Path("/proc/self/task")


class Side(NamedTuple):
    """How one side multiplies a matrix with itself, copies it to the other device, and is timed."""

    multiply: Callable[[Any], Any]
    copy: Callable[[Any], Any]
    time: Callable[[Callable[[], Any]], Timing]


def measure(size: int, products: int, copies: int, repetitions: int) -> dict[str, Any]:
    """Time both sides of each work; the cases are named `WORK, SIDE`, and the figures are shares of
    a copy's time.
    """
    backend = backends.load("jax", 2, "cpu", "async", 1)
    import jax

    matrix = np.random.default_rng(0).standard_normal((size, size), dtype=np.float32)
    x, x_on_second = (backend.asarray(matrix, device) for device in backend.devices)
    # Ours are arrays of JAX on clients that are kept to a core each; JAX's own two CPU devices
    # share one pool.
    second = jax.sharding.SingleDeviceSharding(next(iter(x_on_second.devices())))
    square = jax.jit(lambda a: a @ a)
    ours = Side(
        lambda a: backend.launch(backend.ops.matmul, a, a),
        lambda a: backend.copy_to(a, backend.devices[1]),
        partial(timed_on, backend),
    )
    plain = Side(
        square,
        lambda a: jax.device_put(a, second, may_alias=False),
        lambda work: timed(work, jax.block_until_ready),
    )
    results = [square(x) for _ in range(products)]
    timings: dict[str, Callable[[], Timing]] = {}
    problems = []
    for name, side in {"ours": ours, "plain": plain}.items():
        works = {
            "one device": partial(multiply_all, side, [x] * products),
            "two devices": partial(multiply_all, side, [x] * products + [x_on_second] * products),
            "copies": partial(copy_all, side, results, copies),
            "copies beside": partial(copy_beside, side, x, results, copies),
        }
        for work, launch in works.items():
            timings[f"{work}, {name}"] = partial(side.time, launch)
        error = relative_error(np.asarray(side.copy(side.multiply(x))), matrix @ matrix)
        if error > 1e-4:
            problems.append(f"{name}: products differ from NumPy's by {error:.1e}")
    seconds = {case.name: case.seconds for case in interleave(timings, rounds=repetitions)}
    before = processor_time()
    timings["copies, plain"]()
    after = processor_time()
    spent = {thread: after[thread] - before.get(thread, 0) for thread in after}
    return compose(seconds, {"jax": jax.__version__}, problems, shares(spent, backend.cores))


def multiply_all(side: Side, matrices: Sequence[Any]) -> list[Any]:
    """Multiply each matrix with itself."""
    return [side.multiply(a) for a in matrices]


def copy_all(side: Side, results: Sequence[Any], copies: int) -> list[Any]:
    """Copy each result so often."""
    return [side.copy(a) for a in results for _ in range(copies)]


def copy_beside(side: Side, x: Any, results: Sequence[Any], copies: int) -> list[Any]:
    """Multiply before the copies of each result."""
    launched = []
    for a in results:
        launched += [side.multiply(x), *copy_all(side, [a], copies)]
    return launched


def processor_time() -> Mapping[int, int]:
    """Return the nanoseconds that each thread of this process has computed."""
    nanoseconds = {}
    for task in THREADS.iterdir():
        running, *_ = (task / "schedstat").read_text().split()
        nanoseconds[int(task.name)] = int(running)
    return nanoseconds


def shares(spent: Mapping[int, int], cores: Sequence[set[int]]) -> dict[str, float]:
    """Return the shares of the thread that calls, and of the threads that are kept to each device's
    cores.
    """
    source, destination = cores
    parts = {"caller_share": 0, "source_share": 0, "destination_share": 0}
    for thread, nanoseconds in spent.items():
        allowed = os.sched_getaffinity(thread)
        # What else this process does is done for the one who calls.
        part = "caller_share"
        if thread != threading.get_native_id():
            if allowed == set(source):
                part = "source_share"
            elif allowed == set(destination):
                part = "destination_share"
        parts[part] += nanoseconds
    total = sum(parts.values())
    return {part: nanoseconds / total for part, nanoseconds in parts.items()}
