"""Timing as the experiments need it: dispatch and completion apart, rounds interleaved, medians with their spread."""

import gc
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter

from backends import Array, Backend
from parallel_core.measurement.result import Case, Timing

__all__ = [
    "Timing",
    "completion_times",
    "if_repeatable",
    "interleave",
    "measure",
    "repeatable",
    "without_garbage_collection",
]


_repeatable: ContextVar[bool] = ContextVar("repeatable", default=False)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Switch Python's garbage collector off for a while, as `timeit` does.

    Ten thousand queued operations set it off, and it then walks over all that a framework's import has left: 80 ms.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def repeatable() -> Iterator[None]:
    """Meanwhile, let cases keep what repeats them (`Case.again`), and with it all arrays that it works on."""
    before = _repeatable.set(True)
    try:
        yield
    finally:
        _repeatable.reset(before)


def if_repeatable(take: Callable[[], Timing]) -> Callable[[], Timing] | None:
    """Return what repeats a case where cases are to keep it; else None, so that its arrays can go."""
    return take if _repeatable.get() else None


def measure(backend: Backend, fn: Callable[[], object]) -> Timing:
    """Run `fn` once on idle devices and return its timing. What `fn` returns is kept until all is done."""
    backend.waitall()
    start = perf_counter()
    kept = fn()
    dispatched = perf_counter()
    backend.waitall()
    done = perf_counter()
    del kept
    return dispatched - start, done - start


def completion_times(backend: Backend, values: Sequence[Array]) -> list[float]:
    """Wait for several values at once, each in a thread; return when each was there, in seconds of `perf_counter`."""

    def completed(value: Array) -> float:
        backend.wait(value)
        return perf_counter()

    with ThreadPoolExecutor(max_workers=len(values)) as waiting:
        return list(waiting.map(completed, values))


def interleave(cases: Mapping[str, Callable[[], Timing]], rounds: int, warmups: int = 1) -> tuple[Case, ...]:
    """Take every case's timing in turn (A B C, A B C, …), so that a drift of the machine falls on all alike.

    The first `warmups` rounds are not counted; their times are kept apart.
    """
    timings: dict[str, list[Timing]] = {name: [] for name in cases}
    with without_garbage_collection():
        for _, (name, take) in itertools.product(range(warmups + rounds), cases.items()):
            timings[name].append(take())
    return tuple(
        Case(
            name,
            seconds=tuple(done for _, done in taken[warmups:]),
            dispatch_seconds=tuple(sent for sent, _ in taken[warmups:]),
            warmup_seconds=tuple(done for _, done in taken[:warmups]),
            again=if_repeatable(cases[name]),
        )
        for name, taken in timings.items()
    )
