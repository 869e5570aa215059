"""What changed between recordings of a program before and after a change to it: by how much a step
takes less or more, what of it that is, and what it does otherwise.

Recordings of one program differ by what else ran, however alike the steps of each are. So a
recording is one value, and several a side say how far apart such values lie. Where there is one, a
load that lasted was common to its steps: it is known no better than they lie apart, nor than
recordings of one program do (`ALONE`).

The two sides are not recorded in turn. While one side's threads waited longer for a core than the
other's, any part of its step may have been that much shorter.

What a step does more often is known in each recording, and needs no such interval.

benchmarks/trust/recordings.py counts how often recordings of one program are called different, and
planted changes are named first.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import methodcaller
from statistics import fmean, median
from typing import Annotated, Literal

from backends.profiling.timeline import SpanKind
from parallel_core.measurement.confidence_intervals import Interval, decide, exponential
from parallel_core.measurement.differences import (
    FEWEST_PROCESSES,
    Sample,
    Verdict,
    unpaired_interval,
    verdict_on,
)
from parallel_core.measurement.over_rounds import BETWEEN_PROCESSES, in_percent
from parallel_core.system.formatting import figure as written
from parallel_core.system.formatting import listed, percent, seconds
from parallel_core.traces.account import LEAST, PARTS
from parallel_core.traces.figures import RATIO, Ratio, Seconds, SecondsInterval, figure
from parallel_core.traces.profile.alignment import Unmatched, hindrances, most_unmatched
from parallel_core.traces.profile.recorded_steps import (
    NORMAL,
    NOT_DONE,
    Operation,
    RecordedSteps,
    Side,
    Time,
)
from parallel_core.traces.profile.requirements import EARLY, Unanswered
from parallel_core.traces.reasons import Unhidden

USUAL_DEVIATION = math.log1p(BETWEEN_PROCESSES) / NORMAL / math.sqrt(2)
"""The standard deviation of the logarithm of a step's time in several processes, by which two of
them differ by less than BETWEEN_PROCESSES in 95 %.
"""
ALONE = 0.15
"""The same deviation, by which a single recording is judged: it was 0.13 to 0.16 in 20 recordings
each of four programs, on a virtual machine whose cores change their speed, and nothing in a
recording says at which of them it was made.
"""
IN_WORDS: Mapping[str, str] = dict(
    zip(
        PARTS,
        ("computing", "exchange that nothing hides", "copies that nothing hides", "waiting"),
        strict=True,
    )
)
LAUNCHED_EARLY = Operation(EARLY, "exchange")
"""Counted like an operation, where all recordings know the backward pass."""
LEAST_COUNT = 0.5
"""In numbers a step: a thread that is late in a step or two is no change."""
TOO_FEW = Unanswered(
    "step", "too-few-recordings", "three recordings a side, which say how far apart they lie"
)


@dataclass(frozen=True)
class Change:
    """A part of a step, or all of it, before and after."""

    name: str
    before: Seconds
    after: Seconds
    difference: SecondsInterval
    """How much longer it takes after."""

    @property
    def is_certain(self) -> bool:
        """Whether it surely became longer, or surely shorter."""
        return decide(self.difference, 0.0) is not None

    @property
    def in_words(self) -> str:
        """How much it changed: `6.20 ms less`."""
        change = self.difference.estimate
        return f"{seconds(abs(change))} {'less' if change < 0 else 'more'}"


@dataclass(frozen=True)
class OperationChange:
    """All operations of one name and kind in a step."""

    kind: str
    number_before: Ratio
    number_after: Ratio
    time: Change


@dataclass(frozen=True)
class CountChange:
    """How often a step does something, before and after: load hardly changes it."""

    name: str
    kind: SpanKind
    before: Ratio
    after: Ratio

    @property
    def in_words(self) -> str:
        """What a step does more often, or less: `linear 6 → 7`."""
        return f"{self.name} {written(self.before)} → {written(self.after)}"


@dataclass(frozen=True)
class Changes:
    """What changed between the recordings of two sides; where they cannot be compared, only why."""

    before: Side
    after: Side
    unmatched: Unmatched
    cannot_answer: tuple[Unanswered, ...]
    verdict: Verdict | Literal["not comparable"] = "not comparable"
    ratio: Annotated[Interval | None, RATIO] = None
    """A step's time after over that before."""
    step: Change | None = None
    parts: tuple[Change, ...] = ()
    """Their changes sum to the step's."""
    gone: tuple[Unhidden, ...] = ()
    """The reasons why something was not hidden in each recording before, and in none after."""
    come: tuple[Unhidden, ...] = ()
    counted: tuple[CountChange, ...] = ()
    """What all recordings after do more often in a step than all before, or all less often; first
    what is launched before the backward pass is over, then what takes longest.
    """
    operations: tuple[OperationChange, ...] = ()
    """Those whose time surely changed, the largest change first."""

    @figure
    def sentence(self) -> str:
        """By how much a step takes less or more, and what of it; or that this is not known."""
        if self.ratio is None:
            return f"They cannot be compared: {self.cannot_answer[0].missing}."
        longer, low, high = self.ratio.estimate - 1, self.ratio.low - 1, self.ratio.high - 1
        parts = [f"{part.in_words} {IN_WORDS[part.name]}" for part in self.certain_parts]
        certain = listed(parts) if parts else ""
        though = f", though {certain}" if certain else ""
        if self.verdict in ("faster", "slower") and self.step is not None:
            share, direction = Interval(longer, low, high), "more"
            if self.verdict == "faster":
                share, direction = Interval(-longer, -high, -low), "less"
            change = seconds(abs(self.step.difference.estimate))
            return (
                f"A step takes {in_percent(share)} {direction}: {change}, of which "
                f"{certain or 'no part is certain'} ({self._recordings})."
            )
        if self.verdict == "no difference shown":
            bound = percent(max(high, -low))
            recordings = f"({self._recordings})"
            return f"No difference is shown: less than {bound} either way {recordings}{though}."
        differs = f"{percent(abs(longer))} {'shorter' if longer < 0 else 'longer'}"
        between_runs = percent(math.sqrt(self.ratio.high / self.ratio.low) - 1)
        return (
            f"The step is {differs} in one recording each, and runs of one program differ by up to "
            f"{between_runs}: record three (--repeat 3){though}."
        )

    @property
    def certain_parts(self) -> tuple[Change, ...]:
        """The parts that surely changed and are worth saying, the largest change first."""
        if self.step is None:
            return ()
        least = LEAST * self.step.before
        certain = [
            part
            for part in self.parts
            if part.is_certain and abs(part.difference.estimate) >= least
        ]
        return tuple(sorted(certain, key=lambda part: -abs(part.difference.estimate)))

    def slower_by_more_than(self, limit: float) -> bool | None:
        """Return whether a step is surely slower by more than so many percent; None if that cannot
        be said.
        """
        place = None if self.ratio is None else decide(self.ratio, 1 + limit / 100)
        return None if place is None else place == 1

    @property
    def _recordings(self) -> str:
        """How many recordings there are a side."""
        before, after = self.before.number_of_recordings, self.after.number_of_recordings
        if before != after:
            return f"{before} recordings before, {after} after"
        return "one recording each" if before == 1 else f"{before} recordings each"


def changes_between(
    recordings_before: Sequence[RecordedSteps], recordings_after: Sequence[RecordedSteps]
) -> Changes:
    """Compare recordings of a program before and after a change, one or more a side."""
    before, after = Side("BEFORE", recordings_before), Side("AFTER", recordings_after)
    unmatched = most_unmatched(before, after)
    not_comparable = tuple(hindrances(before, after, unmatched))
    recordings = (*recordings_before, *recordings_after)
    unanswered = chain.from_iterable(recording.cannot_answer for recording in recordings)
    changes = Changes(before, after, unmatched, (*not_comparable, *dict.fromkeys(unanswered)))
    if not_comparable:
        return changes

    seconds_before, seconds_after = _samples(before, after, methodcaller("time_of", "seconds"))
    time_ratio = exponential(unpaired_interval(seconds_after.logarithms, seconds_before.logarithms))
    verdict = verdict_on(time_ratio, FEWEST_PROCESSES)
    fewest = min(before.number_of_recordings, after.number_of_recordings)
    if verdict == "no difference shown" and fewest < FEWEST_PROCESSES:
        verdict = "too few runs"
        changes = replace(changes, cannot_answer=(TOO_FEW, *changes.cannot_answer))
    parts = [
        _change(part, *_samples(before, after, methodcaller("time_of", part))) for part in PARTS
    ]
    return replace(
        changes,
        verdict=verdict,
        ratio=time_ratio,
        step=_change("seconds", seconds_before, seconds_after),
        parts=tuple(parts),
        gone=_reasons_only_in(before, after),
        come=_reasons_only_in(after, before),
        counted=_changed_counts(before, after),
        operations=_changed_operations(before, after),
    )


def _samples(
    before: Side, after: Side, time_of: Callable[[RecordedSteps], Time]
) -> tuple[Sample, Sample]:
    """Return how long something takes in the recordings of both sides."""
    return _sample(before, after, time_of), _sample(after, before, time_of)


def _sample(side: Side, other: Side, time_of: Callable[[RecordedSteps], Time]) -> Sample:
    """Return how long something takes in the recordings of a side.

    A single recording is known no better than its steps lie apart. Of what sides lost to other work
    that cancels which both met.
    """
    times = [time_of(recording) for recording in side.recordings]
    values = [time.seconds for time in times]
    deviation = USUAL_DEVIATION * fmean(values)
    if len(times) < FEWEST_PROCESSES:
        deviation = math.hypot(ALONE * fmean(values), times[0].deviation)
    lost_share = max(side.core_wait_share - other.core_wait_share, 0.0)
    return Sample(values, deviation, lost_share * side.seconds)


def _change(name: str, before: Sample, after: Sample, among: int = 1) -> Change:
    """Return the change of a time; of `among` several, the intervals of all are right together."""
    difference = unpaired_interval(after, before, among)
    return Change(name, fmean(before.values), fmean(after.values), difference)


def _changed_counts(before: Side, after: Side) -> tuple[CountChange, ...]:
    """Return what a step surely does more often on one side than on the other."""
    numbers_before, numbers_after = (
        [_numbers_of_step(recording) for recording in side.recordings] for side in (before, after)
    )
    all_numbers = (*numbers_before, *numbers_after)
    is_early_known = all(LAUNCHED_EARLY in numbers for numbers in all_numbers)
    changes = []
    for operation in dict.fromkeys(chain.from_iterable(all_numbers)):
        if operation == LAUNCHED_EARLY and not is_early_known:
            continue
        counts_before = [numbers.get(operation, 0.0) for numbers in numbers_before]
        counts_after = [numbers.get(operation, 0.0) for numbers in numbers_after]
        apart = max(min(counts_before) - max(counts_after), min(counts_after) - max(counts_before))
        if apart >= LEAST_COUNT:
            medians = median(counts_before), median(counts_after)
            changes.append(CountChange(operation.name, operation.kind, *medians))
    return tuple(changes)


def _numbers_of_step(recording: RecordedSteps) -> Mapping[Operation, float]:
    """Return how often a step does what, in the order in which it is told."""
    launched = {}
    if recording.early_exchanges is not None and recording.steps:
        steps = recording.processes * len(recording.steps)
        launched[LAUNCHED_EARLY] = recording.early_exchanges / steps
    longest_first = sorted(recording.operations.items(), key=lambda done: -done[1].time.seconds)
    return {**launched, **{operation: done.number for operation, done in longest_first}}


def _changed_operations(before: Side, after: Side) -> tuple[OperationChange, ...]:
    """Return the operations whose time in a step surely changed."""
    changes = []
    all_operations = before.operations.keys() | after.operations.keys()
    for operation in all_operations:

        def time_of(recording: RecordedSteps, operation: Operation = operation) -> Time:
            return recording.operations.get(operation, NOT_DONE).time

        samples = _samples(before, after, time_of)
        change = _change(operation.name, *samples, among=len(all_operations))
        if change.is_certain:
            number_before = before.operations.get(operation, NOT_DONE).number
            number_after = after.operations.get(operation, NOT_DONE).number
            changes.append(OperationChange(operation.kind, number_before, number_after, change))
    return tuple(
        sorted(changes, key=lambda row: (-abs(row.time.difference.estimate), row.time.name))
    )


def _reasons_only_in(side: Side, other: Side) -> tuple[Unhidden, ...]:
    """Return the reasons that hold in each recording of a side, and in none of the other."""
    always = set.intersection(*map(_reasons, side.recordings))
    only_here = always.difference(*map(_reasons, other.recordings))
    return tuple(row for row in side.recordings[0].unhidden if (row.kind, row.code) in only_here)


def _reasons(recording: RecordedSteps) -> set[tuple[str, str]]:
    """Return the kinds and codes of the reasons that hold in a recording."""
    return {(row.kind, row.code) for row in recording.unhidden}
