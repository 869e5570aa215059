"""A recording of a program as it is compared with others: its steps, and what a median step does;
and the recordings of a side, before a change or after it.

A step that was disturbed says nothing of the program: the steps of a recording are as their middle
half by time is on average, whose parts sum to its time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import NormalDist, fmean, median, stdev
from typing import Annotated, NamedTuple

import numpy as np

from backends.profiling.timeline import KINDS, SpanKind
from parallel_core.measurement.confidence_intervals import student_t
from parallel_core.traces.account import Parts, mean_of
from parallel_core.traces.case_spans import CaseSpans, groups_of
from parallel_core.traces.figures import Count, Lacking, Share, figure
from parallel_core.traces.profile.requirements import Unanswered, cannot_answer, recording_of
from parallel_core.traces.ranks.jobs import of_processes
from parallel_core.traces.ranks.reading import RankTrace, read_ranks
from parallel_core.traces.reasons import Unhidden
from parallel_core.traces.steps.figures import step_windows
from parallel_core.traces.steps.operations import NO_STEP, steps_by_count, steps_by_launch
from parallel_core.traces.trace_files import files_of

NORMAL = NormalDist().inv_cdf(0.975)


class Operation(NamedTuple):
    """What operations share that count as the same."""

    name: str
    kind: SpanKind


class Time(NamedTuple):
    """How long something takes in a step of a recording, and how far its steps lie apart."""

    seconds: float
    deviation: float
    """Their standard deviation, which few steps tell badly: it is larger then."""


class OperationOfStep(NamedTuple):
    """How often an operation runs in a median step, and how long all of these take."""

    number: float
    time: Time


NOT_DONE = OperationOfStep(0.0, Time(0.0, 0.0))


@dataclass(frozen=True)
class RecordedSteps:
    """What is compared of one recording."""

    processes: int
    steps: Sequence[Parts]
    """The parts of every step, on average over the processes; empty if one marks no steps."""
    operations: Mapping[Operation, OperationOfStep]
    """On average over the processes."""
    early_exchanges: int | None = None
    """How many exchanges were launched before the backward pass was over; None if that is not
    known.
    """
    core_wait_share: float = 0.0
    """During what share of the time the busiest thread of a process waited for a core, as far as
    traces say it: all wait for the slowest.
    """
    unhidden: tuple[Unhidden, ...] = ()
    cannot_answer: tuple[Unanswered, ...] = ()

    @cached_property
    def middle_step(self) -> Parts:
        """The mean of the middle half of the steps by time."""
        by_time = sorted(self.steps, key=lambda step: step.seconds)
        cut = len(by_time) // 4
        return mean_of(by_time[cut : len(by_time) - cut])

    def time_of(self, part: str) -> Time:
        """Return how long a part of the middle step takes."""
        of_steps = [getattr(step, part) for step in self.steps]
        return Time(getattr(self.middle_step, part), _deviation(of_steps))


def _deviation(of_steps: Sequence[float]) -> float:
    """Return how far steps lie apart, by Student's t; of one step that is not known, and 0."""
    count = len(of_steps)
    return student_t(count - 1) / NORMAL * stdev(of_steps) if count > 1 else 0.0


@dataclass(frozen=True)
class Side:
    """The recordings of a program before a change to it, or after."""

    name: str
    recordings: Sequence[RecordedSteps] = field(repr=False)

    @figure
    def number_of_recordings(self) -> Count:
        return len(self.recordings)

    @figure
    def core_wait_share(self) -> Share:
        """During what share of the time the busiest thread waited for a core, on average."""
        return fmean(recording.core_wait_share for recording in self.recordings)

    @figure
    def hidden_exchange_share(self) -> Annotated[Share | None, Lacking("no-exchange")]:
        """The share of the exchange that lies alongside computation."""
        steps = [recording.middle_step for recording in self.recordings if recording.steps]
        return mean_of(steps).hidden_exchange_share if steps else None

    @cached_property
    def operations(self) -> Mapping[Operation, OperationOfStep]:
        """The operations of a step in the median of the recordings."""
        return averaged([recording.operations for recording in self.recordings], median)

    @cached_property
    def seconds(self) -> float:
        """How long a step takes."""
        return fmean(recording.middle_step.seconds for recording in self.recordings)


def read_recording(path: Path) -> RecordedSteps:
    """Read a trace, or a folder of those of a job's ranks; raises RequestError if it is none."""
    return recorded_steps(read_ranks(files_of([path]), keep_spans=True).values())


def recorded_steps(traces: Iterable[RankTrace]) -> RecordedSteps:
    """Return what is compared of the traces of a program's processes, which have their spans."""
    ranks = dict(enumerate(traces))
    recording = recording_of(ranks)
    cases = recording.processes
    mark_steps = all(case.steps for case in cases)
    return RecordedSteps(
        processes=len(cases),
        steps=recording.steps if mark_steps else (),
        operations=averaged([operations_of_step(case.spans) for case in cases], fmean),
        early_exchanges=recording.sum("early_exchanges"),
        core_wait_share=max(trace.core_wait_share or 0.0 for trace in ranks.values()),
        unhidden=of_processes(cases),
        cannot_answer=cannot_answer(recording),
    )


def operations_of_step(case: CaseSpans) -> Mapping[Operation, OperationOfStep]:
    """Return the operations of a case's median step; of a case without steps there are none."""
    windows = step_windows(case.annotations)
    if not windows:
        return {}
    step_of = steps_by_count(case, len(windows))
    if step_of is None:
        step_of = steps_by_launch(case, windows)
    in_steps = np.flatnonzero(case.operations & (step_of != NO_STEP))
    spans = case.spans
    # A number for each name and kind.
    names = spans.name_of[in_steps].astype(np.int64) * len(KINDS) + spans.kinds[in_steps]
    operations = {}
    for alike in groups_of(names):
        places = in_steps[alike]
        number_by_step = np.bincount(step_of[places], minlength=len(windows))
        time_by_step = np.bincount(step_of[places], case.lengths[places], len(windows))
        number = float(np.median(number_by_step))
        if number:
            first = spans[int(places[0])]
            times = time_by_step / 1e9
            time = Time(float(np.median(times)), _deviation(times.tolist()))
            operations[Operation(first.name, first.kind)] = OperationOfStep(number, time)
    return operations


def averaged(
    of_several: Sequence[Mapping[Operation, OperationOfStep]],
    average: Callable[[Sequence[float]], float],
) -> Mapping[Operation, OperationOfStep]:
    """Return the operations of a step of several processes or recordings, by some average."""
    step = {}
    for operation in dict.fromkeys(chain.from_iterable(of_several)):
        rows = [operations.get(operation, NOT_DONE) for operations in of_several]
        seconds = average([row.time.seconds for row in rows])
        deviation = average([row.time.deviation for row in rows])
        number = average([row.number for row in rows])
        step[operation] = OperationOfStep(number, Time(seconds, deviation))
    return step
