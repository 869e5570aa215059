"""Timing for experiments: dispatch and completion apart, rounds interleaved, the garbage collector
switched off.
"""

import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from types import TracebackType
from typing import Any, Self, final

from backends import Array, Backend
from backends.host import clock_without_compiling
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Case
from parallel_core.measurement.result import Timing as Timing
from parallel_core.system.formatting import seconds
from parallel_core.system.machine import MachineWatch, joined_watches, sample_machine, watched

MOST_ROUNDS = 4
"""By what factor rounds are increased on a disturbed machine, at most: three of four moments may be
loud.
"""


class TooSlowError(Exception):
    """Fewer rounds fit a budget of seconds than a verdict takes."""

    def __init__(self, seconds_of_round: float):
        super().__init__(f"a round takes {seconds_of_round:g} s")
        self.seconds_of_round = seconds_of_round


_repeatable: ContextVar[bool] = ContextVar("repeatable", default=False)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Switch Python's garbage collector off within a `with` block, as `timeit` does.

    Ten thousand queued operations set it off, and it then visits all objects of a framework's
    import: 80 ms.
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
    """Within a `with` block, let cases keep what repeats them (`Case.again`), and with it all
    arrays it works on.
    """
    before = _repeatable.set(True)
    try:
        yield
    finally:
        _repeatable.reset(before)


def if_repeatable(take: Callable[[], Timing]) -> Callable[[], Timing] | None:
    """Return what repeats a case within `repeatable`; else None, so that its arrays can be
    freed.
    """
    return take if _repeatable.get() else None


def measure(
    backend: Backend, fn: Callable[[], Any], until: Callable[[Any], object] | None = None
) -> Timing:
    """Run `fn` once on idle devices and return its timing, until all is done or `until` has
    returned for its result.

    The result is kept, and all is done, before the timing is returned.
    """
    backend.waitall()
    start = perf_counter()
    result = fn()
    dispatched = perf_counter()
    if until is None:
        backend.waitall()
    else:
        until(result)
    done = perf_counter()
    backend.waitall()
    del result
    return dispatched - start, done - start


@final
class Benchmark:
    """Time a block and print when control returned, and when all that was launched was done.

    The book's context manager of this name reports only one of the two, depending on what the block
    waits for.

    >>> with Benchmark("products", backend):
    ...     backend.launch(backend.ops.matmul, x, x)
    products: control returned after 21.3 µs, done after 19.8 ms
    """

    def __init__(self, label: str, backend: Backend) -> None:
        self.label = label
        self.backend = backend
        self.dispatch_seconds = float("nan")
        self.seconds = float("nan")

    def __enter__(self) -> Self:
        self.backend.waitall()
        self._start = perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.dispatch_seconds = perf_counter() - self._start
        if error is None:
            self.backend.waitall()
            self.seconds = perf_counter() - self._start
            print(self)

    def __str__(self) -> str:
        dispatch, done = seconds(self.dispatch_seconds), seconds(self.seconds)
        return f"{self.label}: control returned after {dispatch}, done after {done}"


def completion_times(backend: Backend, values: Sequence[Array]) -> list[float]:
    """Wait for several values at once, each in a thread; return when each was there, in seconds of
    `perf_counter`.
    """

    def completed(value: Array) -> float:
        backend.wait(value)
        return perf_counter()

    with ThreadPoolExecutor(max_workers=len(values)) as waiting:
        return list(waiting.map(completed, values))


def interleave(
    cases: Mapping[str, Callable[[], Timing]],
    rounds: int,
    warmups: int = 1,
    budget: float = math.inf,
    fewest: int = 0,
) -> tuple[Case, ...]:
    """Take every case's timing in turn (A B C, C B A, …), so that a drift of the machine affects
    all alike.

    Every other round goes backwards: the state in which a case leaves caches and memory is not
    always met by the same other one. The first `warmups` rounds are not counted: their times are
    the cases' `warmup_seconds`. There are fewer rounds, but one at least, if another one would take
    more than the budget of seconds, judging by the last one. What a warm-up takes beyond a round,
    and compiling wherever it happens, are not part of the budget.

    If other processes took time of the cores, more rounds follow (see MOST_ROUNDS) until enough are
    undisturbed or the budget is spent, and those count in which they took least: which ones these
    are does not depend on the times.

    Raises TooSlowError if fewer than `fewest` rounds fit, judging by the last one.
    """
    started = clock_without_compiling()
    timings: dict[str, list[Timing]] = {name: [] for name in cases}
    watches: list[MachineWatch] = []
    there = list(cases)
    with without_garbage_collection():
        last = 0.0
        for done in range(warmups + MOST_ROUNDS * rounds):
            began = clock_without_compiling()
            if done >= warmups + rounds and not (
                budget < math.inf and _are_disturbed(watches, rounds)
            ):
                break
            rounds_to_come = max(1, warmups + fewest - done)
            if done > warmups and began - started + rounds_to_come * last > budget:
                if done - warmups < fewest:
                    raise TooSlowError(last)
                break
            before = sample_machine()
            for place, name in enumerate(there[::-1] if done % 2 else there):
                tell(name, min(1.0, (done + place / len(cases)) / (warmups + rounds)))
                timings[name].append(cases[name]())
            last = clock_without_compiling() - began
            if done == warmups:
                # What else is done once, in a warm-up: that counts as no more than a round.
                started = max(started, clock_without_compiling() - (warmups + 1) * last)
            if done >= warmups:
                watches.append(watched(before, sample_machine()))
    kept = _quietest(watches, rounds)
    watch = joined_watches([watches[index] for index in kept], len(watches) - len(kept))

    return tuple(
        Case(
            name,
            seconds=tuple(taken[warmups + index][1] for index in kept),
            dispatch_seconds=tuple(taken[warmups + index][0] for index in kept),
            warmup_seconds=tuple(done for _, done in taken[:warmups]),
            again=if_repeatable(cases[name]),
            watch=watch,
        )
        for name, taken in timings.items()
    )


def _quietest(watches: Sequence[MachineWatch], rounds: int) -> list[int]:
    """Return which rounds, so many at most, were disturbed least, in their order."""

    def taken(index: int) -> float:
        return (watches[index].others_share or 0.0) + (watches[index].stolen_share or 0.0)

    return sorted(sorted(range(len(watches)), key=taken)[:rounds])


def _are_disturbed(watches: Sequence[MachineWatch], rounds: int) -> bool:
    """Return whether even the quietest rounds were disturbed."""
    watch = joined_watches([watches[index] for index in _quietest(watches, rounds)])
    return watch is not None and watch.is_disturbed
