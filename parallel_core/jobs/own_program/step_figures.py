"""What a step of a recorded program consists of: computing, and what lies under it or beside it.

The shares of a step sum to 1: some queue computes; none does, but one exchanges; neither, but one copies; nothing runs.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from backends.profiling import HOST_DEVICE, Span, Timeline, in_seconds
from parallel_core.trace_analysis.case_spans import KINDS, cases_of
from parallel_core.trace_analysis.figures import figures_of
from parallel_core.trace_analysis.interval_sets import clip, gaps, intersection, total_length, union

__all__ = ["QueueShare", "StepFigures", "step_figures"]

BACKWARD = "autograd::engine::evaluate_function"
"""PyTorch runs each operator of a backward pass within one of this name."""
KEEPING = f"{BACKWARD}: torch::autograd::AccumulateGrad"
"""Keeps a gradient that is there, and launches its exchange: no time to hide it under."""
LOADING = "enumerate(DataLoader)#"
"""How PyTorch annotates the time in which a program waits for its next batch."""
STEP = "ProfilerStep#"
MAX_OPERATORS = 3


@dataclass(frozen=True)
class QueueShare:
    """A queue of a device, and the share of the time in which it worked."""

    device: str
    queue: str
    busy_share: float


@dataclass(frozen=True)
class StepFigures:
    """The mean step of one process; its shares are those of the recorded time."""

    steps: int
    """How many were recorded."""
    step_seconds: float
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
    early_exchanges: int
    """How many were launched before an operator of the backward pass: these can hide under it."""
    loading_share: float
    """The share of the time in which the program waited for PyTorch's DataLoader; 0 too if it has another."""
    operators: tuple[tuple[str, float], ...]
    """What computes longest, as shares of all operators' time."""


def step_figures(timeline: Timeline, steps: int) -> StepFigures:
    """Compute the figures of a process that recorded so many whole steps; what its timeline holds beyond is cut."""
    windows = [one for one in timeline.annotations if one.name.startswith(STEP)][:steps]
    (case,) = cases_of(replace(timeline, spans=_of_whole_steps(timeline, steps), cases=()))
    # What Python does at a step's edges is part of it; a device may be behind.
    begin = min([case.start, *(one.start for one in windows)])
    end = max([case.end, *(one.end for one in windows)])
    figures = figures_of(case)
    copies = case.kinds == KINDS.index("copy")
    if {device for device, _ in case.queues} <= {HOST_DEVICE, "cpu"}:
        # A CPU's copies stay in its memory, and its thread computes nothing meanwhile: they are its work.
        copies &= False
    exchanges = case.kinds == KINDS.index("exchange")
    computing, exchanging, copying = (
        union(case.intervals(mask)) for mask in (case.operations & ~copies & ~exchanges, exchanges, copies)
    )
    free = gaps(computing, begin, end)
    exposed_exchange = total_length(intersection(free, exchanging))
    working = total_length(union(computing, exchanging, copying))
    compute, exchange, copy = map(total_length, (computing, exchanging, copying))
    whole = max(1, end - begin)
    loads = [(one.start, one.end) for one in timeline.annotations if one.name.startswith(LOADING)]
    loading = union(np.array(loads, dtype=np.int64))
    operators = [one for one in figures.operations if one.kind == "compute"]
    all_computing = sum(one.seconds for one in operators)
    return StepFigures(
        steps=steps,
        step_seconds=in_seconds(whole) / steps,
        queues=tuple(
            QueueShare(queue.device, queue.queue, queue.busy_seconds / in_seconds(whole))
            for queue in figures.queues
            if queue.device != HOST_DEVICE
        ),
        compute_share=compute / whole,
        exposed_exchange_share=exposed_exchange / whole,
        exposed_copy_share=(working - compute - exposed_exchange) / whole,
        idle_share=1 - working / whole,
        exchange_seconds=in_seconds(exchange) / steps,
        hidden_exchange_share=total_length(intersection(computing, exchanging)) / exchange if exchange else None,
        copy_seconds=in_seconds(copy) / steps,
        hidden_copy_share=total_length(intersection(computing, copying)) / copy if copy else None,
        exchanges=int(exchanges.sum()),
        early_exchanges=_early_exchanges(case.spans),
        loading_share=total_length(clip(loading, begin, end)) / whole,
        operators=tuple((one.name, one.seconds / all_computing) for one in operators[:MAX_OPERATORS]),
    )


def _of_whole_steps(timeline: Timeline, steps: int) -> Sequence[Span]:
    """Return the spans without those of a step in which the recording ended."""
    ends = [one.end for one in timeline.annotations if one.name.startswith(STEP)]
    if len(ends) <= steps:
        return timeline.spans
    until = ends[steps - 1]
    return tuple(one for one in timeline.spans if (one.start if one.launched is None else one.launched) < until)


def _early_exchanges(spans: Sequence[Span]) -> int:
    """Count the exchanges after whose launch the next operator is one of the backward pass."""
    # Of a GPU's program the operators are the host's, and the kernels run later.
    launching = [span for span in spans if span.kind == "host"] or [span for span in spans if span.kind == "compute"]
    launching = [span for span in launching if span.operator != KEEPING]
    starts = [span.start for span in launching]
    early = 0
    for span in spans:
        if span.kind == "exchange":
            place = bisect_right(starts, span.start if span.launched is None else span.launched)
            early += place < len(launching) and _is_backward(launching[place])
    return early


def _is_backward(span: Span) -> bool:
    return span.operator.startswith(BACKWARD) or span.name.endswith(" backward")
