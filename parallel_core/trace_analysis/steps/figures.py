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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from backends.profiling import Timeline, Window, in_seconds
from backends.profiling.timeline import KINDS, Spans
from parallel_core.system.errors import RequestError
from parallel_core.trace_analysis.case_spans import (
    PROFILER_STEP,
    CaseSpans,
    clip,
    total_length,
    union,
)
from parallel_core.trace_analysis.devices import kernels, work_of
from parallel_core.trace_analysis.parts import (
    Parts,
    StepAccount,
    account_of,
    parts_of,
)
from parallel_core.trace_analysis.steps.operations import (
    ended_before,
    steps_by_count,
    steps_by_launch,
    times_on_devices,
)
from parallel_core.trace_analysis.steps.pauses import Pause, pause_of

BY_THE_FRAMEWORK = re.compile(
    r"(?:nccl|gloo|mpi|ucc|xccl):|Optimizer\.|DistributedDataParallel\.|FullyShardedDataParallel\.|FSDP::|enumerate\(DataLoader"
)
"""PyTorch annotates its own work, too: exchanges, and parts of steps."""
NUMBER = re.compile(r"[\s#_:/.-]*\d+\s*$")
"""What annotations of one kind differ in."""
LONGEST_ANNOTATIONS = 30
"""So many kinds of annotations have figures: those that last longest."""

COVERED = 0.9
"""Steps that a profiler marks cover at least this share of the time in which devices worked, unless
these are behind them.
"""
COMPARED = ("seconds", "device_seconds", "busy_seconds", "collective_seconds")
"""The quantities of a step in which it may be an outlier."""
OUTLIER = 3.5
NORMAL = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""
FEWEST = 3
LEAST_DEVIATION = 0.05
"""A share of the median: steps that differ by less are alike, however little the rest differ."""


@dataclass(frozen=True)
class StepFigures:
    """One step: how long the host took for it, and what it launched did on the devices, all of them
    as one.
    """

    name: str
    start_seconds: float
    """Since the timeline's beginning."""
    seconds: float
    operations: int
    device_seconds: float
    """From its first operation's start to its last one's end; 0 without operations, as all that
    follows.
    """
    busy_seconds: float
    """How long at least one operation ran."""
    compute_seconds: float
    """How long kernels ran that are no collectives, copies or fills."""
    collective_seconds: float
    hidden_collective_seconds: float
    """How much of that lay under the compute seconds."""
    begun_seconds: float
    """When the devices had ended the steps before, since the timeline's beginning."""
    parts: Parts
    """The step as the devices kept to it, from then on."""


@dataclass(frozen=True)
class TypicalStep:
    """One quantity over all steps: its median and its median absolute deviation."""

    quantity: str
    median_seconds: float
    mad_seconds: float


@dataclass(frozen=True)
class Outlier:
    """A step that is unlike the rest in a quantity, and the ratio of that to the median."""

    step: str
    quantity: str
    seconds: float
    ratio: float | None
    """None if the median is 0."""


@dataclass(frozen=True)
class StepsFigures:
    """All steps of a case in the order of time."""

    steps: tuple[StepFigures, ...]
    typical: tuple[TypicalStep, ...]
    outliers: tuple[Outlier, ...]
    account: StepAccount | None
    """What `profile` says of the median step, too; None if the devices were too far behind to
    recognise steps.
    """
    pause: Pause | None
    """Time in which nothing ran and that the median step hides; None if it hides little."""


@dataclass(frozen=True)
class AnnotationFigures:
    """All annotations of one name, but for a number at its end: their time on the host, and what
    they launched.
    """

    name: str
    annotations: int
    seconds: float
    """The sum of their durations."""
    mean_seconds: float
    operations: int
    busy_seconds: float
    """How long at least one operation ran that was launched in one of them."""


def steps(case: CaseSpans) -> StepsFigures | None:
    """Compute the figures of every step of a case; None if it has no steps."""
    windows = step_windows(case.annotations)
    if not windows:
        return None
    found = _step_figures(case, windows, steps_by_launch(case, windows))
    marks_all = windows[0].name.startswith(PROFILER_STEP)
    behind = marks_all and _are_behind(case, windows, found)
    if behind and (step_of := steps_by_count(case, len(windows))) is not None:
        found = _step_figures(case, windows, step_of)
        behind = _are_behind(case, windows, found)
    typical, outliers = zip(*(_compared(found, quantity) for quantity in COMPARED), strict=True)
    timed = [one.parts for one in found if one.parts.seconds > 0]
    account = None if behind or not timed else account_of(timed)
    idle_share = account.shares["idle_seconds"].estimate if account else None
    pause = None if idle_share is None else pause_of(case, windows, idle_share)
    return StepsFigures(found, typical, tuple(chain(*outliers)), account, pause)


def _are_behind(case: CaseSpans, windows: Sequence[Window], found: Sequence[StepFigures]) -> bool:
    """Return whether much of what devices did since the first step belongs to none."""
    first = windows[0].start
    begun = max(first, *ended_before(case, np.array([first])))
    working = total_length(clip(case.covered(case.operations), begun, case.end))
    in_steps = sum(one.parts.seconds - one.parts.idle_seconds for one in found)
    return in_steps < COVERED * in_seconds(working)


def annotations(case: CaseSpans) -> tuple[AnnotationFigures, ...]:
    """Compute the figures of a case's annotations by name, those that last longest first."""
    groups = sorted(
        _alike(case.annotations).items(),
        key=lambda group: -sum(one.end - one.start for one in group[1]),
    )
    since = case.since[case.operations]
    order = np.argsort(since, kind="stable")
    since, intervals = since[order], case.intervals(case.operations)[order]
    return tuple(
        _annotation(name, ones, since, intervals) for name, ones in groups[:LONGEST_ANNOTATIONS]
    )


def numbered_step(timeline: Timeline, number: int) -> Window:
    """Return when the host did its step of this number.

    Raises RequestError if there is no such step, or none at all.
    """
    marked = [] if timeline.cases else step_windows(timeline.annotations)
    numbered = {
        int(match[1]): one for one in marked if (match := re.search(r"(\d+)\s*$", one.name))
    }
    if not numbered:
        raise RequestError("it marks no steps with numbers")
    if number not in numbered:
        raise RequestError(f"it has no step {number}, but {min(numbered)} to {max(numbered)}")
    return numbered[number]


def only_step(timeline: Timeline, step: Window) -> Timeline:
    """Return what a program did in a step, and what it launched in it, whenever that ran.

    What the devices were still doing of the steps before is kept from the step's beginning on:
    without it they would seem to wait.
    """
    spans, (_, start, end) = timeline.columns, step
    launched_here = launched_in(spans, step)
    on_devices = spans.kinds != KINDS.index("host")
    last_end = spans.ends[launched_here].max(initial=end)
    beside_it = (spans.ends > start) & (spans.starts < last_end)
    unfinished = on_devices & (spans.since < start) & beside_it
    kept = spans.select(launched_here | unfinished)
    cut = replace(kept, starts=np.maximum(kept.starts, start))
    notes = timeline.notes
    if count := int(unfinished.sum()):
        behind = f"When {step.name} began, devices had still to do {count:,} operations of earlier "
        notes = (*notes, f"{behind}steps: they are kept.")
    return replace(
        timeline,
        spans=cut.select(np.argsort(cut.starts, kind="stable")),
        begin=start,
        annotations=tuple(
            one for one in timeline.annotations if start <= one.start and one.end <= end
        ),
        notes=notes,
    )


def launched_in(spans: Spans, step: Window) -> np.ndarray:
    """Return the mask of the spans that a step launched."""
    return (spans.since >= step.start) & (spans.since < step.end)


def first_steps(timeline: Timeline, count: int) -> Timeline:
    """Return what a program did before its first `count` steps had ended, of those that a profiler
    marks; or all.
    """
    marked = [one for one in timeline.annotations if one.name.startswith(PROFILER_STEP)]
    if not 0 < count < len(marked):
        return timeline
    spans, end = timeline.columns, marked[count - 1].end
    return replace(
        timeline,
        spans=spans.select(spans.since < end),
        annotations=tuple(one for one in timeline.annotations if one.start < end),
    )


def _annotation(
    name: str, ones: Sequence[Window], since: np.ndarray, intervals: np.ndarray
) -> AnnotationFigures:
    # Those of one name may lie in each other.
    covered = union(np.array([(one.start, one.end) for one in ones], dtype=np.int64))
    bounds = np.searchsorted(since, covered)
    launched = [intervals[first:last] for first, last in bounds]
    seconds = in_seconds(sum(one.end - one.start for one in ones))
    return AnnotationFigures(
        name=name,
        annotations=len(ones),
        seconds=seconds,
        mean_seconds=seconds / len(ones),
        operations=int((bounds[:, 1] - bounds[:, 0]).sum()),
        busy_seconds=in_seconds(total_length(union(*launched))) if launched else 0.0,
    )


def step_windows(marked: Sequence[Window]) -> list[Window]:
    """Return those of a program's annotations that are its steps, in the order of time."""
    profiled = [one for one in marked if one.name.startswith(PROFILER_STEP)]
    if profiled:
        return sorted(profiled, key=lambda one: one.start)
    outer: list[Window] = []
    by_the_program = [one for one in marked if not BY_THE_FRAMEWORK.match(one.name)]
    for one in sorted(by_the_program, key=lambda one: (one.start, -one.end)):
        if not outer or one.start >= outer[-1].end:
            outer.append(one)
    repeated = [ones for ones in _alike(outer).values() if len(ones) > 1]
    return max(repeated, key=lambda ones: sum(one.end - one.start for one in ones), default=[])


def _alike(marked: Sequence[Window]) -> dict[str, list[Window]]:
    groups: dict[str, list[Window]] = defaultdict(list)
    for one in marked:
        groups[NUMBER.sub("", one.name) or one.name].append(one)
    return groups


def _step_figures(
    case: CaseSpans, windows: Sequence[Window], step_of: np.ndarray
) -> tuple[StepFigures, ...]:
    places = np.flatnonzero(case.operations & (step_of >= 0))
    places = places[np.argsort(step_of[places], kind="stable")]
    bounds = np.searchsorted(step_of[places], np.arange(len(windows) + 1))
    of_steps, masks = np.split(places, bounds[1:-1]), kernels(case)
    works = [work_of(case, own, *masks) for own in of_steps]
    on_devices = times_on_devices(case, windows, [case.intervals(own) for own in of_steps])
    parts = parts_of(case, on_devices)
    return tuple(
        StepFigures(
            name=window.name,
            start_seconds=in_seconds(window.start),
            seconds=in_seconds(window.end - window.start),
            operations=len(own),
            device_seconds=in_seconds(work.whole),
            busy_seconds=in_seconds(work.busy),
            compute_seconds=in_seconds(work.compute),
            collective_seconds=in_seconds(work.collective),
            hidden_collective_seconds=in_seconds(work.hidden),
            begun_seconds=in_seconds(begun),
            parts=divided,
        )
        for window, own, work, (begun, _), divided in zip(
            windows, of_steps, works, on_devices, parts, strict=True
        )
    )


def _compared(found: Sequence[StepFigures], quantity: str) -> tuple[TypicalStep, list[Outlier]]:
    values = np.array([getattr(one, quantity) for one in found])
    median = float(np.median(values))
    apart = np.abs(values - median)
    mad = float(np.median(apart))
    unlike = (
        (apart > OUTLIER * NORMAL * mad)
        & (apart > LEAST_DEVIATION * median)
        & (len(found) >= FEWEST)
    )
    rows = zip(np.array(found, object)[unlike], values[unlike].tolist(), strict=True)
    outliers = [
        Outlier(one.name, quantity, value, value / median if median else None)
        for one, value in rows
    ]
    return TypicalStep(quantity, median, mad), outliers
