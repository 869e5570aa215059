"""What changed between recordings of a program before and after a change to it: by how much a step
takes less or more, what of it that is, and what it does otherwise.

Recordings of one program differ by what else ran, however alike the steps of each are. So a
recording is one value, and several a side say how far apart such values lie. Where there is one, a
load that lasted was common to its steps: it is known no better than they lie apart, nor than the
noise that is assumed between processes.

Ten recordings each of a small loop of PyTorch and of MXNet, while others took 80 % of two cores,
differed by a standard deviation of 20 % and 60 %. Of all 45 pairs of one program 0 and 2 were
called different, and of 200 draws of three against three 8 and 5. Of the pairs it would be 20 and
27, if the steps of a recording were independent.

The two sides are not recorded in turn. While one side's threads waited longer for a core than the
other's, any part of its step may have been that much shorter.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean, median
from typing import Annotated, Literal, NamedTuple

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
from parallel_core.system.machine import WORTH_SAYING
from parallel_core.traces.account import LEAST, PARTS
from parallel_core.traces.figures import (
    RATIO,
    Count,
    Lacking,
    Ratio,
    Seconds,
    SecondsInterval,
    Share,
    figure,
    ratio,
)
from parallel_core.traces.profile.alignment import (
    Unmatched,
    hindrances,
    most_unmatched,
)
from parallel_core.traces.profile.recorded_steps import (
    NORMAL,
    NOT_DONE,
    Operation,
    OperationOfStep,
    RecordedSteps,
    Time,
    averaged,
)
from parallel_core.traces.reasons import Unhidden
from parallel_core.traces.trust import Unanswered

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


class Lost(NamedTuple):
    """How many seconds of a step either side may have lost to other work, and the other not."""

    before: float
    after: float


@dataclass(frozen=True)
class OperationChange:
    """All operations of one name and kind in a step."""

    kind: str
    number_before: Ratio
    number_after: Ratio
    time: Change


@dataclass(frozen=True)
class Exchanges:
    """The exchanges of all recordings of a side."""

    a_step: Ratio
    """How many there are in a median step of a process."""
    exchanges: Count
    early_exchanges: Annotated[Count | None, Lacking("no-backward-pass")]
    """How many of them were launched before their backward pass was over."""
    hidden_share: Annotated[Share | None, Lacking("no-exchange")]


@dataclass(frozen=True)
class Changes:
    """What changed between the recordings of two sides; where they cannot be compared, only why."""

    recordings_before: Count
    recordings_after: Count
    core_wait_share_before: Share
    """During what share of the time a recording's busiest thread waited for a core, on average."""
    core_wait_share_after: Share
    unmatched: Unmatched
    cannot_answer: tuple[Unanswered, ...]
    verdict: Verdict | Literal["not comparable"] = "not comparable"
    ratio: Annotated[Interval | None, RATIO] = None
    """A step's time after over that before."""
    step: Change | None = None
    parts: tuple[Change, ...] = ()
    """Their changes sum to the step's."""
    exchanges_before: Exchanges | None = None
    exchanges_after: Exchanges | None = None
    gone: tuple[Unhidden, ...] = ()
    """The reasons why something was not hidden in each recording before, and in none after."""
    come: tuple[Unhidden, ...] = ()
    operations: tuple[OperationChange, ...] = ()
    """Those whose time surely changed, the largest change first."""

    @figure
    def sentence(self) -> str:
        """By how much a step takes less or more, and what of it; or that this is not known."""
        if self.ratio is None or self.step is None:
            return f"They cannot be compared: {self.cannot_answer[0].lacking}."
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
            factor = max(self.ratio.high, 1 / self.ratio.low)
            bound = percent(factor - 1) if factor < 2 else f"{factor:.0f} ×"
            sentence = f"No difference is shown: less than {bound} either way ({self._recordings})"
            return f"{sentence}, though {certain}." if certain else f"{sentence}."
        differs = f"{percent(abs(longer))} {'shorter' if longer < 0 else 'longer'}"
        between_runs = percent(math.sqrt(self.ratio.high / self.ratio.low) - 1)
        return (
            f"The step is {differs} in this recording; runs of one program differ by "
            f"{between_runs}: record three (--repeat 3)."
        )

    @property
    def waited_in_words(self) -> str:
        """What other work took of one side and not of the other; empty if that is little."""
        before, after = self.core_wait_share_before, self.core_wait_share_after
        if abs(after - before) < WORTH_SAYING:
            return ""
        return (
            f"For {percent(before)} of the time before, and {percent(after)} after, the busiest "
            "thread waited for a core: intervals allow for it."
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
        before, after = self.recordings_before, self.recordings_after
        if before != after:
            return f"{before} recordings before, {after} after"
        return "one recording each" if before == 1 else f"{before} recordings each"


def changes_between(before: Sequence[RecordedSteps], after: Sequence[RecordedSteps]) -> Changes:
    """Compare recordings of a program before and after a change, one or more a side."""
    step_before = averaged([recording.operations for recording in before], median)
    step_after = averaged([recording.operations for recording in after], median)
    unmatched = most_unmatched(step_before, step_after)
    not_comparable = tuple(hindrances(before, after, unmatched))
    of_recordings = chain.from_iterable(recording.cannot_answer for recording in (*before, *after))
    waited_before = fmean(recording.core_wait_share for recording in before)
    waited_after = fmean(recording.core_wait_share for recording in after)
    changes = Changes(
        recordings_before=len(before),
        recordings_after=len(after),
        core_wait_share_before=waited_before,
        core_wait_share_after=waited_after,
        unmatched=unmatched,
        cannot_answer=(*not_comparable, *dict.fromkeys(of_recordings)),
    )
    if not_comparable:
        return changes

    # What both met cancels.
    lost_before = max(waited_before - waited_after, 0.0)
    lost_after = max(waited_after - waited_before, 0.0)
    steps_before, steps_after = _steps("seconds", before), _steps("seconds", after)
    time_ratio = exponential(unpaired_interval(_logarithms(steps_after), _logarithms(steps_before)))
    time_ratio = Interval(
        time_ratio.estimate,
        time_ratio.low * (1 - lost_after),
        time_ratio.high / (1 - lost_before),
    )
    lost = Lost(lost_before * fmean(steps_before.values), lost_after * fmean(steps_after.values))
    verdict = verdict_on(time_ratio, FEWEST_PROCESSES)
    if verdict == "no difference shown" and min(len(before), len(after)) < FEWEST_PROCESSES:
        verdict = "too few runs"
        changes = replace(changes, cannot_answer=(TOO_FEW, *changes.cannot_answer))
    step, *parts = (
        _change(part, _steps(part, before), _steps(part, after), lost)
        for part in ("seconds", *PARTS)
    )
    return replace(
        changes,
        verdict=verdict,
        ratio=time_ratio,
        step=step,
        parts=tuple(parts),
        exchanges_before=_exchanges(before, step_before),
        exchanges_after=_exchanges(after, step_after),
        gone=_reasons_only_in(before, after),
        come=_reasons_only_in(after, before),
        operations=_changed_operations(before, after, lost),
    )


def _steps(part: str, side: Sequence[RecordedSteps]) -> Sample:
    """Return how long a part of a step takes in the recordings of a side."""
    return _sample([recording.time_of(part) for recording in side])


def _sample(times: Sequence[Time]) -> Sample:
    """Return what recordings measured; a single one is known no better than its steps lie apart."""
    values = [time.seconds for time in times]
    deviation = USUAL_DEVIATION * fmean(values)
    if len(times) < FEWEST_PROCESSES:
        deviation = math.hypot(deviation, times[0].deviation)
    return Sample(values, deviation)


def _logarithms(times: Sample) -> Sample:
    """Return the logarithms of times, and the deviation of these."""
    return Sample([math.log(time) for time in times.values], times.deviation / fmean(times.values))


def _change(name: str, before: Sample, after: Sample, lost: Lost, among: int = 1) -> Change:
    """Return the change of a time; of `among` several, the intervals of all are right together."""
    difference = unpaired_interval(after, before, among)
    difference = Interval(
        difference.estimate, difference.low - lost.after, difference.high + lost.before
    )
    return Change(name, fmean(before.values), fmean(after.values), difference)


def _changed_operations(
    before: Sequence[RecordedSteps], after: Sequence[RecordedSteps], lost: Lost
) -> tuple[OperationChange, ...]:
    """Return the operations whose time in a step surely changed."""
    all_operations = set(chain.from_iterable(side.operations for side in (*before, *after)))
    changes = []
    for operation in all_operations:
        rows_before, rows_after = (
            [recording.operations.get(operation, NOT_DONE) for recording in side]
            for side in (before, after)
        )
        change = _change(
            operation.name,
            _sample([row.time for row in rows_before]),
            _sample([row.time for row in rows_after]),
            lost,
            among=len(all_operations),
        )
        if change.is_certain:
            number_before = median(row.number for row in rows_before)
            number_after = median(row.number for row in rows_after)
            changes.append(OperationChange(operation.kind, number_before, number_after, change))
    return tuple(
        sorted(changes, key=lambda row: (-abs(row.time.difference.estimate), row.time.name))
    )


def _exchanges(
    side: Sequence[RecordedSteps], step: Mapping[Operation, OperationOfStep]
) -> Exchanges:
    """Return the exchanges of a side, whose median step does some operations."""
    early = [recording.early_exchanges for recording in side]
    exchanging = fmean(recording.middle_step.exchange_seconds for recording in side)
    hidden = fmean(recording.middle_step.hidden_exchange_seconds for recording in side)
    return Exchanges(
        a_step=sum(done.number for operation, done in step.items() if operation.kind == "exchange"),
        exchanges=sum(recording.exchanges for recording in side),
        early_exchanges=None if None in early else sum(filter(None, early)),
        hidden_share=ratio(hidden, exchanging),
    )


def _reasons_only_in(
    side: Sequence[RecordedSteps], other_side: Sequence[RecordedSteps]
) -> tuple[Unhidden, ...]:
    """Return the reasons that hold in each recording of a side, and in none of the other."""
    only_here = set.intersection(*map(_reasons, side)).difference(*map(_reasons, other_side))
    return tuple(row for row in side[0].unhidden if (row.kind, row.code) in only_here)


def _reasons(recording: RecordedSteps) -> set[tuple[str, str]]:
    """Return the kinds and codes of the reasons that hold in a recording."""
    return {(row.kind, row.code) for row in recording.unhidden}
