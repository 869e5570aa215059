"""What a trace shows of exchanges and copies that ran beside no computation: asked for by reasons.

Of each one the longest stretch counts in which nothing was computed. What comes next is the first
computation that began in it or behind it. If that was launched already, its queue has waited; if
not, the host has, in a call that the trace shows, or it did something else. A trace of a CPU has no
such calls: there the host has waited if it goes on soon after the end.

Drawings below have a column for each moment: `E` an exchange, `C` computation, `^` a launch.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from backends.profiling.collectives import ON_CPU
from parallel_core.traces.case_spans import (
    EARLIEST,
    LATEST,
    NONE,
    CaseSpans,
    groups_of,
    places_by_key,
)
from parallel_core.traces.evidence.communication import Communication, stretches_of
from parallel_core.traces.evidence.passes import (
    KEEPING,
    Passes,
    backward_passes,
    passes_of_exchanges,
)
from parallel_core.traces.evidence.slowing import first_quarter, slowed
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


class Computation:
    """The computation on one device, in the order of its start."""

    def __init__(self, case: CaseSpans, places: np.ndarray) -> None:
        """`places` are those of the operations in the case's spans."""
        self.places, self.starts = places, case.spans.starts[places]
        by_launch = places[np.argsort(case.since[places], kind="stable")]
        # Of the first n in the order of launches: the time that they take together, when the last
        # of them begins, and when all have ended.
        self.launches = case.since[by_launch]
        self.time_of_first = np.append(0, np.cumsum(case.lengths[by_launch]))
        self.start_of_first = _latest_so_far(case.spans.starts[by_launch])
        self.end_of_first = _latest_so_far(case.spans.ends[by_launch])

    def following(self, times: np.ndarray) -> np.ndarray:
        """Return what was computed next from each time on, or NONE."""
        return np.append(self.places, NONE)[np.searchsorted(self.starts, times)]

    def time_between(self, after: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Return how long the computation takes that was launched between two launches each."""
        until = np.searchsorted(self.launches, after, side="right")
        return (
            self.time_of_first[np.searchsorted(self.launches, before)] - self.time_of_first[until]
        )

    def ended(self, launches: np.ndarray) -> np.ndarray:
        """Return when all had ended that was launched before each launch, or EARLIEST."""
        return self.end_of_first[np.searchsorted(self.launches, launches)]

    def last_start(self, launches: np.ndarray) -> np.ndarray:
        """Return when the last began that was launched up to each launch, or EARLIEST."""
        return self.start_of_first[np.searchsorted(self.launches, launches, side="right")]


def _latest_so_far(times: np.ndarray) -> np.ndarray:
    """Return the latest of the first n times, from n = 0 on."""
    return np.append(EARLIEST, np.maximum.accumulate(times))


class Evidence:
    """Operations that ran beside no computation for some time; an entry for each in all arrays."""

    def __init__(self, case: CaseSpans, groups: Sequence[Communication]) -> None:
        """`groups` are what `communication` returns: all exchanges and copies, hidden or not."""
        self.case, self.groups = case, groups
        self.all_stretches = stretches_of(case, groups)
        self.stretches = self.all_stretches.select(self.all_stretches.exposed > 0)
        self.places = self.stretches.places
        """In the case's spans."""
        self.exposed = self.stretches.exposed
        """How long each ran beside no computation, in nanoseconds."""
        self.alone_from = self.stretches.alone_from
        self.launched = case.since[self.places]
        self.ends = case.spans.ends[self.places]
        self.lengths = case.lengths[self.places]

    @cached_property
    def on_cpu(self) -> np.ndarray:
        """Whether it is an exchange of CPUs, whose threads are the devices and the host."""
        queues = self.case.spans.queues
        is_cpu = np.array([device.startswith("cpu") for device, _ in queues], bool)
        is_exchange = self.case.of_kind("exchange")[self.places]
        return is_exchange & is_cpu[self.case.spans.queue_of[self.places]]

    @cached_property
    def is_copy(self) -> np.ndarray:
        """Whether it is a copy."""
        return self.case.of_kind("copy")[self.places]

    @cached_property
    def is_pageable(self) -> np.ndarray:
        """Whether the host's memory is not page-locked."""
        return self.case.named(PAGEABLE)[self.places]

    @cached_property
    def in_flight_with_others(self) -> np.ndarray:
        """Whether another exchange was in flight meanwhile, so that no call waited for one alone:
        `^E` above `^ E`, but not `^E` before `^E`.
        """
        exchanges = self.case.of_kind("exchange")
        launches = np.sort(self.case.since[exchanges])
        ends = np.sort(self.case.spans.ends[exchanges])
        launched_until_end = np.searchsorted(launches, self.ends)
        ended_until_launch = np.searchsorted(ends, self.launched, side="right")
        return launched_until_end - ended_until_launch > 1

    @cached_property
    def in_buckets(self) -> np.ndarray:
        """Whether DistributedDataParallel gathers the program's gradients in buckets."""
        has_buckets = any(mark.name.startswith(IN_BUCKETS) for mark in self.case.annotations)
        return np.full(len(self.places), has_buckets)

    @cached_property
    def on_computing_queue(self) -> np.ndarray:
        """Whether a large share of its device's computation runs on its queue."""
        case, queues = self.case, self.case.spans.queues
        computing_time = case.lengths * case.of_kind("compute")
        time_of_queue = np.bincount(case.spans.queue_of, computing_time, len(queues))
        time_of_device: dict[str, float] = defaultdict(float)
        for (device, _), time in zip(queues, time_of_queue.tolist(), strict=True):
            time_of_device[device] += time
        least = COMPUTES * np.array([time_of_device[device] for device, _ in queues])
        computes = (time_of_queue > 0) & (time_of_queue >= least)
        return computes[case.spans.queue_of[self.places]]

    @cached_property
    def passes(self) -> Passes:
        """The backward passes of the program."""
        return backward_passes(self.case)

    @cached_property
    def pass_of(self) -> np.ndarray:
        """The number of the pass whose gradients it exchanges, or NONE."""
        return passes_of_exchanges(self.case, self.passes, self.places)

    @cached_property
    def in_every_micro_batch(self) -> np.ndarray:
        """Whether it exchanges gradients, and another pass for the same update does, too:
        `CE CE update`.
        """
        update = self._of_pass(self.passes.updates, NONE)
        # Of each pass that exchanges, its update once.
        updates_of_passes, _ = np.unique(np.stack((update, self.pass_of)), axis=1)
        updates, number_of_passes = np.unique(updates_of_passes, return_counts=True)
        of_several_passes = updates[number_of_passes > 1]
        return (self.pass_of != NONE) & np.isin(update, of_several_passes)

    def _of_pass(self, value_of_pass: np.ndarray, otherwise: int | bool) -> np.ndarray:
        """Return for each exchange a value of its backward pass; without a pass, `otherwise`."""
        # NONE is −1, so that the value at the end is taken.
        return np.append(value_of_pass, otherwise)[self.pass_of]

    @cached_property
    def after_pass(self) -> np.ndarray:
        """Whether it exchanges gradients and was launched when their pass was over: `CCC^E`."""
        last_start = self._of_pass(self.passes.last_starts, LATEST)
        return (self.pass_of != NONE) & (self.launched > last_start)

    @cached_property
    def most_after_pass(self) -> np.ndarray:
        """Whether that holds for most of what its pass exchanged, though most was ready earlier."""
        is_ready_last = self._of_pass(self.passes.are_ready_last, False)
        _, group = np.unique(self.pass_of, return_inverse=True)
        late = np.bincount(group, self.lengths * self.after_pass)
        most_are_late = late >= MOSTLY * np.bincount(group, self.lengths)
        return self.after_pass & ~is_ready_last & most_are_late[group]

    @cached_property
    def pass_is_over(self) -> np.ndarray:
        """Whether it exchanges gradients, and nothing of their pass was left to compute: `C^CEE`,
        of whose pass both computations are.
        """
        pass_end = self._of_pass(self.passes.ends, EARLIEST)
        last_of_pass = self._beside(
            lambda work, numbers: work.last_start(pass_end[numbers]), EARLIEST
        )
        return (self.pass_of != NONE) & (self.alone_from >= last_of_pass)

    @cached_property
    def after_wait(self) -> np.ndarray:
        """Whether the host launched it behind a wait, when its device had nothing left to do:
        `CC^E` where a call waits until `C` ends.
        """
        drained = self._beside(lambda work, numbers: work.ended(self.launched[numbers]), EARLIEST)
        return launched_behind_a_wait(self.waits, self.launched, drained)

    @cached_property
    def waits(self) -> HostWaits | None:
        """The host's calls, which a trace of a CPU does not have."""
        return host_waits(self.case)

    @cached_property
    def is_slowed(self) -> np.ndarray:
        """Whether it ran beside computation, and takes longer there than in steps without it."""
        stretches = self.all_stretches
        is_slowed = slowed(self.case, self.groups, stretches.places, stretches.exposed)
        return is_slowed[stretches.exposed > 0]

    @cached_property
    def following(self) -> np.ndarray:
        """The place of what was computed next, or NONE: the last `C` of `C E C`."""
        return self._beside(lambda work, numbers: work.following(self.alone_from[numbers]), NONE)

    @cached_property
    def next_launch(self) -> np.ndarray:
        """When that was launched, or LATEST."""
        return np.where(self.is_last, LATEST, self.case.since[self.following])

    @cached_property
    def is_last(self) -> np.ndarray:
        """Whether nothing was computed behind it."""
        return self.following == NONE

    @cached_property
    def had_something(self) -> np.ndarray:
        """Whether enough was computed that was launched after it to hide some of it: `^C` after the
        `^` of `E`, and before that of the next `C`.
        """
        given = self._beside(
            lambda work, numbers: work.time_between(
                self.launched[numbers], self.next_launch[numbers]
            ),
            0,
        )
        return given >= SOMETHING * self.lengths

    @cached_property
    def waiting_call(self) -> np.ndarray:
        """The place of the host's call that waited for its end, or NONE."""
        if self.waits is None:
            return np.full(len(self.places), NONE)
        return call_that_waited(self.waits, self.launched, self.ends)

    @cached_property
    def queue_waited(self) -> np.ndarray:
        """Whether a queue waited for its end, or on a CPU the thread that computes: `^E` above
        `^ C`.
        """
        is_after = ~self.is_last & (self.case.spans.starts[self.following] >= self.ends)
        was_launched = self.case.linked[self.following] & (self.next_launch <= self.alone_from)
        waited = is_after & was_launched
        if self.waits is not None:
            return waited
        goes_on = is_after & (self.next_launch >= self.ends)
        goes_on_at = np.minimum(self.next_launch, _next_marks(self.case, self.ends))[goes_on]
        pauses = goes_on_at - _ends_of_groups(self.case, self.ends[goes_on], goes_on_at)
        longest = (self.stretches.alone_until - self.alone_from)[goes_on]
        names = self.case.spans.name_of[self.places[goes_on]]
        waited[goes_on] |= _thread_waited(names, longest, pauses)
        return waited

    @cached_property
    def waited_for(self) -> np.ndarray:
        """Whether a queue or the host waited for its end."""
        return self.queue_waited | (self.waiting_call != NONE)

    @cached_property
    def host_is_behind(self) -> np.ndarray:
        """Whether nobody waited, and what was computed next was not launched yet: `EE^C`."""
        return ~self.is_last & ~self.waited_for & (self.next_launch > self.alone_from)

    @cached_property
    def waiting(self) -> tuple[str, ...]:
        """What waited for each, by name; empty where nothing is known to."""
        computation = np.where(self.queue_waited, self.following, NONE)
        return names_of_waiting(self.case, computation, self.waiting_call)

    def _beside(
        self, ask: Callable[[Computation, np.ndarray], np.ndarray], without: int
    ) -> np.ndarray:
        """Return what is asked of the computation on each operation's device, by the operations'
        numbers; `without` where nothing is computed.
        """
        values = np.full(len(self.places), without)
        for numbers, work in self._devices:
            if len(work.places):
                values[numbers] = ask(work, numbers)
        return values

    @cached_property
    def _devices(self) -> list[tuple[np.ndarray, Computation]]:
        """The numbers of the operations on each device, and the computation there that may hide
        them; of a program that computes on a GPU, gloo exchanges on the CPU, beside all of it.
        """
        case, device_of = self.case, self.case.device_of
        is_work = case.operations & ~case.of_kind("exchange", "copy") & (case.lengths > 0)
        # To keep a gradient hides nothing.
        work = np.flatnonzero(is_work & ~case.named(f"^{KEEPING}"))
        work_of_device = places_by_key(device_of, work)
        numbers_of_device = places_by_key(device_of[self.places], np.arange(len(self.places)))
        return [
            (numbers, Computation(case, work_of_device.get(device, work)))
            for device, numbers in numbers_of_device.items()
        ]


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
        if first_quarter(pauses[same_kind]) <= SOON:
            longest_pause = np.maximum(stretches[same_kind] * SHORTLY, SOON)
            waited[same_kind] = pauses[same_kind] <= longest_pause
    return waited
