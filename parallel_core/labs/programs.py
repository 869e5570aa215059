"""The programs of the graded steps, which run in the engine's process, and the values that NumPy
gives for them, in the grader's process.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from backends import Backend
from backends.conformance.serving import Answer, Loaded
from parallel_core.experiments import EXPERIMENTS

PATIENCE = 10.0
"""The seconds after which a small program waits no longer."""


def slowly(x: np.ndarray) -> np.ndarray:
    """Add 1, a tenth of a second later."""
    time.sleep(0.1)
    return x + 1


def increments(backend: Backend, x: np.ndarray) -> Any:
    """Add 1 ten thousand times."""
    y = backend.asarray(x, backend.devices[0])
    for _ in range(10_000):
        y = backend.launch(backend.ops.add, y, 1)
    return backend.to_numpy(y)


def race(backend: Backend, x: np.ndarray) -> Any:
    """Use on one device what another one is still computing."""
    first, second = backend.devices
    slow = backend.launch(slowly, backend.asarray(x, first))
    y = backend.launch(backend.ops.multiply, backend.copy_to(slow, second), 2)
    return backend.to_numpy(y)


def overwrite(backend: Backend, old: np.ndarray, new: np.ndarray) -> Any:
    """Copy to a buffer that an earlier task has yet to read."""
    first, second = backend.devices
    buffer = backend.asarray(old, second)
    slow = backend.launch(slowly, buffer)
    buffer = backend.copy_to(backend.asarray(new, first), second, out=buffer)
    return backend.to_numpy(slow), backend.to_numpy(buffer)


def promptly(backend: Backend, x: np.ndarray) -> Any:
    """Compute before anybody waits, and wait for no more than was asked for."""
    may_end = threading.Event()
    first = backend.launch(slowly, backend.asarray(x, backend.devices[0]))
    until = time.monotonic() + PATIENCE
    while not first.task.done.is_set():
        if time.monotonic() > until:
            return "nothing computed before somebody waits"
        time.sleep(0.01)
    second = backend.launch(slowly, first)
    # It ends when nobody waits for the second one any more.
    held = backend.launch(lambda y: y + may_end.wait(PATIENCE), second)
    if held.task.done.is_set():
        return "a launch that waits until its task is done"
    backend.wait(second)
    if held.task.done.is_set():
        return "a wait for one task that waits for a later one"
    may_end.set()
    return tuple(backend.to_numpy(y) for y in (first, second, held))


class SmallProgram(NamedTuple):
    """A small program, and the values that it must give."""

    run: Callable[..., Any]
    """A function of a backend and some vectors."""
    expected: Callable[..., Any]
    """A function of the same vectors that returns the right values."""
    vectors: int = 1
    """The number of vectors."""

    @property
    def what(self) -> str:
        """The engine's task, in a sentence."""
        return self.run.__doc__ or ""


INCREMENTS = SmallProgram(increments, lambda x: x + 10_000)
RACE = SmallProgram(race, lambda x: 2 * (x + 1))
OVERWRITE = SmallProgram(overwrite, lambda old, new: (old + 1, new), vectors=2)
PROMPTLY = SmallProgram(promptly, lambda x: (x + 1, x + 2, x + 3))
INSTEAD: Mapping[str, str] = {
    "nothing computed before somebody waits": "a task that is done",
    "a launch that waits until its task is done": "a launch that returns at once",
    "a wait for one task that waits for a later one": "a wait that ends with its task",
}
"""The expected behaviour, by the text that `promptly` returns instead of values."""


def timeline(backend: Backend) -> Any:
    """Multiply on every device, and copy from the first to the last; return the engine's spans."""
    random = np.random.default_rng(0)
    matrices = [
        backend.asarray(random.standard_normal((400, 400)), device) for device in backend.devices
    ]
    for _ in range(3):
        matrices = [backend.launch(backend.ops.matmul, x, x) for x in matrices]
        backend.copy_to(matrices[0], backend.devices[-1])
    backend.waitall()
    return list(getattr(backend, "spans", ()))


def measurement(backend: Backend, experiment: str, options: Mapping[str, Any]) -> Any:
    """Run an experiment with options, and return its result as JSON."""
    result = EXPERIMENTS[experiment].run(backend, **options)
    return json.dumps(result.as_json())


def compute(
    loaded: Loaded, answer: Answer, devices: int, function: Callable[..., Any], *arguments: Any
) -> None:
    """Call one of these functions on the engine, and answer with its result."""
    answer(function(loaded.on(devices), *arguments))
