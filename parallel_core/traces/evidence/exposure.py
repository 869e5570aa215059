"""Exchanges and copies that ran beside no computation, and what the trace shows of each.

Of each one the longest stretch counts in which nothing was computed. What comes next is the first
computation that began in it or behind it. If that was launched already, its queue has waited; if
not, the host has, in a call that the trace shows, or it did something else. A trace of a CPU has no
such calls: there the host has waited if it goes on soon after the end.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from backends.profiling.collectives import ON_CPU
from parallel_core.traces.case_spans import (
    EARLIEST,
    LATEST,
    NONE,
    CaseSpans,
    groups_of,
)
from parallel_core.traces.evidence.communication import (
    Communication,
    Stretches,
    stretches_of,
)
from parallel_core.traces.evidence.passes import (
    KEEPING,
    backward_passes,
    passes_of_exchanges,
)
from parallel_core.traces.evidence.slowing import slowed
from parallel_core.traces.evidence.waiting import (
    HostWaits,
    call_that_waited,
    host_waits,
    launched_behind_a_wait,
    names_of_waiting,
)

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


@dataclass(frozen=True, eq=False)
class Exposure:
    """Operations that ran beside no computation for some time; an entry for each in all arrays."""

    places: np.ndarray
    """In the case's spans."""
    exposed: np.ndarray
    """How long each ran beside no computation, in nanoseconds."""
    on_cpu: np.ndarray
    """Whether it is an exchange of CPUs, whose threads are the devices and the host."""
    is_copy: np.ndarray
    is_pageable: np.ndarray
    in_flight_with_others: np.ndarray
    """Whether another exchange was in flight meanwhile, so that no call waited for one alone."""
    in_buckets: np.ndarray
    """Whether DistributedDataParallel gathers the program's gradients in buckets."""
    on_computing_queue: np.ndarray
    in_every_micro_batch: np.ndarray
    """Whether it exchanges gradients, and another pass for the same update does, too."""
    after_pass: np.ndarray
    """Whether it exchanges gradients and was launched when their pass was over."""
    most_after_pass: np.ndarray
    """Whether that holds for most of what its pass exchanged, though most was ready earlier."""
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


class _Neighbours(NamedTuple):
    """The computation on an operation's device; an entry for each operation in all arrays."""

    following: np.ndarray
    """The place of what was computed next, or NONE."""
    given: np.ndarray
    """How long the computation took that was launched between the operation and `following`."""
    drained: np.ndarray
    """When all was computed that was launched before the operation, or EARLIEST."""
    last_of_pass: np.ndarray
    """When the last computation began that its pass launched, or EARLIEST."""


class _Work(NamedTuple):
    """Computation; an entry for each operation in all arrays."""

    places: np.ndarray
    launches: np.ndarray
    """When each was launched."""
    lengths: np.ndarray

    def select(self, where: np.ndarray) -> "_Work":
        """Return the operations at some positions."""
        return _Work(self.places[where], self.launches[where], self.lengths[where])


class _Waiting(NamedTuple):
    """What waited for an operation's end; an entry for each operation in all arrays."""

    by_queue: np.ndarray
    """Whether a queue waited, or on a CPU the thread that computes."""
    call: np.ndarray
    """The place of the host's call that waited, or NONE."""


def exposure(case: CaseSpans, groups: Sequence[Communication]) -> Exposure | None:
    """Return what is known of those of a case's exchanges and copies that were not hidden.

    `groups` are what `communication` returns. None if all were hidden.
    """
    all_stretches = stretches_of(case, groups)
    is_exposed = all_stretches.exposed > 0
    if not is_exposed.any():
        return None
    is_slowed = slowed(case, groups, all_stretches.places, all_stretches.exposed)[is_exposed]
    stretches = all_stretches.select(is_exposed)
    places, alone_from = stretches.places, stretches.alone_from
    launched, lengths = case.since[places], case.lengths[places]

    passes = backward_passes(case)
    pass_of = passes_of_exchanges(case, passes, places)
    of_gradients = pass_of != NONE
    # The last entry is for operations that belong to no pass.
    pass_end = np.append(passes.ends, EARLIEST)[pass_of]
    last_start = np.append(passes.last_starts, LATEST)[pass_of]
    update = np.append(passes.updates, NONE)[pass_of]
    is_ready_last = np.append(passes.are_ready_last, False)[pass_of]
    after_pass = of_gradients & (launched > last_start)

    neighbours = _neighbours(case, places, alone_from, pass_end)
    has_next = neighbours.following != NONE
    next_launch = np.where(has_next, case.since[neighbours.following], LATEST)
    waits = host_waits(case)
    waiting = _waiting(case, stretches, neighbours.following, waits)
    waited_for = waiting.by_queue | (waiting.call != NONE)
    computation_waiting = np.where(waiting.by_queue, neighbours.following, NONE)
    return Exposure(
        places=places,
        exposed=stretches.exposed,
        on_cpu=case.of_kind("exchange")[places] & _on_cpus(case)[places],
        is_copy=case.of_kind("copy")[places],
        is_pageable=_named(case, PAGEABLE)[places],
        in_flight_with_others=_with_others(case, launched, case.spans.ends[places]),
        in_buckets=np.full(len(places), _has_buckets(case)),
        on_computing_queue=_computing_queues(case)[case.spans.queue_of[places]],
        in_every_micro_batch=_have_others(pass_of, update),
        after_pass=after_pass,
        most_after_pass=after_pass & ~is_ready_last & _mostly(after_pass, pass_of, lengths),
        pass_is_over=of_gradients & (alone_from >= neighbours.last_of_pass),
        after_wait=launched_behind_a_wait(waits, launched, neighbours.drained),
        is_slowed=is_slowed,
        had_something=neighbours.given >= SOMETHING * lengths,
        waited_for=waited_for,
        is_last=~has_next,
        host_is_behind=has_next & ~waited_for & (next_launch > alone_from),
        waiting=names_of_waiting(case, computation_waiting, waiting.call),
    )


def _waiting(
    case: CaseSpans, stretches: Stretches, following: np.ndarray, waits: HostWaits | None
) -> _Waiting:
    """Return what waited for operations, behind which some computation follows, or NONE.

    `waits` are the host's calls, which a trace of a CPU does not have.
    """
    launched, ends = case.since[stretches.places], case.spans.ends[stretches.places]
    has_next = following != NONE
    next_launch = np.where(has_next, case.since[following], LATEST)
    is_after = has_next & (case.spans.starts[following] >= ends)
    was_launched = case.linked[following] & (next_launch <= stretches.alone_from)
    by_queue = is_after & was_launched
    if waits is not None:
        return _Waiting(by_queue, call_that_waited(waits, launched, ends))
    goes_on = is_after & (next_launch >= ends)
    longest_stretches = stretches.alone_until - stretches.alone_from
    goes_on_at = np.minimum(next_launch, _next_marks(case, ends))[goes_on]
    pauses = goes_on_at - _ends_of_groups(case, ends[goes_on], goes_on_at)
    by_queue[goes_on] |= _thread_waited(
        case.spans.name_of[stretches.places[goes_on]],
        longest_stretches[goes_on],
        pauses,
    )
    return _Waiting(by_queue, np.full(len(launched), NONE))


def _ends_of_groups(case: CaseSpans, ends: np.ndarray, goes_on_at: np.ndarray) -> np.ndarray:
    """Return when the last exchange or copy ended of those that were in flight with each one.

    `ends` are their own, and `goes_on_at` says when the thread went on, not earlier: it may have
    waited for all of a group.
    """
    moving = np.flatnonzero(case.of_kind("exchange", "copy"))
    moving = moving[np.argsort(case.spans.ends[moving], kind="stable")]
    # What ended last before the thread went on; each has ended itself by then.
    last = moving[np.searchsorted(case.spans.ends[moving], goes_on_at, side="right") - 1]
    was_in_flight = case.since[last] <= ends
    return np.where(was_in_flight, np.maximum(ends, case.spans.ends[last]), ends)


def _next_marks(case: CaseSpans, times: np.ndarray) -> np.ndarray:
    """Return when the program next began an annotation or launched an exchange, from each time on;
    LATEST if it never did.
    """
    starts = [mark.start for mark in case.annotations if not ON_CPU.match(mark.name)]
    launches = case.spans.launched[case.of_kind("exchange") & case.linked]
    marks = np.sort(np.concatenate((np.array(starts, np.int64), launches)))
    return np.append(marks, LATEST)[np.searchsorted(marks, times)]


def _thread_waited(names: np.ndarray, stretches: np.ndarray, pauses: np.ndarray) -> np.ndarray:
    """Return for which operations a CPU's thread waited that goes on some time after their end.

    After a wait it goes on at once, or when it gets a core. If it did something else meanwhile, it
    goes on whenever that is done, soon only by chance: hardly after a quarter of a kind. `names`
    are numbers of kinds, `stretches` how long each operation ran beside no computation, and
    `pauses` how long after its end the thread goes on, in nanoseconds.
    """
    waited = np.zeros(len(names), bool)
    for same_kind in groups_of(names):
        first_quarter = np.sort(pauses[same_kind])[len(same_kind) // 4]
        if first_quarter <= SOON:
            longest_pause = np.maximum(stretches[same_kind] * SHORTLY, SOON)
            waited[same_kind] = pauses[same_kind] <= longest_pause
    return waited


def _neighbours(
    case: CaseSpans, places: np.ndarray, alone_from: np.ndarray, pass_end: np.ndarray
) -> _Neighbours:
    """Return the computation that may hide each operation, or follows it.

    `alone_from` says when each operation's longest stretch beside no computation begins, and
    `pass_end` when its backward pass ended, or EARLIEST.
    """
    count, device_of = len(places), case.device_of
    launched = case.since[places]
    neighbours = _Neighbours(
        following=np.full(count, NONE),
        given=np.zeros(count, np.int64),
        drained=np.full(count, EARLIEST),
        last_of_pass=np.full(count, EARLIEST),
    )
    all_work = np.flatnonzero(_may_hide(case))
    # Each device's work is in the order of its start.
    all_columns = _Work(all_work, case.since[all_work], case.lengths[all_work])
    work_of_device = {
        int(device_of[all_work[same_device[0]]]): all_columns.select(same_device)
        for same_device in groups_of(device_of[all_work])
    }
    for same_device in groups_of(device_of[places]):
        # Of a program that computes on a GPU, gloo exchanges on the CPU.
        device = int(device_of[places[same_device[0]]])
        work = work_of_device.get(device, all_columns)
        if len(work.places) == 0:
            continue
        on_device = _neighbours_on_device(
            case, work, launched[same_device], alone_from[same_device], pass_end[same_device]
        )
        for column, values in zip(neighbours, on_device, strict=True):
            column[same_device] = values
    return neighbours


def _may_hide(case: CaseSpans) -> np.ndarray:
    """Return the mask of the computation that takes time; to keep a gradient hides nothing."""
    keeps = np.array([name.startswith(KEEPING) for name in case.spans.operators], bool)
    transfers = case.of_kind("exchange", "copy")
    is_kept = keeps[case.spans.operator_of]
    return case.operations & ~transfers & ~is_kept & (case.lengths > 0)


def _neighbours_on_device(
    case: CaseSpans,
    work: _Work,
    launched: np.ndarray,
    alone_from: np.ndarray,
    pass_end: np.ndarray,
) -> _Neighbours:
    """Return the computation around operations on one device, which were launched at some times.

    `work` is the computation there, in the order of its start.
    """
    spans = case.spans
    next_number = np.searchsorted(spans.starts[work.places], alone_from)
    following = np.append(work.places, NONE)[next_number]
    next_launch = np.append(work.launches, LATEST)[next_number]

    # The first n computations in the order of launches: the time that they take together, when
    # the last of them begins, and when all have ended.
    by_launch = work.select(np.argsort(work.launches, kind="stable"))
    starts, ends = spans.starts[by_launch.places], spans.ends[by_launch.places]
    time_of_first = np.concatenate(([0], np.cumsum(by_launch.lengths)))
    latest_start_of_first = np.concatenate(([EARLIEST], np.maximum.accumulate(starts)))
    latest_end_of_first = np.concatenate(([EARLIEST], np.maximum.accumulate(ends)))

    # How many were launched before the next computation, before the operation and with it, and
    # until its pass ended.
    launches = by_launch.launches
    before_next = np.searchsorted(launches, next_launch)
    before_operation = np.searchsorted(launches, launched)
    until_operation = np.searchsorted(launches, launched, side="right")
    until_pass_end = np.searchsorted(launches, pass_end, side="right")
    return _Neighbours(
        following,
        given=time_of_first[before_next] - time_of_first[until_operation],
        drained=latest_end_of_first[before_operation],
        last_of_pass=latest_start_of_first[until_pass_end],
    )


def _on_cpus(case: CaseSpans) -> np.ndarray:
    """Return which spans are on CPUs."""
    is_cpu = [device.startswith("cpu") for device, _ in case.spans.queues]
    return np.array(is_cpu, bool)[case.spans.queue_of]


def _with_others(case: CaseSpans, launched: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return whether another exchange was in flight between each one's launch and its end."""
    exchanges = case.of_kind("exchange")
    all_launches, all_ends = np.sort(case.since[exchanges]), np.sort(case.spans.ends[exchanges])
    launched_until_end = np.searchsorted(all_launches, ends)
    ended_until_launch = np.searchsorted(all_ends, launched, side="right")
    return launched_until_end - ended_until_launch > 1


def _has_buckets(case: CaseSpans) -> bool:
    """Return whether DistributedDataParallel runs the program's forward passes."""
    return any(mark.name.startswith(IN_BUCKETS) for mark in case.annotations)


def _computing_queues(case: CaseSpans) -> np.ndarray:
    """Return for each queue whether a large share of its device's computation runs on it."""
    queues = case.spans.queues
    computing_time = case.lengths * case.of_kind("compute")
    time_of_queue = np.bincount(case.spans.queue_of, computing_time, len(queues))
    time_of_device: dict[str, float] = defaultdict(float)
    for (device, _), time in zip(queues, time_of_queue.tolist(), strict=True):
        time_of_device[device] += time
    times_of_devices = np.array([time_of_device[device] for device, _ in queues])
    return (time_of_queue > 0) & (time_of_queue >= COMPUTES * times_of_devices)


def _have_others(pass_of: np.ndarray, update_of: np.ndarray) -> np.ndarray:
    """Return whether several passes exchanged for the update of each operation."""
    updates_of_passes, _ = np.unique(np.stack((update_of, pass_of)), axis=1)
    updates, passes = np.unique(updates_of_passes, return_counts=True)
    return (pass_of != NONE) & np.isin(update_of, updates[passes > 1])


def _mostly(mask: np.ndarray, group_of: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return for each operation whether the mask covers most of its group's time."""
    _, group = np.unique(group_of, return_inverse=True)
    masked = np.bincount(group, lengths * mask)
    return (masked >= MOSTLY * np.bincount(group, lengths))[group]


def _named(case: CaseSpans, pattern: re.Pattern[str]) -> np.ndarray:
    """Return the mask of the spans whose operator's name holds a pattern."""
    names = case.spans.operators
    is_named = np.array([pattern.search(name) is not None for name in names], bool)
    return is_named[case.spans.operator_of]
