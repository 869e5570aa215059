"""What a step of a recorded program consists of, by the same figures as `trace` has, and what only
`profile` asks.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from statistics import fmean, median

import numpy as np

from backends.profiling import HOST_DEVICE, Span, Timeline, in_seconds
from backends.profiling.timeline import Queue, Window
from parallel_core.traces.account import Parts
from parallel_core.traces.case_spans import (
    PROFILER_STEP,
    CaseSpans,
    cases_of,
    clip,
    groups_of,
    total_length,
    union,
)
from parallel_core.traces.evidence.interference import Price, interference
from parallel_core.traces.evidence.passes import BACKWARD, KEEPING, OF_GRADIENTS
from parallel_core.traces.figures import CaseFigures, figures_of
from parallel_core.traces.ranks.jobs import BETWEEN_TWO
from parallel_core.traces.reasons import Unhidden
from parallel_core.traces.steps.figures import first_steps
from parallel_core.traces.steps.pauses import Pause
from parallel_core.traces.waits import waits_for_nothing

LOADING = "enumerate(DataLoader)#"
"""How PyTorch annotates the time in which a program waits for its next batch."""
LEFT_OVER = 0.1
"""Of a forward pass: what has ended when less of it is computed is of the step before."""
MAX_OPERATORS = 3


@dataclass(frozen=True)
class QueueShare:
    """A queue of a device, and the share of the median step in which it worked."""

    device: str
    queue: str
    busy_share: float


@dataclass(frozen=True)
class StepFigures:
    """The steps of one process; the shares, but for the queues', are those of the recorded time."""

    steps: int
    """How many were recorded."""
    step_seconds: float
    """The median step's."""
    queues: tuple[QueueShare, ...]
    compute_share: float
    exposed_exchange_share: float
    exposed_copy_share: float
    idle_share: float
    exchange_seconds: float
    """How long a step exchanges between devices or processes, whatever runs meanwhile."""
    hidden_exchange_share: float | None
    """The share of that under which some queue computed; None without an exchange."""
    copy_seconds: float
    hidden_copy_share: float | None
    """The share of a step's copying under which some queue computed; None without a copy."""
    exchanges: int
    exchanging_steps: int
    """In how many of the steps there was any."""
    exchange_share: float
    """How long it exchanged, whatever ran meanwhile, as a share of the recorded time."""
    early_exchanges: int | None
    """How many were launched before an operator of the backward pass: these can hide under it; None
    if no operator is known as one of that pass.
    """
    loading_share: float
    """The share of the time in which the program waited for PyTorch's DataLoader; 0 too if it has
    another.
    """
    operators: tuple[tuple[str, float], ...]
    """What computes longest, as shares of all operators' time."""
    by_step: tuple[Parts, ...]
    """The parts of every step, over which intervals are."""
    pause: Pause | None = None
    """Time in which nothing ran and that the median step hides; None if it hides little."""
    unhidden: tuple[Unhidden, ...] = ()
    """The exchanges and copies that ran beside no computation, by name, and why."""
    interference: tuple[Price, ...] = ()
    between_two_share: float = 0.0
    """The share of the exchange's operations' time that goes from one process to another, as in a
    pipeline; 0 without an exchange.
    """
    launching_share: float = 0.0
    """The share of the devices' idle time in which their queues waited for the host to launch."""
    forward_exchanges: int = 0
    """How many of the early exchanges were launched before their step's backward pass began: these
    can hide under the forward pass. 0 if the program marks no steps.
    """
    unseen_share: float = 0.0
    """The share of the recorded time in which the host waited for a device on which hardly anything
    was recorded.
    """
    is_without_profiler: bool = False
    """Whether the parts are those of a step without the profiler."""


def step_figures(timeline: Timeline, steps: int) -> StepFigures:
    """Compute the figures of a process that recorded so many whole steps; what its timeline holds
    beyond is cut.
    """
    (case,) = cases_of(replace(first_steps(timeline, steps), cases=()))
    figures = figures_of(case)
    whole = figures.parts
    seconds = whole.seconds or 1.0
    by_step: tuple[Parts, ...] = (Parts(*(value / steps for value in astuple(whole))),)
    times = [(case.start, case.end)]
    marks = [one for one in case.annotations if one.name.startswith(PROFILER_STEP)]
    if marks and figures.steps and figures.steps.account:
        timed = [one for one in figures.steps.steps if one.parts.seconds > 0]
        by_step = tuple(one.parts for one in timed)
        times = [_nanoseconds(one.begun_seconds, one.parts.seconds) for one in timed]
    shares = _queue_shares(case, times)
    loads = [(one.start, one.end) for one in timeline.annotations if one.name.startswith(LOADING)]
    loading = clip(union(np.array(loads, dtype=np.int64)), case.start, case.end)
    operators = [one for one in figures.operations if one.kind == "compute"]
    unseen = waits_for_nothing(timeline)
    early, forward = _early_exchanges(case.spans, marks)
    all_computing = sum(one.seconds for one in operators)
    return StepFigures(
        steps=steps,
        step_seconds=median(one.seconds for one in by_step),
        queues=tuple(
            QueueShare(queue.device, queue.queue, shares[queue.device, queue.queue])
            for queue in figures.queues
            if queue.device != HOST_DEVICE
        ),
        compute_share=whole.compute_seconds / seconds,
        exposed_exchange_share=whole.exposed_exchange_seconds / seconds,
        exposed_copy_share=whole.exposed_copy_seconds / seconds,
        idle_share=whole.idle_seconds / seconds,
        exchange_seconds=whole.exchange_seconds / steps,
        hidden_exchange_share=whole.hidden_exchange_share,
        copy_seconds=whole.copy_seconds / steps,
        hidden_copy_share=whole.hidden_copy_share,
        exchanges=int(case.of_kind("exchange").sum()),
        exchanging_steps=sum(step.exchange_seconds > 0 for step in by_step),
        exchange_share=whole.exchange_seconds / seconds,
        early_exchanges=early,
        forward_exchanges=forward,
        between_two_share=_between_two_share(case),
        loading_share=in_seconds(total_length(loading)) / seconds,
        operators=tuple(
            (one.name, one.seconds / all_computing) for one in operators[:MAX_OPERATORS]
        ),
        by_step=by_step,
        pause=figures.steps.pause if marks and figures.steps else None,
        unhidden=figures.unhidden,
        interference=interference((case,)),
        launching_share=_launching_share(figures),
        unseen_share=0.0 if unseen is None else unseen.seconds / seconds,
    )


def without_profiler(recorded: StepFigures, seconds: float) -> StepFigures:
    """Return what a step is that takes some seconds without the profiler, if a GPU did its work.

    The profiler stretches what the host does, and hardly a kernel: the work stays as it was, and
    the waiting becomes less. A CPU's operators are stretched themselves.
    """
    devices = {queue.device for queue in recorded.queues}
    works = [step.seconds - step.idle_seconds for step in recorded.by_step]
    on_gpus = bool(devices) and not any(device.startswith("cpu") for device in devices)
    if not on_gpus or not max(works) < seconds < recorded.step_seconds:
        return recorded
    stretch = recorded.step_seconds / seconds
    by_step = [
        replace(step, seconds=seconds, idle_seconds=seconds - work)
        for step, work in zip(recorded.by_step, works, strict=True)
    ]
    return replace(
        recorded,
        step_seconds=seconds,
        queues=tuple(
            replace(queue, busy_share=queue.busy_share * stretch) for queue in recorded.queues
        ),
        compute_share=fmean(step.compute_seconds for step in by_step) / seconds,
        exposed_exchange_share=fmean(step.exposed_exchange_seconds for step in by_step) / seconds,
        exposed_copy_share=fmean(step.exposed_copy_seconds for step in by_step) / seconds,
        idle_share=fmean(step.idle_seconds for step in by_step) / seconds,
        by_step=tuple(by_step),
        is_without_profiler=True,
    )


def _launching_share(figures: CaseFigures) -> float:
    idle = sum(queue.idle_seconds for queue in figures.idleness)
    return sum(queue.host_wait_seconds for queue in figures.idleness) / idle if idle else 0.0


def _between_two_share(case: CaseSpans) -> float:
    spans, exchanges = case.spans, case.of_kind("exchange")
    named = np.array([BETWEEN_TWO.search(name) is not None for name in spans.operators], bool)
    whole = int(case.lengths[exchanges].sum())
    between_two = exchanges & named[spans.operator_of]
    return int(case.lengths[between_two].sum()) / whole if whole else 0.0


def _nanoseconds(begin_seconds: float, seconds: float) -> tuple[int, int]:
    return round(begin_seconds * 1e9), round((begin_seconds + seconds) * 1e9)


def _queue_shares(case: CaseSpans, times: Sequence[tuple[int, int]]) -> dict[Queue, float]:
    """Return the share of the median of some times in which each queue worked."""
    found = {}
    for queue, own in zip(case.spans.queues, groups_of(case.spans.queue_of), strict=True):
        busy = case.covered(own)
        found[queue] = median(
            total_length(clip(busy, start, end)) / max(end - start, 1) for start, end in times
        )
    return found


def _launch_of(span: Span) -> int:
    return span.start if span.launched is None else span.launched


def _early_exchanges(spans: Sequence[Span], steps: Sequence[Window]) -> tuple[int | None, int]:
    """Count the exchanges that were launched before the last operator of their step's backward pass
    began, and those of them that were before its first one; None if no operator is known as one of
    that pass.

    Without steps those count after whose launch the next operator is one of the backward pass.
    """
    # Of a GPU's program the operators are the host's, and the kernels run later.
    kind = "host" if any(span.kind == "host" for span in spans) else "compute"
    operators = [span for span in spans if span.kind == kind and span.operator != KEEPING]
    exchanges = [span for span in spans if span.kind == "exchange"]
    if not any(map(_is_backward, spans)):
        return None, 0
    backward = [span.start for span in operators if _is_backward(span)]
    if not steps:
        launches = map(_launch_of, exchanges)
        places = (bisect_right(operators, time, key=lambda span: span.start) for time in launches)
        following = (operators[place] for place in places if place < len(operators))
        return sum(map(_is_backward, following)), 0
    early = forward = 0
    for step in steps:
        in_pass = [start for start in backward if step.start <= start < step.end]
        first, last = min(in_pass, default=0), max(in_pass, default=0)
        before = [span for span in spans if step.start <= _launch_of(span) < first]
        forward_pass = [span for span in before if span.kind == "compute"]
        for exchange in exchanges:
            launch = _launch_of(exchange)
            if step.start <= launch < last and not _is_left_over(exchange, forward_pass):
                early += 1
                forward += launch < first
    return early, forward


def _is_left_over(exchange: Span, forward_pass: Sequence[Span]) -> bool:
    """Return whether an exchange of gradients or weights ended before a forward pass computed."""
    computed = sum(span.end - span.start for span in forward_pass if span.end <= exchange.end)
    whole = sum(span.end - span.start for span in forward_pass)
    return OF_GRADIENTS.search(exchange.name) is not None and computed < LEFT_OVER * whole


def _is_backward(span: Span) -> bool:
    return span.operator.startswith(BACKWARD) or span.name.endswith(" backward")
