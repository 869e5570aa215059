"""Barriers and blockers: what each way of waiting really waits for.

`wait` asks for one result, `waitall` for everything on every device. Converting a result to NumPy, to a Python
number or to text waits for it too, without saying so.
"""

from collections.abc import Callable
from time import perf_counter

from backends import Array, Backend
from parallel_core.experiments.calibration import normal_matrix
from parallel_core.measurement import Timing, interleave
from parallel_core.result import Case

__all__ = ["compare_barriers", "time_blockers"]

QUEUED = 10


def compare_barriers(backend: Backend, size: int, rounds: int) -> tuple[Case, Case]:
    """Queue ten products on the last device and one on the first; wait for the one, or for all."""
    mine = normal_matrix(backend, size, backend.devices[0])
    other = normal_matrix(backend, size, backend.devices[-1])

    def until(wait: Callable[[Array], object]) -> Timing:
        backend.waitall()
        start = perf_counter()
        queued = [backend.launch(backend.ops.matmul, other, other) for _ in range(QUEUED)]
        result = backend.launch(backend.ops.matmul, mine, mine)
        dispatched = perf_counter()
        wait(result)
        done = perf_counter()
        backend.waitall()
        del queued
        return dispatched - start, done - start

    one, everything = interleave(
        {
            "wait for one result": lambda: until(backend.wait),
            "waitall": lambda: until(lambda _: backend.waitall()),
        },
        rounds,
    )
    return one, everything


def time_blockers(backend: Backend, size: int, rounds: int) -> tuple[Case, ...]:
    """Time a product that is converted: to NumPy, to a Python number (its sum), to text."""
    x = normal_matrix(backend, size, backend.devices[0])

    def until(convert: Callable[[Array], object]) -> Timing:
        backend.waitall()
        start = perf_counter()
        result = backend.launch(backend.ops.matmul, x, x)
        dispatched = perf_counter()
        convert(result)
        return dispatched - start, perf_counter() - start

    return interleave(
        {
            "product, to NumPy": lambda: until(backend.to_numpy),
            "product, to a number": lambda: until(
                lambda y: float(backend.to_numpy(backend.launch(backend.ops.total, y)))
            ),
            "product, to text": lambda: until(lambda y: str(backend.to_numpy(y))),
        },
        rounds,
    )
