"""What a step of a recorded program consists of: computing, and what lies under it or beside it.

The shares of a step sum to 1: some queue computes; none does, but one exchanges; neither, but one copies; nothing runs.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from backends.profiling import HOST_DEVICE, Span, Timeline, in_seconds
from parallel_core.trace_analysis.case_spans import KINDS, CaseSpans, cases_of
from parallel_core.trace_analysis.figures import figures_of
from parallel_core.trace_analysis.interval_sets import gaps, intersection, total_length, union

__all__ = ["QueueShare", "StepFigures", "step_figures"]

BACKWARD = "autograd::engine::evaluate_function"
"""PyTorch runs each operator of a backward pass within one of this name."""
KEEPING = f"{BACKWARD}: torch::autograd::AccumulateGrad"
"""Keeps a gradient that is there, and launches its exchange: no time to hide it under."""
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

    rank: int | None
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
    operators: tuple[tuple[str, float], ...]
    """What computes longest, as shares of all operators' time."""

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object with these names."""
        return asdict(self)


def step_figures(timeline: Timeline, steps: int, rank: int | None = None) -> StepFigures:
    """Compute the figures of a process that recorded so many steps; all that its timeline holds counts."""
    (case,) = cases_of(replace(timeline, cases=()))
    copies = case.kinds == KINDS.index("copy")
    if {device for device, _ in case.queues} <= {HOST_DEVICE, "cpu"}:
        # A CPU's copies stay in its memory, and its thread computes nothing meanwhile: they are its work.
        copies &= False
    exchanges = case.kinds == KINDS.index("exchange")
    computing, exchanging, copying = (
        union(case.intervals(mask)) for mask in (case.operations & ~copies & ~exchanges, exchanges, copies)
    )
    free = gaps(computing, case.start, case.end)
    exposed_exchange = total_length(intersection(free, exchanging))
    working = total_length(union(computing, exchanging, copying))
    compute, exchange, copy = map(total_length, (computing, exchanging, copying))
    whole = max(1, case.nanoseconds)
    return StepFigures(
        rank=rank,
        steps=steps,
        step_seconds=in_seconds(whole) / steps,
        queues=tuple(
            QueueShare(queue.device, queue.queue, queue.busy_share)
            for queue in figures_of(case).queues
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
        operators=_operators(case),
    )


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


def _operators(case: CaseSpans) -> tuple[tuple[str, float], ...]:
    taken: Counter[str] = Counter()
    for span in case.spans:
        if span.kind == "compute":
            taken[span.name] += span.end - span.start
    whole = taken.total()
    return tuple((name, length / whole) for name, length in taken.most_common(MAX_OPERATORS)) if whole else ()
