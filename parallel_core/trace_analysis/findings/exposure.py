"""Exchanges and copies that ran beside no computation, and what the trace shows of each.

Of each one the longest stretch counts in which nothing was computed. What comes next is the first
computation that began in it or behind it. If that was launched already, its queue has waited; if
not, the host has, in a call that the trace shows, or it did something else. A trace of a CPU has no
such calls: there the host has waited if it goes on soon after the end.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parallel_core.trace_analysis.case_spans import CaseSpans, gaps, groups_of
from parallel_core.trace_analysis.findings.passes import (
    KEEPING,
    NONE,
    backward_passes,
    covered_before,
    passes_of_exchanges,
)
from parallel_core.trace_analysis.findings.waits import (
    EARLIEST,
    call_that_waited,
    host_waits,
    launched_behind_a_wait,
    names_of_waiting,
)
from parallel_core.trace_analysis.interference import ALONE, BESIDE
from parallel_core.trace_analysis.parts import exchanges_by_device, masks_of
from parallel_core.trace_analysis.steps.figures import step_windows

PAGEABLE = re.compile(r"Pageable")
"""In the names of CUDA's copies if the host's memory is not page-locked: then the call blocks."""
IN_BUCKETS = "DistributedDataParallel."
"""How PyTorch annotates its forward pass."""
COMPUTES = 0.1
"""A queue on which this share of its device's computation runs is one that computes."""
SOMETHING = 0.1
"""Computation that takes this share of an operation's time could have hidden some of it."""
MOSTLY = 0.5
SHORTLY = 0.5
SOON = 1_000_000
"""Nanoseconds: a thread that has waited may have to wait for a core, too, before it goes on."""
SLOWED = 1.3
"""What takes so many times as long beside computation as without is slowed down by it."""
FEWEST = 2
"""So many steps in which an operation runs beside computation, and in which it does not."""
LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Exposure:
    """Operations that ran beside no computation for some time; an entry for each in all arrays."""

    places: np.ndarray
    """In the case's spans."""
    exposed: np.ndarray
    """How long each ran beside no computation, in nanoseconds."""
    is_copy: np.ndarray
    is_pageable: np.ndarray
    in_buckets: np.ndarray
    """Whether DistributedDataParallel gathers the program's gradients in buckets."""
    on_computing_queue: np.ndarray
    in_every_micro_batch: np.ndarray
    """Whether it exchanges gradients, and another pass for the same update does, too."""
    after_pass: np.ndarray
    """Whether it exchanges gradients and was launched when their pass was over."""
    most_after_pass: np.ndarray
    """Whether that holds for most of what its pass exchanged."""
    pass_is_over: np.ndarray
    """Whether it exchanges gradients, and nothing of their pass was left to compute."""
    after_wait: np.ndarray
    """Whether the host launched it behind a wait, when its device had nothing left to do."""
    is_slowed: np.ndarray
    """Whether it ran beside computation, and takes longer there than in steps without it."""
    had_something: np.ndarray
    """Whether enough was computed that was launched after it to hide some of it."""
    waited_for: np.ndarray
    """Whether a queue or the host waited for its end."""
    is_last: np.ndarray
    """Whether nothing was computed behind it."""
    host_is_behind: np.ndarray
    """Whether nobody waited, and what was computed next was not launched yet."""
    waiting: tuple[str, ...]
    """What waited for each, by name; empty where nothing is known to."""


class _Beside(NamedTuple):
    """The computation on an operation's device; an entry for each operation in all arrays."""

    following: np.ndarray
    """The place of what was computed next, or NONE."""
    given: np.ndarray
    """How long what took that was launched after the operation and before that."""
    drained: np.ndarray
    """When all was computed that was launched before the operation, or EARLIEST."""
    last_of_pass: np.ndarray
    """When the last computation began that its pass launched, or EARLIEST."""


class Beside(NamedTuple):
    """Exchanges of one device, or all copies, and what may hide them."""

    places: np.ndarray
    """In the case's spans."""
    free: np.ndarray
    """When nothing was computed that hides them, as an interval set."""


def communication(case: CaseSpans) -> list[Beside]:
    """Return a case's exchanges, device by device, and its copies."""
    masks = masks_of(case)
    groups = [
        Beside(device.places, gaps(device.computing, case.start, case.end))
        for device in exchanges_by_device(case)
    ]
    if masks.copying.any():
        computing = case.covered(masks.computing)
        copies = np.flatnonzero(masks.copying)
        groups.append(Beside(copies, gaps(computing, case.start, case.end)))
    return groups


def exposure(case: CaseSpans, groups: Sequence[Beside]) -> Exposure | None:
    """Return what is known of those of a case's exchanges and copies that were not hidden.

    `groups` are what `communication` returns. None if all were hidden.
    """
    stretches = [_longest_exposures(case, beside) for beside in groups]
    if not stretches:
        return None
    columns = [np.concatenate(column) for column in zip(*stretches, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    places, exposed, alone_from, alone_until = (column[order] for column in columns)
    if not np.any(exposed > 0):
        return None
    is_slowed = _slowed(case, places, exposed)
    some = exposed > 0
    places, exposed, alone_from, alone_until, is_slowed = (
        column[some] for column in (places, exposed, alone_from, alone_until, is_slowed)
    )
    spans, launched = case.spans, case.since[places]
    starts, ends = spans.starts[places], spans.ends[places]
    passes = backward_passes(case)
    pass_of = passes_of_exchanges(case, passes, places)
    of_gradients = pass_of != NONE
    pass_end = np.append(passes.ends, EARLIEST)[pass_of]
    after_pass = of_gradients & (launched > np.append(passes.last_starts, LATEST)[pass_of])
    beside = _computation_beside(case, places, alone_from, pass_end)

    has_next = beside.following != NONE
    next_start = np.where(has_next, spans.starts[beside.following], LATEST)
    next_launch = np.where(has_next, case.since[beside.following], LATEST)
    is_after = has_next & (next_start >= ends)
    queue_waited = is_after & case.linked[beside.following] & (next_launch <= alone_from)
    waits = host_waits(case)
    if waits is None:
        soon = np.maximum((alone_until - alone_from) * SHORTLY, SOON)
        queue_waited |= is_after & (next_launch >= ends) & (next_launch - ends <= soon)
        call = np.full(len(places), NONE)
    else:
        call = call_that_waited(waits, launched, ends)
    waited_for = queue_waited | (call != NONE)
    return Exposure(
        places=places,
        exposed=exposed,
        is_copy=case.of_kind("copy")[places],
        is_pageable=_named(case, PAGEABLE)[places],
        in_buckets=np.full(len(places), _has_buckets(case)),
        on_computing_queue=_computing_queues(case)[spans.queue_of[places]],
        in_every_micro_batch=_have_others(pass_of, np.append(passes.updates, NONE)[pass_of]),
        after_pass=after_pass,
        most_after_pass=after_pass & _mostly(after_pass, pass_of, ends - starts),
        pass_is_over=of_gradients & (alone_from >= beside.last_of_pass),
        after_wait=launched_behind_a_wait(waits, launched, beside.drained),
        is_slowed=is_slowed,
        had_something=beside.given >= SOMETHING * (ends - starts),
        waited_for=waited_for,
        is_last=~has_next,
        host_is_behind=has_next & ~waited_for & (next_launch > alone_from),
        waiting=names_of_waiting(case, np.where(queue_waited, beside.following, NONE), call),
    )


def _slowed(case: CaseSpans, places: np.ndarray, exposed: np.ndarray) -> np.ndarray:
    """Return which operations ran beside computation, and took longer than in steps without it.

    A trace has no sizes: compared is only what comes in the same place of each step.
    """
    lengths = case.lengths[places]
    windows = step_windows(case.annotations)
    if not windows:
        return np.zeros(len(places), bool)
    step = np.searchsorted([window.start for window in windows], case.since[places], side="right")
    names = case.spans.name_of[places]
    order = np.lexsort((case.spans.starts[places], step, names))
    is_first = np.diff(names[order], prepend=-1) | np.diff(step[order], prepend=-1)
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order)) - first

    alone = exposed >= (1 - ALONE) * lengths
    beside = exposed <= (1 - BESIDE) * lengths
    slowed = np.zeros(len(places), bool)
    for same in groups_of(names * (len(order) + 1) + position):
        slow, free = same[beside[same]], same[alone[same]]
        if min(len(slow), len(free)) >= FEWEST:
            slowed[slow] = np.median(lengths[slow]) >= SLOWED * np.median(lengths[free])
    return slowed


def _longest_exposures(case: CaseSpans, beside: Beside) -> tuple[np.ndarray, ...]:
    """Return places, how long each operation was not hidden, and its longest stretch of that.

    Operations that took no time are left out. A hidden one has an empty stretch.
    """
    starts, ends = case.spans.starts[beside.places], case.spans.ends[beside.places]
    lasted = ends > starts
    places, starts, ends = beside.places[lasted], starts[lasted], ends[lasted]
    exposed = covered_before(beside.free, ends) - covered_before(beside.free, starts)
    alone_from, alone_until = starts.copy(), starts.copy()
    alone = np.flatnonzero(exposed > 0)
    alone_from[alone], alone_until[alone] = _longest_within(beside.free, starts[alone], ends[alone])
    return places, exposed, alone_from, alone_until


def _longest_within(
    free: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the longest part of an interval set that lies within each time from start to end."""
    first = np.searchsorted(free[:, 1], starts, side="right")
    last = np.searchsorted(free[:, 0], ends)
    counts = last - first
    operation = np.repeat(np.arange(len(starts)), counts)
    within = np.arange(len(operation)) - np.repeat(np.cumsum(counts) - counts, counts)
    part = free[first[operation] + within]
    begins = np.maximum(part[:, 0], starts[operation])
    stops = np.minimum(part[:, 1], ends[operation])
    # The longest part of each operation stands first.
    order = np.lexsort((begins - stops, operation))
    longest = order[np.cumsum(counts) - counts]
    return begins[longest], stops[longest]


def _computation_beside(
    case: CaseSpans, places: np.ndarray, alone_from: np.ndarray, pass_end: np.ndarray
) -> _Beside:
    spans, since = case.spans, case.since
    transfers = case.of_kind("exchange", "copy")
    keeps = np.array([name.startswith(KEEPING) for name in spans.operators], bool)
    lengths = case.lengths
    computes = case.operations & ~transfers & ~keeps[spans.operator_of] & (lengths > 0)
    all_work = np.flatnonzero(computes)
    count = len(places)
    beside = _Beside(
        np.full(count, NONE), np.zeros(count, np.int64), *np.full((2, count), EARLIEST)
    )
    device_of = case.device_of
    work_of_device = {
        int(device_of[all_work[own[0]]]): all_work[own] for own in groups_of(device_of[all_work])
    }
    for own in groups_of(device_of[places]):
        # Of a program that computes on a GPU, gloo exchanges on the CPU.
        work = work_of_device.get(int(device_of[places[own[0]]]), all_work)
        if len(work) == 0:
            continue
        next_place = np.searchsorted(spans.starts[work], alone_from[own])
        following = np.append(work, NONE)[next_place]
        next_launch = np.where(following != NONE, since[following], LATEST)

        work = work[np.argsort(since[work], kind="stable")]
        launches = since[work]
        time_before = np.concatenate(([0], np.cumsum(lengths[work])))
        latest_start = np.concatenate(([EARLIEST], np.maximum.accumulate(spans.starts[work])))
        latest_end = np.concatenate(([EARLIEST], np.maximum.accumulate(spans.ends[work])))
        launched = since[places[own]]
        behind = np.searchsorted(launches, launched, side="right")
        until_next = np.searchsorted(launches, next_launch)
        beside.following[own] = following
        beside.given[own] = time_before[until_next] - time_before[behind]
        beside.drained[own] = latest_end[np.searchsorted(launches, launched)]
        beside.last_of_pass[own] = latest_start[
            np.searchsorted(launches, pass_end[own], side="right")
        ]
    return beside


def _has_buckets(case: CaseSpans) -> bool:
    return any(mark.name.startswith(IN_BUCKETS) for mark in case.annotations)


def _computing_queues(case: CaseSpans) -> np.ndarray:
    """Return for each queue whether a large share of its device's computation runs on it."""
    spans = case.spans
    computing = case.of_kind("compute")
    count = len(spans.queues)
    by_queue = np.bincount(spans.queue_of, case.lengths * computing, count)
    by_device = np.bincount(case.device_of, case.lengths * computing, count)
    first_queues: dict[str, int] = {}
    for place, (device, _) in enumerate(spans.queues):
        first_queues.setdefault(device, place)
    of_device = by_device[[first_queues[device] for device, _ in spans.queues]]
    return (by_queue > 0) & (by_queue >= COMPUTES * of_device)


def _have_others(pass_of: np.ndarray, update_of: np.ndarray) -> np.ndarray:
    """Return whether several passes exchanged for the update of each operation."""
    passes = np.unique(np.stack((update_of, pass_of)), axis=1)
    updates, counts = np.unique(passes[0], return_counts=True)
    return (pass_of != NONE) & np.isin(update_of, updates[counts > 1])


def _mostly(mask: np.ndarray, group_of: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return for each operation whether the mask covers most of its group's time."""
    _, group = np.unique(group_of, return_inverse=True)
    masked = np.bincount(group, lengths * mask)
    return (masked >= MOSTLY * np.bincount(group, lengths))[group]


def _named(case: CaseSpans, pattern: re.Pattern[str]) -> np.ndarray:
    names = case.spans.operators
    return np.array([pattern.search(name) is not None for name in names], bool)[
        case.spans.operator_of
    ]
