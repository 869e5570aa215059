"""What changed between recordings of a program before and after a change to it: by how much a step
takes less or more, what of it that is, and what it does otherwise.

Recordings of one program differ by what else ran, however alike the steps of each are. So a
recording is one value, and several a side say how far apart such values lie. Where there is one, a
load that lasted was common to its steps: it is known no better than they lie apart, nor than the
noise that is assumed between processes. Five recordings of a loop of PyTorch that hardly waited for
a core had a standard deviation of 3.5 %, as is assumed.

The two sides are not recorded in turn. While one side's threads waited longer for a core than the
other's, any part of its step may have been that much shorter.

Of twelve recordings each of small loops of PyTorch and of MXNet, half of them beside two other
processes, where a step took up to four and eight times as long, no three were called different from
three others in 200 draws each, also if one side was the quiet one; and 0 and 3 of 66 pairs were.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import methodcaller
from statistics import fmean
from typing import Annotated, Literal

from parallel_core.measurement.confidence_intervals import Interval, decide, exponential
from parallel_core.measurement.differences import (
    FEWEST_PROCESSES,
    Sample,
    Verdict,
    unpaired_interval,
    verdict_on,
)
from parallel_core.measurement.over_rounds import BETWEEN_PROCESSES, in_percent
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
from parallel_core.traces.profile.requirements import Unanswered
from parallel_core.traces.reasons import Unhidden

USUAL_DEVIATION = math.log1p(BETWEEN_PROCESSES) / NORMAL / math.sqrt(2)
"""The standard deviation of the logarithm of a step's time in several processes, by which two of
them differ by less than BETWEEN_PROCESSES in 95 %.
"""
IN_WORDS: Mapping[str, str] = dict(
    zip(
        PARTS,
        ("computing", "exchange that nothing hides", "copies that nothing hides", "waiting"),
        strict=True,
    )
)
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
    operations: tuple[OperationChange, ...] = ()
    """Those whose time surely changed, the largest change first."""

    @figure
    def sentence(self) -> str:
        """By how much a step takes less or more, and what of it; or that this is not known."""
        if self.ratio is None or self.step is None:
            return f"They cannot be compared: {self.cannot_answer[0].missing}."
        longer, low, high = self.ratio.estimate - 1, self.ratio.low - 1, self.ratio.high - 1
        certain = self._certain_parts(self.step)
        if self.verdict in ("faster", "slower"):
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
            sentence = f"No difference is shown: less than {bound} either way ({self._recordings})"
            return f"{sentence}, though {certain}." if certain else f"{sentence}."
        differs = f"{percent(abs(longer))} {'shorter' if longer < 0 else 'longer'}"
        between_runs = percent(math.sqrt(self.ratio.high / self.ratio.low) - 1)
        return (
            f"One recording each decides nothing: the step is {differs}, and runs of one program "
            f"differ by up to {between_runs}. Record three (--repeat 3)."
        )

    def slower_by_more_than(self, limit: float) -> bool | None:
        """Return whether a step is surely slower by more than so many percent; None if that cannot
        be said.
        """
        place = None if self.ratio is None else decide(self.ratio, 1 + limit / 100)
        return None if place is None else place == 1

    def _certain_parts(self, step: Change) -> str:
        """List the parts of a step that surely changed, the largest change first."""
        by_size = sorted(self.parts, key=lambda part: -abs(part.difference.estimate))
        certain = []
        for part in by_size:
            is_worth_saying = abs(part.difference.estimate) >= LEAST * step.before
            if part.is_certain and is_worth_saying:
                certain.append(f"{part.in_words} {IN_WORDS[part.name]}")
        return listed(certain) if certain else ""

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
        deviation = math.hypot(deviation, times[0].deviation)
    lost_share = max(side.core_wait_share - other.core_wait_share, 0.0)
    return Sample(values, deviation, lost_share * side.seconds)


def _change(name: str, before: Sample, after: Sample, among: int = 1) -> Change:
    """Return the change of a time; of `among` several, the intervals of all are right together."""
    difference = unpaired_interval(after, before, among)
    return Change(name, fmean(before.values), fmean(after.values), difference)


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
