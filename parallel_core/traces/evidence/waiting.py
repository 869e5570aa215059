"""Which calls of the host waited for a device: when, for which exchanges and copies, and in which
operators.

A call that copies waits, too, if it lasts until the copy is done: one from memory that is not
pinned.
"""

from typing import NamedTuple

import numpy as np

from backends.profiling.timeline import HOST_DEVICE
from parallel_core.traces.case_spans import (
    EARLIEST,
    NONE,
    CaseSpans,
    of_last_begun,
    places_by_key,
)

CLOCKS_DIFFER = 10_000
"""Nanoseconds by which an operation may seem to end after the wait for it."""


class HostWaits(NamedTuple):
    """Calls in which the host waited, or may have, in the order of their start."""

    calls: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    """The latest end of each call and all before it."""
    longest: np.ndarray
    """The call that ends then."""


def host_waits(case: CaseSpans) -> HostWaits | None:
    """Return the calls that wait, and those that copy, which may block; None without calls."""
    calls = case.host_calls
    if calls is None:
        return None
    # Calls stand in the order of their start.
    waiting = calls.with_role("wait", "copy")
    latest_end = np.maximum.accumulate(calls.ends[waiting])
    # The calls that end last of all up to them, and for each call the nearest of these.
    end_last_so_far = np.flatnonzero(calls.ends[waiting] == latest_end)
    numbers = np.arange(len(waiting))
    nearest = np.searchsorted(end_last_so_far, numbers, side="right") - 1
    longest = waiting[end_last_so_far[nearest]]
    return HostWaits(waiting, calls.starts[waiting], latest_end, longest)


def call_that_waited(waits: HostWaits, launched: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return for each operation the call that waited for its end, or NONE.

    The last call before that end must have begun after the launch. Of all calls until then the one
    that ends last counts, if it lasted until the operation's end.
    """
    starts = waits.starts
    call_start = of_last_begun(starts, starts, ends, EARLIEST, side="left")
    latest_end = of_last_begun(starts, waits.ends, ends, EARLIEST, side="left")
    longest = of_last_begun(starts, waits.longest, ends, NONE, side="left")
    has_waited = (call_start >= launched) & (latest_end + CLOCKS_DIFFER >= ends)
    return np.where(has_waited, longest, NONE)


def launched_behind_a_wait(
    waits: HostWaits | None, launched: np.ndarray, drained: np.ndarray
) -> np.ndarray:
    """Return whether a wait lasted until the device had nothing to do, before each launch.

    `drained` says when the device had done all that was launched before, or EARLIEST.
    """
    if waits is None:
        return np.zeros(len(launched), bool)
    wait_end = of_last_begun(waits.starts, waits.ends, drained, EARLIEST, side="left")
    waited_for_all = (wait_end > EARLIEST) & (wait_end + CLOCKS_DIFFER >= drained)
    had_work = drained > EARLIEST
    return had_work & waited_for_all & (drained <= launched) & (wait_end <= launched)


def names_of_waiting(case: CaseSpans, following: np.ndarray, calls: np.ndarray) -> tuple[str, ...]:
    """Return the names of what waited for operations: a computation, or an operator of the host.

    `following` are the places of the computations, and `calls` those of the host's calls; one of
    the two is known at most, and the other is NONE. The name is empty if none is known.
    """
    spans, host_calls = case.spans, case.host_calls
    names = [""] * len(following)
    for number in np.flatnonzero(following != NONE).tolist():
        names[number] = spans.names[spans.name_of[following[number]]]

    by_call = np.flatnonzero((following == NONE) & (calls != NONE))
    operators = _operators_around(case, calls[by_call])
    for number, operator in zip(by_call.tolist(), operators.tolist(), strict=True):
        if operator != NONE:
            names[number] = spans.operators[spans.operator_of[operator]]
        elif host_calls is not None:
            names[number] = host_calls.names[host_calls.name_of[calls[number]]]
    return tuple(names)


def _operators_around(case: CaseSpans, places: np.ndarray) -> np.ndarray:
    """Return the outermost operators in which calls of the host lie, or NONE.

    `places` are those of the calls; what is returned are places of spans.
    """
    around = np.full(len(places), NONE)
    calls, spans = case.host_calls, case.spans
    if calls is None:
        return around
    host = np.flatnonzero(~case.operations)
    operators_of_queue = places_by_key(spans.queue_of, host)
    operators_of_thread = {
        spans.queues[number]: operators for number, operators in operators_of_queue.items()
    }
    numbers_of_thread = places_by_key(calls.queue_of[places], np.arange(len(places)))
    for thread, numbers in numbers_of_thread.items():
        operators = operators_of_thread.get((HOST_DEVICE, calls.queues[thread]), host[:0])
        call_starts = calls.starts[places[numbers]]
        starts, ends = case.intervals(operators).T
        operator_end = of_last_begun(starts, ends, call_starts, EARLIEST)
        operator = of_last_begun(starts, operators, call_starts, NONE)
        around[numbers] = np.where(operator_end >= call_starts, operator, NONE)
    return around
