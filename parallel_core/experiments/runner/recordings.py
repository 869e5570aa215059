"""Recorded repetitions of cases, and whether they are complete and behave as those that are timed.

An engine may work otherwise while it is watched, a profiler may lose events, and a wait may return
too early. What is counted then says nothing, so each of these is looked for before.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from backends import Backend
from backends.profiling import Timeline, case_text
from backends.profiling.marks import Mark
from parallel_core.experiments.runner.tallies import Repetition, repetition_of
from parallel_core.experiments.runner.witnesses import Witness
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Note, Timing
from parallel_core.measurement.timing import reading_seconds, without_garbage_collection
from parallel_core.system.formatting import percent
from parallel_core.system.machine import sample_machine, watched
from parallel_core.system.running_time import others_seconds_since, thread_times

Take = Callable[[], Timing]
"""A function that repeats a case once; it returns the seconds until control returned, and until all
was done.
"""
LAUNCHING = ("launch ", "copy_to", "allreduce")
"""The beginnings of the names of calls that launch at least one operation."""
QUEUED, NOT_QUEUED = 0.2, 0.8
"""The shares of the time until all was done up to which, and from which on, control returned early
and late.
"""
MARKING_SECONDS = 5e-4
"""The seconds by which marks lengthen a launch, at most, on a busy machine."""
FASTER = 0.65
"""The share of the time of unrecorded repetitions below which recorded ones are faster; a profiler
makes none faster.
"""
READING_LONGER = 10
"""How many times as long reading takes if `waitall` has not waited, at the least."""
MOST_STOLEN, MOST_TAKEN = 0.05, 0.85
"""The shares of the cores' time that a hypervisor, and other programs, may take while threads are
watched: a thread that is woken for a lock, and has no core, would seem to work.
"""


@dataclass(frozen=True)
class Recorded:
    """The recorded repetitions of a case, and an unrecorded one of the same work."""

    repetitions: tuple[Repetition, ...]
    unrecorded: Timing
    is_disturbed: bool = False
    """Whether other programs took enough of the cores meanwhile to be reported."""

    @property
    def is_faster(self) -> bool:
        """Whether all recorded repetitions were much faster than the unrecorded one."""
        _, unrecorded_done = self.unrecorded
        return all(done < FASTER * unrecorded_done for _, done in self.timings)

    @property
    def timings(self) -> list[Timing]:
        """The timings of the recorded repetitions."""
        return [repetition.timing for repetition in self.repetitions]


def record(
    takes: Mapping[str, Take], witness: Witness, backend: Backend, repetitions: int
) -> dict[str, Recorded]:
    """Repeat each case before a witness, and return its `repetitions` by its name."""
    # This is the verb before it is marked: waits between repetitions are not the program's.
    wait_unmarked = backend.waitall
    unrecorded = {name: take() for name, take in takes.items()}
    timings: dict[str, list[Timing]] = {name: [] for name in takes}
    worked: dict[str, list[float | None]] = {name: [] for name in takes}

    def repeat(mark: Mark) -> None:
        for name, take in takes.items():
            tell(f"counting: {name}", 0.9)
            # The first run is not recorded: a thread's first events cost a profiler more.
            take()
            for _ in range(repetitions):
                wait_unmarked()
                before = thread_times()
                with mark(case_text(name)):
                    timings[name].append(take())
                    wait_unmarked()
                worked[name].append(others_seconds_since(before))

    machine_before = sample_machine()
    with without_garbage_collection():
        timeline = witness.watch(repeat)
    watch = watched(machine_before, sample_machine())
    too_busy = (watch.stolen_share or 0.0) > MOST_STOLEN or (watch.others_share or 0.0) > MOST_TAKEN
    devices = len(backend.devices)
    recorded = {}
    for name in takes:
        kept = []
        spans = repetitions_of(timeline, name, devices)
        for repetition, timing, seconds in zip(spans, timings[name], worked[name], strict=True):
            known_seconds = None if too_busy else seconds
            kept.append(replace(repetition, timing=timing, threads_seconds=known_seconds))
        recorded[name] = Recorded(tuple(kept), unrecorded[name], watch.is_disturbed)
    return recorded


def repetitions_of(timeline: Timeline, case: str, devices: int) -> Iterator[Repetition]:
    """Yield the repetitions of a case in a timeline."""
    for name, start, end in timeline.cases:
        if name == case:
            spans = [span for span in timeline.columns if start <= span.start <= end]
            yield repetition_of(spans, devices)


def missing(repetition: Repetition) -> str:
    """Say what a recording lacks of a repetition; empty if it has all that was launched.

    A launch may make several operations, but none makes less than one.
    """
    # Without queues a framework's own operators stand among the calls of the program.
    launches = sum(call.name.startswith(LAUNCHING) for call in repetition.launches)
    operations = len(repetition.operations)
    if operations < launches:
        return f"{operations} operations were recorded of {launches} that were launched"
    copies = len(repetition.of_kind("copy"))
    copies_launched = sum(call.name.startswith("copy_to") for call in repetition.launches)
    if copies < copies_launched:
        return f"{copies} copies were recorded of {copies_launched} that were launched"
    return ""


def early_wait(
    repetition: Repetition, ends_are_exact: bool, awaits_one: bool = True
) -> Note | None:
    """Say which wait returned before the work was done; None if none did.

        launches  |-| |-|
        waitall          |--|
        operations  |------||-----|    the second one was launched before the wait, and ends after

    This is order and not time, so no load brings it about. If a profiler may write the end of an
    operation after the engine knows of it (`ends_are_exact` is false), only what begins after the
    wait is late. A wait for one result has returned early if nothing was done by then; that is
    asked only if the result is known to be of these operations (`awaits_one`).
    """
    linked = [span for span in repetition.operations if span.launched is not None]
    launched_at = np.array([span.launched for span in linked], np.int64)
    done_at = np.array([span.end if ends_are_exact else span.start for span in linked], np.int64)
    # There may be thousands of waits, and of operations.
    for wait in repetition.waits:
        was_launched = launched_at < wait.start
        is_late = was_launched & (done_at > wait.end)
        launched, late = int(was_launched.sum()), int(is_late.sum())
        evidence = f"{late} of {launched} operations were not"
        if wait.name.startswith("waitall") and late:
            return returned_early("waitall", evidence)
        if awaits_one and launched and late == launched:
            return returned_early("wait", evidence)
    return None


def returned_early(wait: str, evidence: str) -> Note:
    """Say which wait returned before the work was done, by some evidence."""
    return Note("early-wait", f"{wait} returned before the work was done: {evidence}")


def behaves_otherwise(recorded: Recorded, timed_shares: list[float], queues: bool) -> Note | None:
    """Say how recorded repetitions of a case behave otherwise than those that are not recorded.

    None if they do not, or if that is open. `timed_shares` are the shares of the time after which
    control returned in the timed rounds, and `queues` says that a queue was counted in the recorded
    repetitions. A profiler makes no queue, but its marks make launching longer: so long, if
    operations are short, that nothing is left to do when control returns.
    """
    shares = [_share_until_return(timing) for timing in recorded.timings]
    unrecorded = [*timed_shares, _share_until_return(recorded.unrecorded)]
    is_queued_only_here = queues and max(shares) < QUEUED and min(unrecorded) > NOT_QUEUED
    is_queued_only_there = (
        not queues
        and min(shares) > NOT_QUEUED
        and max(unrecorded) < QUEUED
        and _launching_takes_longer(recorded)
    )
    if not is_queued_only_here and not is_queued_only_there:
        return None
    here, there = percent(max(shares)), percent(min(unrecorded))
    return recorded_otherwise(
        f"control returned after {here} of its time, and after {there} of theirs"
    )


def recorded_otherwise(evidence: str) -> Note:
    """Say that recorded repetitions behave otherwise than the timed ones, by some evidence."""
    return Note(
        "recorded-otherwise",
        "the recorded repetition behaves otherwise than the timed ones, so neither can be "
        f"trusted: {evidence}",
    )


def _launching_takes_longer(recorded: Recorded) -> bool:
    """Return whether launching takes longer in all recorded repetitions than marks explain."""
    unrecorded_return, _ = recorded.unrecorded
    for repetition in recorded.repetitions:
        returned, _ = repetition.timing
        if returned - unrecorded_return < MARKING_SECONDS * len(repetition.launches):
            return False
    return True


def _share_until_return(timing: Timing) -> float:
    """Return the share of the time after which control returned."""
    returned, done = timing
    return returned / done if done else 0.0


def reads_late(backend: Backend, launches: Mapping[str, Callable[[], object]]) -> Note | None:
    """Say of which case `waitall` returned before the work was done, where nothing is recorded.

    None if it did of none: in three of three repetitions, reading the results takes many times as
    long after `waitall` alone as after a wait for each of them.
    """
    for name, launch in launches.items():
        reading = [
            (reading_seconds(backend, launch, False), reading_seconds(backend, launch, True))
            for _ in range(3)
        ]
        if all(unwaited > READING_LONGER * waited for unwaited, waited in reading):
            return returned_early("waitall", f"reading took too long in “{name}”")
    return None
