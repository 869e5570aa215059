"""Which calls of the host waited for exchanges and copies, and in which operators.

A call that copies waits, too, if it lasts until the copy is done: one from memory that is not
pinned.
"""

from typing import NamedTuple

import numpy as np

from backends.profiling.timeline import HOST_DEVICE, ROLES
from parallel_core.trace_analysis.case_spans import CaseSpans, groups_of
from parallel_core.trace_analysis.findings.passes import EARLIEST, NONE

CLOCKS_DIFFER = 10_000
"""Nanoseconds by which an operation may seem to end after the wait for it."""


class HostWaits(NamedTuple):
    """Calls in which the host waited, or may have, in the order of their start."""

    calls: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    """The latest end of all calls so far; `longest` likewise, whose call that is."""
    longest: np.ndarray


def host_waits(case: CaseSpans) -> HostWaits | None:
    """Return the calls that wait, and those that copy, which may block; None without calls."""
    calls = case.host_calls
    if calls is None:
        return None
    # Calls stand in the order of their start.
    waits = calls.roles >= ROLES.index("wait for a device")
    copies = calls.roles == ROLES.index("copy")
    waiting = np.flatnonzero(waits | copies)
    latest_end = np.maximum.accumulate(calls.ends[waiting])
    ends_last = np.flatnonzero(calls.ends[waiting] == latest_end)
    last = np.searchsorted(ends_last, np.arange(len(waiting)), side="right") - 1
    return HostWaits(waiting, calls.starts[waiting], latest_end, waiting[ends_last[last]])


def call_that_waited(waits: HostWaits, launched: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the call that began after each launch and lasted until that operation's end."""
    before = np.searchsorted(waits.starts, ends) - 1
    lasts = np.append(waits.ends, EARLIEST)[before] + CLOCKS_DIFFER >= ends
    begun = np.append(waits.starts, EARLIEST)[before] >= launched
    return np.where((before >= 0) & lasts & begun, np.append(waits.longest, NONE)[before], NONE)


def launched_behind_a_wait(
    waits: HostWaits | None, launched: np.ndarray, drained: np.ndarray
) -> np.ndarray:
    """Return whether a wait lasted until the device had nothing to do, before each launch."""
    if waits is None:
        return np.zeros(len(launched), bool)
    before = np.searchsorted(waits.starts, drained) - 1
    ended = np.append(waits.ends, EARLIEST)[before]
    lasted = (before >= 0) & (ended + CLOCKS_DIFFER >= drained) & (ended <= launched)
    return lasted & (drained > EARLIEST) & (drained <= launched)


def names_of_waiting(case: CaseSpans, following: np.ndarray, calls: np.ndarray) -> tuple[str, ...]:
    """Return the names of the computations, or else of the host's operators, that waited."""
    spans = case.spans
    names = [""] * len(following)
    for place in np.flatnonzero(following != NONE).tolist():
        names[place] = spans.names[spans.name_of[following[place]]]
    on_host = np.flatnonzero((following == NONE) & (calls != NONE))
    around = _operators_around(case, calls[on_host])
    for place, call, operator in zip(
        on_host.tolist(), calls[on_host].tolist(), around.tolist(), strict=True
    ):
        if operator != NONE:
            names[place] = spans.operators[spans.operator_of[operator]]
        elif case.host_calls is not None:
            names[place] = case.host_calls.names[case.host_calls.name_of[call]]
    return tuple(names)


def _operators_around(case: CaseSpans, asked: np.ndarray) -> np.ndarray:
    """Return the places of the outermost operators in which calls of the host lie, or NONE."""
    around = np.full(len(asked), NONE)
    calls, spans = case.host_calls, case.spans
    if calls is None:
        return around
    host = np.flatnonzero(~case.operations)
    operators_of = {
        spans.queues[spans.queue_of[host[group[0]]]]: host[group]
        for group in groups_of(spans.queue_of[host])
    }
    for of_thread in groups_of(calls.queue_of[asked]):
        thread = calls.queues[calls.queue_of[asked[of_thread[0]]]]
        operators = operators_of.get((HOST_DEVICE, thread), host[:0])
        times = calls.starts[asked[of_thread]]
        before = np.searchsorted(spans.starts[operators], times, side="right") - 1
        ends = np.append(spans.ends[operators], EARLIEST)[before]
        around[of_thread] = np.where(ends >= times, np.append(operators, NONE)[before], NONE)
    return around
