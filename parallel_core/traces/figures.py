"""The figures of a timeline, for each case: busy and idle time, overlap, waiting, when control
returned.

A case lasts from its first launch to the end of its last span; the idle edges of its window do not
count. An operation is a span on a device; communication is copying and exchanging. `hidden_share`
is the share of communication that lies under computation, as `parts` has it: copies under that of
any device, exchanges under the same device's. What Holistic Trace Analysis calls overlap is in
`devices`: of only collectives, without copies, device by device.
"""

from dataclasses import dataclass

import numpy as np

from backends.profiling.timeline import (
    HOST_DEVICE,
    KINDS,
    ROLES,
    Queue,
    SpanKind,
    Timeline,
    in_seconds,
    queue_order,
)
from parallel_core.traces.account import Division, Parts
from parallel_core.traces.case_spans import (
    MAX_SLOWDOWN,
    NO_INTERVALS,
    CaseSpans,
    calls_of,
    cases_of,
    clip,
    groups_of,
    intersection,
    total_length,
    union,
)
from parallel_core.traces.devices import (
    KERNEL_DELAY,
    DeviceFigures,
    OperationFigures,
    QueueIdleness,
    QueueLength,
    device_figures,
    operations_by_name,
    queue_idleness,
    queue_lengths,
)
from parallel_core.traces.reasons import Unhidden, unhidden
from parallel_core.traces.steps.figures import (
    AnnotationFigures,
    StepsFigures,
    annotations,
    steps,
)


@dataclass(frozen=True)
class QueueFigures:
    """One queue: its busy time, without the host's waits, and the gaps between its first and last
    span.
    """

    device: str
    queue: str
    spans: int
    busy_seconds: float
    busy_share: float
    waiting_seconds: float
    """How long the host waited for a device; 0 on a device's own queue."""
    gaps: int
    gap_seconds: float
    longest_gap_seconds: float


@dataclass(frozen=True)
class KindFigures:
    """All spans of one kind: their number and their mean duration."""

    kind: SpanKind
    spans: int
    mean_seconds: float


@dataclass(frozen=True)
class LaunchWaits:
    """How long operations waited from their launch to their start, if the profiler links the
    two.
    """

    operations: int
    median_seconds: float
    percentile_90_seconds: float
    longest_seconds: float


@dataclass(frozen=True)
class CaseFigures:
    """One case by its trace. A figure is None if the case lacks its communication, operations,
    launches or links.
    """

    case: str
    seconds: float
    slowdown: float | None
    """Its time over that without the profiler; None if that is not known."""
    queues: tuple[QueueFigures, ...]
    """Devices' queues by name, then the host's."""
    kinds: tuple[KindFigures, ...]
    compute_seconds: float
    """How long at least one queue computed."""
    communication_seconds: float
    """How long at least one queue copied or exchanged."""
    hidden_seconds: float
    """How much of that lay under computation."""
    hidden_share: float | None
    """Hidden seconds as a share of communication."""
    hidden_of_shorter: float | None
    """Hidden seconds as a share of the shorter of computation and communication."""
    working_seconds: float
    """How long at least one operation ran."""
    queues_at_once: float | None
    """How many queues worked at the same time, on average over the working seconds."""
    devices_at_once: float | None
    """How many devices worked at the same time, whatever the number of their queues."""
    parts: Parts
    """What the time consists of, and how much of exchange and of copies lay under computation."""
    unhidden: tuple[Unhidden, ...]
    """The exchanges and copies that ran beside no computation, by name, and why."""
    waits: LaunchWaits | None
    control_returned_seconds: float | None
    """When the host had done all but the case's last wait, counted from its first launch."""
    dispatch_fraction: float | None
    """The same as a share of the whole."""
    collective_seconds: float
    """How long a device ran kernels of communication libraries, all devices added up."""
    hidden_collective_seconds: float
    """How much of that lay under the same device's computation, without copies and fills of
    memory.
    """
    hidden_collective_share: float | None
    """The same as a share, which Holistic Trace Analysis calls overlap; `hidden_share` has copies
    as well.
    """
    devices: tuple[DeviceFigures, ...]
    """Devices by name; the figures of Holistic Trace Analysis, among them collectives under
    computation.
    """
    idleness: tuple[QueueIdleness, ...]
    """Devices' queues by name."""
    queue_lengths: tuple[QueueLength, ...]
    """Devices' queues by name, without those that have no links to launches."""
    operations: tuple[OperationFigures, ...]
    """By name, those that took the most time first."""
    annotations: tuple[AnnotationFigures, ...]
    """The program's own, by name, those that last longest first."""
    steps: StepsFigures | None

    @property
    def idle_share(self) -> float:
        """The share of the time in which no operation ran."""
        return 1 - self.working_seconds / self.seconds if self.seconds else 0.0

    @property
    def slowed_in_words(self) -> str:
        """What a title says if the profiler slowed the case down so much that its trace shows the
        profiler.
        """
        slowed = self.slowdown is not None and self.slowdown > MAX_SLOWDOWN
        return f"slowed down by the profiler: {self.slowdown:.1f} × the time" if slowed else ""


def timeline_figures(timeline: Timeline) -> tuple[CaseFigures, ...]:
    """Compute the figures of every case; a timeline without cases is one case, named "all"."""
    return tuple(map(figures_of, cases_of(timeline)))


def figures_of(case: CaseSpans, kernel_delay: int = KERNEL_DELAY) -> CaseFigures:
    """Compute one case's figures; seconds are 0 if it has no spans.

    Shorter gaps between two operations on a queue than `kernel_delay`, in nanoseconds, count as
    kernel waits.
    """
    division = Division.of(case)
    compute = total_length(division.working)
    communication = total_length(union(division.exchanging, division.copying))
    hidden_exchanging = division.hidden_exchanging_of_devices
    hidden = total_length(union(division.hidden_copying, *hidden_exchanging))
    shorter = min(compute, communication)
    (parts,) = division.parts([(case.start, case.end)])
    returned = _control_returned(case)
    dispatch_fraction = None
    if returned is not None and case.nanoseconds:
        dispatch_fraction = returned / case.nanoseconds
    devices = device_figures(case)
    collective = sum((device.collective_seconds for device in devices), 0.0)
    hidden_collective = sum((device.hidden_collective_seconds for device in devices), 0.0)
    return CaseFigures(
        case=case.name,
        seconds=case.seconds,
        slowdown=case.slowdown,
        queues=_queue_figures(case),
        kinds=_kind_figures(case),
        compute_seconds=in_seconds(compute),
        communication_seconds=in_seconds(communication),
        hidden_seconds=in_seconds(hidden),
        hidden_share=hidden / communication if communication else None,
        hidden_of_shorter=hidden / shorter if shorter else None,
        working_seconds=in_seconds(total_length(division.busy)),
        queues_at_once=_at_once(case, case.spans.queue_of),
        devices_at_once=_at_once(case, case.device_of),
        parts=parts,
        unhidden=unhidden(case),
        waits=_launch_waits(case),
        control_returned_seconds=None if returned is None else in_seconds(returned),
        dispatch_fraction=dispatch_fraction,
        collective_seconds=collective,
        hidden_collective_seconds=hidden_collective,
        hidden_collective_share=hidden_collective / collective if collective else None,
        devices=devices,
        idleness=queue_idleness(case, kernel_delay),
        queue_lengths=queue_lengths(case),
        operations=operations_by_name(case),
        annotations=annotations(case),
        steps=steps(case, division),
    )


def _queue_figures(case: CaseSpans) -> tuple[QueueFigures, ...]:
    """Compute the figures of every queue, those of devices by name, then the host's."""
    rows = []
    waits_of_threads = _waits_in_calls(case)
    places_of_queues = groups_of(case.spans.queue_of)
    for (device, queue), places in zip(case.spans.queues, places_of_queues, strict=True):
        working = case.covered(places[~case.waits[places]])
        waiting = waits_of_threads.get((device, queue), NO_INTERVALS)
        covered = union(case.intervals(places), waiting)
        gap_lengths = covered[1:, 0] - covered[:-1, 1]
        busy = total_length(working) - total_length(intersection(working, waiting))
        rows.append(
            QueueFigures(
                device=device,
                queue=queue,
                spans=len(places),
                busy_seconds=in_seconds(busy),
                busy_share=busy / case.nanoseconds if case.nanoseconds else 0.0,
                waiting_seconds=in_seconds(total_length(covered) - busy),
                gaps=len(gap_lengths),
                gap_seconds=in_seconds(gap_lengths.sum()),
                longest_gap_seconds=in_seconds(gap_lengths.max(initial=0)),
            )
        )

    def order(row: QueueFigures) -> tuple[object, ...]:
        return row.device == HOST_DEVICE, queue_order(row.device, row.queue)

    return tuple(sorted(rows, key=order))


def _waits_in_calls(case: CaseSpans) -> dict[Queue, np.ndarray]:
    """Return by the host's threads when they waited in the runtime's calls, in operators or not."""
    calls = case.host_calls
    if calls is None:
        return {}
    waits = np.flatnonzero(calls.roles == ROLES.index("wait"))
    waits_of_threads = {}
    for same_thread in groups_of(calls.queue_of[waits]):
        on_thread = waits[same_thread]
        waited = union(np.stack((calls.starts[on_thread], calls.ends[on_thread]), axis=1))
        thread = calls.queues[calls.queue_of[on_thread[0]]]
        waits_of_threads[HOST_DEVICE, thread] = clip(waited, case.start, case.end)
    return waits_of_threads


def _kind_figures(case: CaseSpans) -> tuple[KindFigures, ...]:
    """Compute the figures of every kind of which there are spans."""
    rows = []
    for kind in KINDS:
        lengths = case.lengths[case.of_kind(kind)]
        count = len(lengths)
        if count:
            rows.append(KindFigures(kind, count, in_seconds(lengths.sum()) / count))
    return tuple(rows)


def _at_once(case: CaseSpans, group_of: np.ndarray) -> float | None:
    """Return how many groups of operations ran at the same time, on average while any did.

    `group_of` has the number of each span's group: its queue, or its device.
    """
    operations = np.flatnonzero(case.operations)
    if len(operations) == 0:
        return None
    covered = [case.covered(operations[group]) for group in groups_of(group_of[operations])]
    time_of_groups = sum(map(total_length, covered))
    time_of_any = total_length(union(*covered))
    return time_of_groups / time_of_any if time_of_any else None


def _launch_waits(case: CaseSpans) -> LaunchWaits | None:
    """Return how long operations waited for their start; None if no launch is known."""
    waited = (case.spans.starts - case.spans.launched)[case.operations & case.linked]
    if len(waited) == 0:
        return None
    # Two clocks that differ slightly may let an operation begin before its launch.
    waited = np.maximum(waited, 0)
    median, percentile_90 = np.percentile(waited, (50, 90)) / 1e9
    return LaunchWaits(len(waited), float(median), float(percentile_90), in_seconds(waited.max()))


def _control_returned(case: CaseSpans) -> int | None:
    """Return after how many nanoseconds the host had done all but the case's last wait."""
    spans, calls = case.spans, calls_of(case.spans, case.waits)
    if len(calls) == 0:
        return None
    # A timing ends by waiting; control returns after the waits before that one.
    if case.waits[calls[-1]]:
        calls = calls[:-1]
    return int(spans.ends[calls[-1]] - spans.starts[calls[0]])
