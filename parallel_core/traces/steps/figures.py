"""Figures for each step of a program that marks its steps, and the steps that are unlike the rest.

A step is what torch.profiler calls `ProfilerStep#N`. If a trace has none, it is an annotation of
the program's own that lies in no other one and comes more than once, but for a number at its end;
of several such, the one that lasts longest in all. An operation belongs to the step in which it was
launched, whenever it ran (`operations.py`).

A step is an outlier in a quantity if it lies further from the median than 3.5 times the spread that
the median absolute deviation (MAD) stands for in a normal distribution (Iglewicz and Hoaglin,
1993), which one odd step does not widen. Fewer than three steps have no outliers, and none that is
within 5 % of the median.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Annotated

import numpy as np

from backends.profiling import Timeline, Window, in_seconds
from backends.profiling.timeline import Spans
from parallel_core.system.errors import RequestError
from parallel_core.traces.account import Division, Parts, StepAccount, account_of, divided
from parallel_core.traces.case_spans import (
    PROFILER_STEP,
    CaseSpans,
    cases_of,
    clip,
    total_length,
)
from parallel_core.traces.figures import Count, Lacking, Ratio, Seconds, figure, ratio
from parallel_core.traces.steps.operations import (
    NO_STEP,
    ended_before,
    steps_by_count,
    steps_by_launch,
    times_on_devices,
)
from parallel_core.traces.steps.pauses import Pause, pause_of

BY_THE_FRAMEWORK = re.compile(
    r"(?:nccl|gloo|mpi|ucc|xccl):|Optimizer\.|DistributedDataParallel\.|FullyShardedDataParallel\.|FSDP::|enumerate\(DataLoader"
)
"""PyTorch annotates its own work, too: exchanges, and parts of steps."""
NUMBER = re.compile(r"[\s#_:/.-]*\d+\s*$")
"""What annotations of one kind differ in."""
COVERED = 0.9
"""Steps that a profiler marks cover at least this share of the time in which devices worked, unless
these are behind them.
"""
COMPARED = ("seconds", "busy_seconds", "exchange_seconds")
"""The quantities of a step in which it may be an outlier; the first only if the devices kept to the
steps.
"""
OUTLIER = 3.5
NORMAL = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""
FEWEST = 3
LEAST_DEVIATION = 0.05
"""A share of the median: steps that differ by less are alike, however little the rest differ."""


@dataclass(frozen=True)
class StepFigures:
    """One step as the devices kept to it, and when the host did it, which may run ahead."""

    name: str
    host_seconds: Seconds
    """How long the host took for it."""
    operations: Count
    """How many it launched."""
    parts: Parts
    """What its time consists of, from when the devices had ended the steps before."""

    @figure
    def seconds(self) -> Seconds:
        """How long it took."""
        return self.parts.seconds

    @figure
    def busy_seconds(self) -> Seconds:
        """How long anything ran on a device."""
        return self.parts.seconds - self.parts.idle_seconds

    @figure
    def exchange_seconds(self) -> Seconds:
        """How long a device exchanged, whatever ran meanwhile; the mean of those that do."""
        return self.parts.exchange_seconds


@dataclass(frozen=True)
class Outlier:
    """A step that is unlike the rest in a quantity, and the ratio of that to the median."""

    step: str
    quantity: str
    seconds: Seconds
    ratio: Annotated[Ratio | None, Lacking("no-time")]
    """Null if the median is 0."""


@dataclass(frozen=True)
class StepsFigures:
    """All steps of a case in the order of time."""

    steps: tuple[StepFigures, ...]
    outliers: tuple[Outlier, ...]
    account: Annotated[StepAccount | None, Lacking("no-time")]
    """The median step; where the devices were too far behind to recognise steps, the mean of
    them.
    """
    pause: Annotated[Pause | None, Lacking("no-pause")]
    """Time in which nothing ran and that the median step hides; null if it hides little."""
    accounted: tuple[Parts, ...] = field(repr=False)
    """The steps that the account is of."""


def steps(case: CaseSpans, division: Division) -> StepsFigures | None:
    """Compute the figures of every step of a case, whose time a division divides; None if it has no
    steps.
    """
    windows = step_windows(case.annotations)
    if not windows:
        return None
    rows = _step_figures(case, division, windows, steps_by_launch(case, windows))
    marks_all = windows[0].name.startswith(PROFILER_STEP)
    are_behind = marks_all and _are_behind(case, windows, rows)
    if are_behind:
        step_of = steps_by_count(case, len(windows))
        if step_of is not None:
            rows = _step_figures(case, division, windows, step_of)
            are_behind = _are_behind(case, windows, rows)

    (whole,) = division.parts([(case.start, case.end)])
    accounted = tuple(step.parts for step in rows if step.seconds > 0)
    compared: Sequence[str] = COMPARED
    if are_behind:
        accounted = (divided(whole, len(rows)),)
        compared = COMPARED[1:]
    outliers = chain.from_iterable(_outliers(rows, quantity) for quantity in compared)
    account = account_of(accounted, (whole,)) if accounted else None
    pause = None
    if account is not None and not are_behind:
        pause = pause_of(case, windows, account.shares["idle_seconds"].estimate)
    return StepsFigures(rows, tuple(outliers), account, pause, accounted)


def _are_behind(case: CaseSpans, windows: Sequence[Window], rows: Sequence[StepFigures]) -> bool:
    """Return whether much of what devices did since the first step belongs to none."""
    first_start = windows[0].start
    (earlier_ended,) = ended_before(case, np.array([first_start]))
    begun = max(first_start, earlier_ended)
    working = total_length(clip(case.covered(case.operations), begun, case.end))
    in_steps = sum(step.parts.seconds - step.parts.idle_seconds for step in rows)
    return in_steps < COVERED * in_seconds(working)


def numbered_step(timeline: Timeline, number: int) -> Window:
    """Return when the host did its step of this number.

    Raises RequestError if there is no such step, or none at all.
    """
    step_of_number = {}
    marked_steps = [] if timeline.cases else step_windows(timeline.annotations)
    for step in marked_steps:
        match = re.search(r"(\d+)\s*$", step.name)
        if match is not None:
            step_of_number[int(match[1])] = step
    if not step_of_number:
        raise RequestError("it marks no steps with numbers")
    if number not in step_of_number:
        first, last = min(step_of_number), max(step_of_number)
        raise RequestError(f"it has no step {number}, but {first} to {last}")
    return step_of_number[number]


def only_step(timeline: Timeline, step: Window) -> CaseSpans:
    """Return what a program did in a step, and what it launched in it, whenever that ran.

    It begins as its account does: when devices had done what was launched before the step.
    """
    spans = timeline.columns
    earlier = ~spans.of_kind("host") & (spans.since < step.start)
    begun = int(spans.ends[earlier].max(initial=step.start))
    in_step = [
        mark for mark in timeline.annotations if step.start <= mark.start and mark.end <= step.end
    ]
    cut = replace(
        timeline,
        spans=spans.select(launched_in(spans, step)),
        begin=step.start,
        annotations=tuple(in_step),
    )
    (case,) = cases_of(cut)
    return replace(case, start=begun, end=max(case.end, begun), begun=begun)


def launched_in(spans: Spans, step: Window) -> np.ndarray:
    """Return the mask of the spans that a step launched."""
    return (spans.since >= step.start) & (spans.since < step.end)


def first_steps(timeline: Timeline, count: int) -> Timeline:
    """Return what a program did before its first `count` steps had ended, of those that a profiler
    marks; or all.
    """
    profiled = [mark for mark in timeline.annotations if mark.name.startswith(PROFILER_STEP)]
    if not 0 < count < len(profiled):
        return timeline
    spans, end = timeline.columns, profiled[count - 1].end
    return replace(
        timeline,
        spans=spans.select(spans.since < end),
        annotations=tuple(mark for mark in timeline.annotations if mark.start < end),
    )


def step_windows(marked: Sequence[Window]) -> list[Window]:
    """Return those of a program's annotations that are its steps, in the order of time."""
    profiled = [mark for mark in marked if mark.name.startswith(PROFILER_STEP)]
    if profiled:
        return sorted(profiled, key=lambda mark: mark.start)
    by_the_program = [mark for mark in marked if not BY_THE_FRAMEWORK.match(mark.name)]
    outermost: list[Window] = []
    for mark in sorted(by_the_program, key=lambda mark: (mark.start, -mark.end)):
        if not outermost or mark.start >= outermost[-1].end:
            outermost.append(mark)
    repeated = [marks for marks in _by_name(outermost).values() if len(marks) > 1]
    return max(repeated, key=lambda marks: sum(mark.end - mark.start for mark in marks), default=[])


def _by_name(marks: Sequence[Window]) -> dict[str, list[Window]]:
    """Sort annotations by their names, but for a number at the end."""
    marks_of_name: dict[str, list[Window]] = defaultdict(list)
    for mark in marks:
        name = NUMBER.sub("", mark.name) or mark.name
        marks_of_name[name].append(mark)
    return marks_of_name


def _step_figures(
    case: CaseSpans, division: Division, windows: Sequence[Window], step_of: np.ndarray
) -> tuple[StepFigures, ...]:
    """Compute the figures of steps; `step_of` has the number of each span's step, or NO_STEP."""
    in_steps = np.flatnonzero(case.operations & (step_of != NO_STEP))
    in_steps = in_steps[np.argsort(step_of[in_steps], kind="stable")]
    bounds = np.searchsorted(step_of[in_steps], np.arange(1, len(windows)))
    places_of_steps = np.split(in_steps, bounds)
    intervals_of_steps = [case.intervals(places) for places in places_of_steps]
    times = times_on_devices(case, windows, intervals_of_steps)
    parts_of_steps = division.parts(times)
    rows = []
    for window, places, parts in zip(windows, places_of_steps, parts_of_steps, strict=True):
        rows.append(
            StepFigures(
                name=window.name,
                host_seconds=in_seconds(window.end - window.start),
                operations=len(places),
                parts=parts,
            )
        )
    return tuple(rows)


def _outliers(rows: Sequence[StepFigures], quantity: str) -> Iterator[Outlier]:
    """Yield the steps that are unlike the others in a quantity."""
    if len(rows) < FEWEST:
        return
    values = [getattr(step, quantity) for step in rows]
    median = float(np.median(values))
    deviations = [abs(value - median) for value in values]
    mad = float(np.median(deviations))
    least_deviation = max(OUTLIER * NORMAL * mad, LEAST_DEVIATION * median)
    for step, value, deviation in zip(rows, values, deviations, strict=True):
        if deviation > least_deviation:
            yield Outlier(step.name, quantity, value, ratio(value, median))
