"""The small programs of the graded steps, each run in a separate process: `python -m parallel_core.labs.programs`."""

import json
import sys
import threading
import time
from typing import Any

import numpy as np

import backends
from backends import Backend

PATIENCE = 10.0
"""Seconds after which a small program says what it still waits for."""


def slowly(x: np.ndarray) -> np.ndarray:
    """Add 1, a tenth of a second later."""
    time.sleep(0.1)
    return x + 1


def increments(backend: Backend, random: np.random.Generator) -> tuple[Any, Any]:
    """Add 1 ten thousand times."""
    x = random.integers(0, 100, 3).astype(np.float32)
    y = backend.asarray(x, backend.devices[0])
    for _ in range(10_000):
        y = backend.launch(backend.ops.add, y, 1)
    return backend.to_numpy(y), x + 10_000


def race(backend: Backend, random: np.random.Generator) -> tuple[Any, Any]:
    """Use on one device what another one is still computing."""
    first, second = backend.devices
    x = random.integers(0, 100, 3).astype(np.float32)
    slow = backend.launch(slowly, backend.asarray(x, first))
    y = backend.launch(backend.ops.multiply, backend.copy_to(slow, second), 2)
    return backend.to_numpy(y), 2 * (x + 1)


def overwrite(backend: Backend, random: np.random.Generator) -> tuple[Any, Any]:
    """Copy to a buffer that an earlier task has yet to read."""
    first, second = backend.devices
    old, new = random.integers(0, 100, (2, 3)).astype(np.float32)
    buffer = backend.asarray(old, second)
    slow = backend.launch(slowly, buffer)
    buffer = backend.copy_to(backend.asarray(new, first), second, out=buffer)
    return (backend.to_numpy(slow), backend.to_numpy(buffer)), (old + 1, new)


def promptly(backend: Backend, random: np.random.Generator) -> tuple[Any, Any]:
    """Compute before anybody waits, and wait for no more than was asked for."""
    x, may_end = random.integers(0, 100, 3).astype(np.float32), threading.Event()
    first = backend.launch(slowly, backend.asarray(x, backend.devices[0]))
    until = time.monotonic() + PATIENCE
    while not first.task.done.is_set():
        if time.monotonic() > until:
            return "nothing computed before somebody waits", "a task that is done"
        time.sleep(0.01)
    second = backend.launch(slowly, first)
    # It ends when nobody waits for the second one any more.
    held = backend.launch(lambda y: y + may_end.wait(PATIENCE), second)
    if held.task.done.is_set():
        return "a launch that waits until its task is done", "a launch that returns at once"
    backend.wait(second)
    if held.task.done.is_set():
        return "a wait for one task that waits for a later one", "a wait that ends with its task"
    may_end.set()
    return [backend.to_numpy(y) for y in (first, second, held)], [x + 1, x + 2, x + 3]


def timeline(backend: Backend, random: np.random.Generator) -> tuple[Any, Any]:
    """Multiply on every device, and copy from the first to the last."""
    matrices = [backend.asarray(random.standard_normal((400, 400)), device) for device in backend.devices]
    for _ in range(3):
        matrices = [backend.launch(backend.ops.matmul, x, x) for x in matrices]
        backend.copy_to(matrices[0], backend.devices[-1])
    backend.waitall()
    return list(getattr(backend, "spans", ())), None


if __name__ == "__main__":
    _, engine, devices, name, seed = sys.argv
    backend = backends.load(engine, int(devices), "cpu", threads_per_device=1)
    print(json.dumps(globals()[name](backend, np.random.default_rng(int(seed))), default=lambda x: x.tolist()))
