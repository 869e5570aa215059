"""Timing for experiments: dispatch and completion apart, rounds interleaved.

The garbage collector is switched off meanwhile.
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
from backends.arrays import tree_leaves
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Case
from parallel_core.measurement.result import Timing as Timing
from parallel_core.measurement.starter import ALONE, SHORTEST_TURN, Turns
from parallel_core.system.formatting import seconds
from parallel_core.system.machine import MachineWatch, joined_watches, sample_machine, watched

MOST_ROUNDS = 4
"""The factor by which rounds are increased on a disturbed machine, at most.

Three of four moments may be loud.
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
    """Let cases keep what repeats them (`Case.again`) within a `with` block.

    They keep all arrays that they work on, too.
    """
    before = _repeatable.set(True)
    try:
        yield
    finally:
        _repeatable.reset(before)


def if_repeatable(take: Callable[[], Timing]) -> Callable[[], Timing] | None:
    """Return what repeats a case within `repeatable`, else None: its arrays can be freed."""
    return take if _repeatable.get() else None


def measure(
    backend: Backend,
    fn: Callable[[], Any],
    until: Callable[[Any], object] | None = None,
    read: bool = False,
) -> Timing:
    """Run `fn` once on idle devices and return its timing.

    It ends when all is done, or when `until` has returned for the result of `fn`. The result is
    kept, and all is done, before the timing is returned. With `read` the arrays of the result are
    read before that, which waits for them even if `waitall` does not.
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
    if read:
        _read(backend, result)
    del result
    return dispatched - start, done - start


def reading_seconds(backend: Backend, fn: Callable[[], Any], waits: bool) -> float:
    """Run `fn`, wait for all, and return the seconds that reading the arrays of its result takes.

    With `waits` each array is waited for before.
    """
    backend.waitall()
    result = fn()
    if waits:
        for array in _arrays(result):
            backend.wait(array)
    backend.waitall()
    start = perf_counter()
    _read(backend, result)
    return perf_counter() - start


def _read(backend: Backend, result: Any) -> None:
    """Read the arrays of a result."""
    for array in _arrays(result):
        backend.to_numpy(array)


def _arrays(result: Any) -> list[Array]:
    """Return the arrays of a result, without what launches return in place of one."""
    return [leaf for leaf in tree_leaves(result) if leaf is not None]


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
    """Wait for several values at once, each in a thread; return when each was there.

    Times are seconds of `perf_counter`.
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
    settle: Callable[[], object] = lambda: None,
    turns: Turns = ALONE,
) -> tuple[Case, ...]:
    """Take every case's timing in turn (A B C, C B A, …), so that a drift affects all alike.

    Every other round goes backwards: the state in which a case leaves caches and memory is not
    always met by the same other one. The first `warmups` rounds are not counted: their times are
    the cases' `warmup_seconds`. There are fewer rounds, but one at least, if another one would take
    more than the budget of seconds, judging by the last one. What a warm-up takes beyond a round,
    and compiling wherever it happens, are not part of the budget. `settle` ends a round: it returns
    when all is done that the cases launched, so that a round takes what it costs.

    If other processes took time of the cores, more rounds follow (see MOST_ROUNDS) until enough are
    undisturbed or the budget is spent, and those count in which they took least: which ones these
    are does not depend on the times. Where processes take turns there are no more: what others took
    of all of them cancels.

    Raises TooSlowError if fewer than `fewest` rounds fit, judging by the last one.
    """
    started = turns.clock()
    timings: dict[str, list[Timing]] = {name: [] for name in cases}
    watches: list[MachineWatch] = []
    forwards = list(cases)
    backwards = forwards[::-1]
    with without_garbage_collection():
        seconds_of_round = 0.0
        for done in range(warmups + MOST_ROUNDS * rounds):
            turns.end_turn(SHORTEST_TURN)
            began = turns.clock()
            if done >= warmups + rounds:
                may_go_on = budget < math.inf and not turns.are_given
                if not (may_go_on and _are_disturbed(watches, rounds)):
                    break
            rounds_to_come = max(1, warmups + fewest - done)
            seconds_to_come = rounds_to_come * seconds_of_round
            if done > warmups and began - started + seconds_to_come > budget:
                if done - warmups < fewest:
                    raise TooSlowError(seconds_of_round)
                break
            before = sample_machine()
            for number, name in enumerate(backwards if done % 2 else forwards):
                tell(name, min(1.0, (done + number / len(cases)) / (warmups + rounds)))
                timings[name].append(cases[name]())
            settle()
            seconds_of_round = turns.clock() - began
            if done == warmups:
                # What else is done once, in a warm-up: that counts as no more than a round.
                counted = (warmups + 1) * seconds_of_round
                started = max(started, turns.clock() - counted)
            if done >= warmups:
                watches.append(watched(before, sample_machine()))
    kept = _quietest(watches, rounds)
    watch = joined_watches([watches[index] for index in kept], len(watches) - len(kept))
    timed_cases = []
    for name, timings_of_case in timings.items():
        warm_up, counted_rounds = timings_of_case[:warmups], timings_of_case[warmups:]
        timed_cases.append(
            Case(
                name,
                seconds=tuple(counted_rounds[index][1] for index in kept),
                dispatch_seconds=tuple(counted_rounds[index][0] for index in kept),
                warmup_seconds=tuple(done for _, done in warm_up),
                again=if_repeatable(cases[name]),
                watch=watch,
            )
        )
    return tuple(timed_cases)


def _quietest(watches: Sequence[MachineWatch], rounds: int) -> list[int]:
    """Return the numbers of the rounds that were disturbed least, `rounds` at most, in order."""

    def lost_share(index: int) -> float:
        watch = watches[index]
        return (watch.others_share or 0.0) + (watch.stolen_share or 0.0)

    by_loss = sorted(range(len(watches)), key=lost_share)
    return sorted(by_loss[:rounds])


def _are_disturbed(watches: Sequence[MachineWatch], rounds: int) -> bool:
    """Return whether even the quietest rounds were disturbed."""
    watch = joined_watches([watches[index] for index in _quietest(watches, rounds)])
    return watch is not None and watch.is_disturbed
