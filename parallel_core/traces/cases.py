"""The figures of a timeline, for each case: busy and idle time, overlap, waiting, when control
returned.

A case lasts from its first launch to the end of its last span; the idle edges of its window do not
count. An operation is a span on a device; communication is copying and exchanging. `hidden_share`
is the share of communication that lies alongside computation, as `parts` has it: copies alongside
that of any device, exchanges alongside the same device's, as Holistic Trace Analysis has it
(github.com/facebookresearch/HolisticTraceAnalysis, get_comm_comp_overlap).
"""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Annotated

import numpy as np

from backends.profiling.timeline import Timeline, in_seconds
from parallel_core.traces.account import Division, Parts
from parallel_core.traces.case_spans import (
    CaseSpans,
    calls_of,
    cases_of,
    clip,
    groups_of,
    total_length,
    union,
)
from parallel_core.traces.devices import OperationFigures, operations_by_name
from parallel_core.traces.devices.queues import (
    QueueFigures,
    QueueIdleness,
    queue_figures,
    queue_idleness,
)
from parallel_core.traces.evidence.exchanges import CollectiveAt
from parallel_core.traces.evidence.passes import AFTER_BOTH, phases_of_exchanges
from parallel_core.traces.figures import (
    Count,
    Lacking,
    Ratio,
    Seconds,
    Share,
    figure,
    figures_of_level,
    ratio,
)
from parallel_core.traces.reasons import (
    ExchangeFigures,
    Reasoned,
    Unhidden,
    exchanges_by_pass,
    reasoned,
    unhidden,
)
from parallel_core.traces.steps.figures import StepsFigures, steps
from parallel_core.traces.trust import waits_for_nothing


@dataclass(frozen=True)
class LaunchWaits:
    """How long operations waited from their launch to their start, if the profiler links the
    two.
    """

    operations: Count
    median_seconds: Seconds
    percentile_90_seconds: Seconds
    longest_seconds: Seconds


LOADING = "enumerate(DataLoader)#"
"""How PyTorch annotates the time in which a program waits for its next batch."""
BETWEEN_TWO = re.compile(r"(?:^|gloo:|nccl:)(?:send|recv)$|SendRecv")
"""The names of exchanges that take from one process, or give to one."""


class CaseFigures:
    """One case by its trace."""

    def __init__(
        self, spans: CaseSpans, collective_at: CollectiveAt = MappingProxyType({})
    ) -> None:
        self.spans, self.collective_at = spans, collective_at

    @cached_property
    def division(self) -> Division:
        """What divides the time."""
        return Division.of(self.spans)

    def settled(self) -> "CaseFigures":
        """Compute all figures, and let go of the spans."""
        for name in figures_of_level(CaseFigures):
            getattr(self, name)
        for name in ("division", "collective_at", "_reasoned"):
            vars(self).pop(name, None)
        self.spans = replace(self.spans, spans=self.spans.spans[:0], host_calls=None)
        return self

    @figure
    def case(self) -> str:
        """Its name."""
        return self.spans.name

    @figure
    def seconds(self) -> Seconds:
        """From its first launch to the end of its last span; 0 without spans."""
        return self.spans.seconds

    @figure
    def slowdown(self) -> Annotated[Ratio | None, Lacking("not-timed-alone")]:
        """The time under the profiler over the time without."""
        return self.spans.slowdown

    @figure
    def queues(self) -> tuple[QueueFigures, ...]:
        """Devices' queues by name, then the host's."""
        return queue_figures(self.spans)

    @figure
    def compute_seconds(self) -> Seconds:
        """How long devices did work of their own."""
        return in_seconds(total_length(self.division.activities.working))

    @figure
    def communication_seconds(self) -> Seconds:
        """How long at least one device exchanged or copied."""
        activities = self.division.activities
        return in_seconds(total_length(union(activities.exchanging, activities.copying)))

    @figure
    def hidden_seconds(self) -> Seconds:
        """How long communication lay alongside computation."""
        hidden_exchanging = [device.hidden for device in self.division.exchanges]
        return in_seconds(total_length(union(self.division.hidden_copying, *hidden_exchanging)))

    @figure
    def hidden_share(self) -> Annotated[Share | None, Lacking("no-communication")]:
        """Hidden seconds as a share of communication."""
        return ratio(self.hidden_seconds, self.communication_seconds)

    @figure
    def hidden_of_shorter(self) -> Annotated[Share | None, Lacking("no-communication")]:
        """Hidden seconds as a share of the shorter of computation and communication."""
        return ratio(self.hidden_seconds, min(self.compute_seconds, self.communication_seconds))

    @figure
    def queues_at_once(self) -> Annotated[Ratio | None, Lacking("no-operations")]:
        """How many queues worked at the same time, on average while any did."""
        return _at_once(self.spans, self.spans.spans.queue_of)

    @figure
    def devices_at_once(self) -> Annotated[Ratio | None, Lacking("no-operations")]:
        """How many devices worked at the same time, whatever the number of their queues."""
        return _at_once(self.spans, self.spans.device_of)

    @figure
    def parts(self) -> Parts:
        """What the time consists of, and how much of exchange and of copies lay under
        computation.
        """
        (parts,) = self.division.parts([(self.spans.start, self.spans.end)])
        return parts

    @figure
    def unhidden(self) -> tuple[Unhidden, ...]:
        """The exchanges and copies that ran beside no computation, by name, and why."""
        return unhidden(self._reasoned)

    @cached_property
    def _reasoned(self) -> Reasoned | None:
        return reasoned(self.spans)

    @figure
    def waits(self) -> Annotated[LaunchWaits | None, Lacking("no-links")]:
        """How long operations waited from their launch to their start."""
        linked = self.spans.operations & self.spans.linked
        waited = (self.spans.spans.starts - self.spans.spans.launched)[linked]
        if len(waited) == 0:
            return None
        # Two clocks that differ slightly may let an operation begin before its launch.
        waited = np.maximum(waited, 0)
        median, percentile_90 = (np.percentile(waited, (50, 90)) / 1e9).tolist()
        return LaunchWaits(len(waited), median, percentile_90, in_seconds(waited.max()))

    @figure
    def control_returned_seconds(self) -> Annotated[Seconds | None, Lacking("no-launches")]:
        """When the host had done all but the case's last wait, counted from its first launch."""
        spans, waits = self.spans.spans, self.spans.waits
        calls = calls_of(spans, waits)
        if len(calls) == 0:
            return None
        # A timing ends by waiting; control returns after the waits before that one.
        if waits[calls[-1]]:
            calls = calls[:-1]
        return in_seconds(int(spans.ends[calls[-1]] - spans.starts[calls[0]]))

    @figure
    def dispatch_fraction(self) -> Annotated[Share | None, Lacking("no-launches")]:
        """The share of the time that had passed when control returned."""
        returned = self.control_returned_seconds
        return None if returned is None else ratio(returned, self.seconds)

    @figure
    def idleness(self) -> tuple[QueueIdleness, ...]:
        """Devices' queues by name."""
        return queue_idleness(self.spans)

    @figure
    def operations(self) -> tuple[OperationFigures, ...]:
        """By name, those that took the most time first."""
        return operations_by_name(self.spans)

    @figure
    def steps(self) -> Annotated[StepsFigures | None, Lacking("no-steps")]:
        """The steps that the program marks."""
        return steps(self.spans, self.division)

    @figure
    def exchanges(self) -> Count:
        """How many exchanges there were, each device's of its own."""
        return int(self.spans.of_kind("exchange").sum())

    @figure
    def exchanging_steps(self) -> Count:
        """How many steps had an exchange."""
        return sum(step.exchange_seconds > 0 for step in self.accounted)

    @figure
    def early_exchanges(self) -> Annotated[Count | None, Lacking("no-backward-pass")]:
        """How many were launched before the last operator of their step's backward pass began:
        these can hide under it.
        """
        return None if self._phases is None else int((self._phases < AFTER_BOTH).sum())

    @cached_property
    def _phases(self) -> np.ndarray | None:
        return phases_of_exchanges(self.spans)

    @figure
    def exchanges_by_pass(self) -> tuple[ExchangeFigures, ...]:
        """By kind, process group and pass, those that take the most time first."""
        return exchanges_by_pass(self.spans, self._phases, self.collective_at, self._reasoned)

    @figure
    def between_two_share(self) -> Annotated[Share | None, Lacking("no-exchange")]:
        """The share of the exchanges' time that sends and receives take, as in a pipeline."""
        exchanges = self.spans.of_kind("exchange")
        lengths = self.spans.lengths
        between_two = exchanges & self.spans.named(BETWEEN_TWO)
        return ratio(int(lengths[between_two].sum()), int(lengths[exchanges].sum()))

    @figure
    def launching_share(self) -> Annotated[Share | None, Lacking("no-gaps")]:
        """The share of the gaps on devices' queues in which these waited for the host to launch."""
        waited = sum(queue.host_wait_seconds for queue in self.idleness)
        return ratio(waited, sum(queue.idle_seconds for queue in self.idleness))

    @figure
    def loading_share(self) -> Annotated[Share | None, Lacking("no-time")]:
        """The share of the time in which the program waited for PyTorch's DataLoader."""
        marks = [mark for mark in self.spans.annotations if mark.name.startswith(LOADING)]
        waited = union(np.array([(mark.start, mark.end) for mark in marks], dtype=np.int64))
        loading = clip(waited, self.spans.start, self.spans.end)
        return ratio(in_seconds(total_length(loading)), self.seconds)

    @figure
    def unseen_share(self) -> Annotated[Share | None, Lacking("no-time")]:
        """The share of the time in which the host waited for a device on which hardly anything was
        recorded.
        """
        waits = waits_for_nothing(self.spans.spans, self.spans.host_calls)
        return ratio(waits.seconds if waits else 0.0, self.seconds)

    @property
    def accounted(self) -> tuple[Parts, ...]:
        """The steps that the account is of; the whole time if there are none."""
        steps_of_account = self.steps.accounted if self.steps else ()
        return steps_of_account or (self.parts,)

    @figure
    def idle_share(self) -> Share:
        """The share of the time in which no operation ran."""
        return ratio(self.parts.idle_seconds, self.seconds) or 0.0

    @property
    def slowed_in_words(self) -> str:
        """What a title says if the profiler slowed the case down so much that its trace shows the
        profiler.
        """
        if not self.spans.is_slowed_down:
            return ""
        return f"slowed down by the profiler: {self.slowdown:.1f} × the time"


def timeline_figures(timeline: Timeline) -> tuple[CaseFigures, ...]:
    """Return the figures of every case; a timeline without cases is one case, named "all"."""
    return tuple(map(CaseFigures, cases_of(timeline)))


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
