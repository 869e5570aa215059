"""Why exchanges and copies were not hidden: for each kind of them the reason that the trace shows,
and of exchanges for each process group and pass, too.

The first reason of `REASONS` that holds is an operation's. A kind, all operations of one name, has
the reason of most of the time in which its operations ran beside no computation. A kind that is
hidden but for little, or takes little time beside no computation, has none.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import numpy as np

from backends.profiling.collectives import Collective
from backends.profiling.timeline import KINDS, SpanKind
from parallel_core.system.formatting import figure as written_figure
from parallel_core.system.formatting import seconds
from parallel_core.traces.account import masks_of
from parallel_core.traces.case_spans import (
    ALL,
    CaseSpans,
    groups_of,
)
from parallel_core.traces.evidence.communication import communication
from parallel_core.traces.evidence.exchanges import CollectiveAt, alike_exchanges
from parallel_core.traces.evidence.exposure import Evidence
from parallel_core.traces.evidence.passes import Phase
from parallel_core.traces.evidence.usual_steps import (
    RARE,
    Times,
    steps_of,
    times_in_usual_steps,
    times_of,
)
from parallel_core.traces.figures import Count, Lacking, Ratio, Seconds, Share, figure, ratio
from parallel_core.traces.steps.figures import step_windows

LEAST_SHARE = 0.01
"""Of the whole time: a kind that takes less beside no computation needs no reason."""
LITTLE = 0.1
"""A kind of which less than this share ran beside no computation is hidden."""


class Reason(NamedTuple):
    """Why an operation was not hidden."""

    code: str
    holds: Callable[[Evidence], np.ndarray]
    sentence: str
    remedy: str
    """Empty if nothing follows from it."""


REASONS = (
    Reason(
        "computing-stream",
        lambda exposed: exposed.on_computing_queue & exposed.is_copy & exposed.is_pageable,
        "it runs on the stream that computes, from memory that is not pinned",
        "Pin the memory, and copy with non_blocking=True on a stream of its own.",
    ),
    Reason(
        "computing-stream",
        lambda exposed: exposed.on_computing_queue & exposed.is_copy,
        "it runs on the stream that computes, one after the other",
        "Copy on a stream of its own, for which the other waits only where it needs the data.",
    ),
    Reason(
        "waited-at-once",
        lambda exposed: exposed.on_computing_queue & exposed.on_cpu,
        "the thread that computes waits inside the call",
        "Launch it, compute something else, then wait (PyTorch: async_op=True).",
    ),
    Reason(
        "computing-stream",
        lambda exposed: exposed.on_computing_queue,
        "it runs on the queue that computes, one after the other",
        "Exchange on a queue of its own.",
    ),
    Reason(
        "every-micro-batch",
        lambda exposed: exposed.in_every_micro_batch,
        "several backward passes exchange for one step of the optimizer",
        "Exchange in the last one only, with no_sync() around all others (FSDP2: "
        "set_requires_gradient_sync).",
    ),
    Reason(
        "launched-after",
        lambda exposed: exposed.most_after_pass & exposed.in_buckets,
        "it is launched after the backward pass, which could have hidden it",
        "Make the buckets smaller (bucket_cap_mb), so that the first are full earlier.",
    ),
    Reason(
        "launched-after",
        lambda exposed: exposed.most_after_pass,
        "it is launched after the backward pass, which could have hidden it",
        "Launch each part as soon as its gradients are there, as DistributedDataParallel does.",
    ),
    Reason(
        "launched-after",
        lambda exposed: exposed.after_wait,
        "it is launched after the host has waited for the work that could have hidden it",
        "Launch it before that wait.",
    ),
    Reason(
        "slowed",
        lambda exposed: exposed.is_slowed & exposed.on_cpu,
        "the computation beside it slows it down",
        "Leave room to it: let fewer threads compute (torch.set_num_threads).",
    ),
    Reason(
        "slowed",
        lambda exposed: exposed.is_slowed,
        "the computation beside it slows it down",
        "Leave room to it: let NCCL take fewer channels.",
    ),
    Reason(
        "nothing-left",
        lambda exposed: (exposed.after_pass | exposed.pass_is_over) & exposed.in_buckets,
        "its backward pass had nothing left to hide it under",
        "End with a smaller bucket (bucket_cap_mb), or exchange fewer bytes.",
    ),
    Reason(
        "nothing-left",
        lambda exposed: exposed.after_pass | exposed.pass_is_over,
        "its backward pass had nothing left to hide it under",
        "Exchange fewer bytes, less often, or end with a smaller bucket.",
    ),
    Reason(
        "nothing-left",
        lambda exposed: (exposed.waited_for & exposed.had_something) | exposed.is_last,
        "it takes longer than the computation that was launched to hide it",
        "Launch it earlier, or move fewer bytes.",
    ),
    Reason(
        "waited-at-once",
        lambda exposed: exposed.waited_for & exposed.is_pageable,
        "{operator} waits for it at once, since its memory is not pinned",
        "Pin the memory (pin_memory=True), and copy with non_blocking=True.",
    ),
    Reason(
        "waited-at-once",
        lambda exposed: exposed.waited_for & exposed.is_copy,
        "{operator} waits for it at once",
        "Launch it ahead, for the next batch, and wait only where its data are needed.",
    ),
    Reason(
        "waited-at-once",
        lambda exposed: exposed.waited_for & exposed.on_cpu & exposed.in_flight_with_others,
        "the program waits for it, and for those launched with it, before {operator}",
        "Compute something else before that wait, or wait for each where it is needed.",
    ),
    Reason(
        "waited-at-once",
        lambda exposed: exposed.waited_for & exposed.on_cpu,
        "the program waits for it at once, before {operator}",
        "Launch it earlier, compute something else, then wait (PyTorch: async_op=True).",
    ),
    Reason(
        "waited-at-once",
        lambda exposed: exposed.waited_for,
        "{operator} waits for it at once",
        "Launch it earlier, compute something else, then wait (PyTorch: async_op=True).",
    ),
    Reason(
        "thread-idle",
        lambda exposed: exposed.host_is_behind & exposed.on_cpu,
        "nothing is computed meanwhile: the program waits inside the call, or runs Python",
        "Compute something else before it is needed.",
    ),
    Reason(
        "host-behind",
        lambda exposed: exposed.host_is_behind,
        "the host launched nothing meanwhile that could hide it",
        "Let the host launch ahead: less Python between operators, CUDA graphs, torch.compile or "
        "larger batches.",
    ),
    Reason(
        "unknown",
        lambda exposed: np.ones(len(exposed.places), bool),
        "the trace does not show why",
        "",
    ),
)
"""In the order in which they are tried."""


@dataclass(frozen=True)
class Unhidden:
    """A kind of exchange or copy that was not hidden, and why."""

    kind: SpanKind
    name: str
    operations: Count
    """Those with this reason."""
    steps: Annotated[Count | None, Lacking("no-steps")]
    """None if the program marks no steps."""
    unhidden_seconds: Seconds
    """How long those with this reason ran beside no computation."""
    seconds: Seconds
    """How long all of this kind ran."""
    code: str
    sentence: str
    remedy: str

    @property
    def in_words(self) -> str:
        """How long it was not hidden, why, and what helps."""
        time, count = seconds(self.unhidden_seconds), f"{self.operations:,}"
        if self.steps:
            time = f"{seconds(self.unhidden_seconds / self.steps)} a step"
            count = f"{written_figure(self.operations / self.steps)} a step"
        whole = f"{time} of {self.name} ({count}) lay beside no computation"
        return f"{whole}: {self.sentence}. {self.remedy}".rstrip()


@dataclass(frozen=True)
class ExchangeFigures:
    """The exchanges of one kind in one process group that were launched in one pass: in a step, or
    in all if none are marked.
    """

    kind: str
    group: str
    """The process group's name and ranks, as the trace has them; empty if it does not say."""
    launched: Annotated[Phase | None, Lacking("no-backward-pass")]
    """In which pass, or after both: when the last operator of the backward pass has begun."""
    steps: Annotated[Count | None, Lacking("no-steps")]
    number: Ratio
    """How many there are, each device's own."""
    seconds: Seconds
    """How long they run; the mean of the devices that exchange."""
    hidden_seconds: Seconds
    """How much of that lies under the same device's computation."""
    unhidden: Annotated[Unhidden | None, Lacking("hidden")]
    """Why the rest is not."""
    collectives: tuple[Collective, ...] = field(repr=False)
    waited_seconds: Annotated[Seconds | None, Lacking("not-matched")] = None
    """How much of it is waiting for other ranks, whose traces say it."""

    @figure
    def hidden_share(self) -> Annotated[Share | None, Lacking("no-exchange")]:
        """Hidden seconds as a share of all."""
        return ratio(self.hidden_seconds, self.seconds)

    @property
    def in_words(self) -> str:
        """Its kind and process group, and why it is not hidden."""
        name = f"{self.kind} {self.group}".rstrip()
        return name if self.unhidden is None else f"{name}: {self.unhidden.sentence}"


class Reasoned(NamedTuple):
    """Operations that ran beside no computation, and the number of each one's reason."""

    exposed: Evidence
    reason_of: np.ndarray


def reasoned(case: CaseSpans) -> Reasoned | None:
    """Return the reasons of a case's operations that were not hidden; None if all were.

    Cases of an experiment have none: each shows on purpose what it shows.
    """
    if case.name != ALL:
        return None
    if not masks_of(case).computing.any():
        # Nothing could have hidden them.
        return None
    exposed = Evidence(case, communication(case))
    if len(exposed.places) == 0:
        return None
    holding = np.array([reason.holds(exposed) for reason in REASONS])
    return Reasoned(exposed, np.argmax(holding, axis=0))


def unhidden(operations: Reasoned | None) -> tuple[Unhidden, ...]:
    """Return the kinds of exchange and copy that were not hidden, by how long they were not."""
    if operations is None:
        return ()
    exposed = operations.exposed
    spans = exposed.case.spans
    names = spans.name_of[exposed.places].astype(np.int64)
    rows = []
    for same_kind in groups_of(names * len(KINDS) + spans.kinds[exposed.places]):
        first = exposed.places[same_kind[0]]
        has_name = spans.name_of == spans.name_of[first]
        row = _unhidden_among(operations, has_name & (spans.kinds == spans.kinds[first]))
        if row is not None:
            rows.append(row)
    return tuple(sorted(rows, key=lambda row: -row.unhidden_seconds))


def exchanges_by_pass(
    case: CaseSpans,
    phases: np.ndarray | None,
    collective_at: CollectiveAt,
    operations: Reasoned | None,
) -> tuple[ExchangeFigures, ...]:
    """Return the figures of exchanges that belong together, those that take the most time first.

    `phases` has the place of each exchange in PHASES.
    """
    groups = operations.exposed.groups if operations else communication(case)
    steps = len(step_windows(case.annotations)) or None
    a_step = steps or 1
    rows = []
    for alike, places in alike_exchanges(case, phases, collective_at).items():
        is_alike = np.zeros(len(case.spans), bool)
        is_alike[places] = True
        spans = case.spans.select(is_alike)
        collectives = [collective_at.get((span.start, span.end)) for span in spans]
        times = times_of(case, is_alike, groups)
        rows.append(
            ExchangeFigures(
                alike.kind,
                alike.group,
                alike.launched,
                steps,
                number=len(places) / a_step,
                seconds=times.whole / 1e9 / a_step,
                hidden_seconds=(times.whole - times.alone) / 1e9 / a_step,
                unhidden=None if operations is None else _unhidden_among(operations, is_alike),
                collectives=tuple(filter(None, collectives)),
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _unhidden_among(operations: Reasoned, is_among: np.ndarray) -> Unhidden | None:
    """Return the reason of some operations of one kind, if they need one.

    The mask selects them among all spans, hidden or not.
    """
    exposed = operations.exposed
    case, spans = exposed.case, exposed.case.spans
    numbers = np.flatnonzero(is_among[exposed.places])
    times = times_of(case, is_among, exposed.groups)
    if _is_hidden(times):
        return None
    in_usual_steps = times_in_usual_steps(
        case, is_among, exposed.groups, exposed.places[numbers], exposed.exposed[numbers]
    )
    if _is_hidden(in_usual_steps):
        return None

    # The reason of most of the time in which the operations ran beside no computation.
    reason_of = operations.reason_of[numbers]
    time_of_reason = np.bincount(reason_of, exposed.exposed[numbers], len(REASONS))
    main_reason = int(np.argmax(time_of_reason))
    with_reason = numbers[reason_of == main_reason]
    places = exposed.places[with_reason]
    first = spans[int(places[0])]
    windows = step_windows(case.annotations)
    if len(np.unique(steps_of(windows, case.since[places]))) < RARE * len(windows):
        return None

    has_reason = np.zeros(len(spans), bool)
    has_reason[places] = True
    with_that_reason = times_of(case, has_reason, exposed.groups)
    waiting = Counter(exposed.waiting[number] for number in with_reason.tolist())
    ((operator, _),) = waiting.most_common(1)
    reason = REASONS[main_reason]
    return Unhidden(
        kind=first.kind,
        name=first.name,
        operations=len(places),
        steps=len(windows) or None,
        unhidden_seconds=with_that_reason.alone / 1e9,
        seconds=times.whole / 1e9,
        code=reason.code,
        sentence=reason.sentence.format(operator=operator),
        remedy=reason.remedy,
    )


def _is_hidden(times: Times) -> bool:
    """Return whether a kind is hidden but for little, or takes little time that is not."""
    return times.alone < LITTLE * times.whole or times.alone < LEAST_SHARE * times.nanoseconds
