"""The backward passes of a PyTorch program in its trace, and which exchanges they launched.

A pass begins behind the operator that makes the gradient of a loss, and lasts to the next one; it
ends at the latest where an optimizer or another step begins. What a pass launched are exchanges of
gradients, whether its operators launched them or the program did right behind them.
"""

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from backends.profiling import Spans
from parallel_core.traces.case_spans import (
    EARLIEST,
    LATEST,
    NONE,
    CaseSpans,
    groups_of,
    of_last_begun,
)
from parallel_core.traces.steps.figures import step_windows

BACKWARD = "autograd::engine::evaluate_function"
"""PyTorch runs each operator of a backward pass within one of this name."""
IN_BACKWARD = re.compile(f"^{BACKWARD}| backward$")
"""In the names of the operators of a backward pass, also of MXNet's."""
KEEPING = f"{BACKWARD}: torch::autograd::AccumulateGrad"
"""The operator that keeps a gradient that is ready, and launches its exchange: no time to hide it
under.
"""
GRADIENT_OF_LOSS = "aten::ones_like"
"""What `backward` calls first, for a loss that is one number."""
OPTIMIZER = "Optimizer.step#"
"""How PyTorch annotates an optimizer's step."""
OF_GRADIENTS = re.compile(r"all_?reduce|reduce_?scatter", re.IGNORECASE)
"""In the names of exchanges that may be of gradients; what gathers weights is none."""
SCATTERED = re.compile(r"reduce_?scatter", re.IGNORECASE)
BEHIND_A_PASS = 0.25
"""What lies behind a pass and is larger than this share of it is another one: a forward pass."""
COPIED = 50_000
"""Nanoseconds: a thread that takes less to keep a gradient may only refer to it, whatever its size;
to copy what takes time to exchange, as into a bucket, takes longer.
"""
LEFT_OVER = 0.1
"""Of a forward pass: what has ended when less of it is computed is of the step before."""
MOSTLY = 0.5
SHORT = 10_000
"""Nanoseconds: what takes less is no layer's, and may only look at data in another way."""
Phase = Literal["forward", "backward", "after"]
"""In which pass an exchange is launched; what is launched after both has none to hide under."""
PHASES: tuple[Phase, ...] = get_args(Phase)
OF_FORWARD, OF_BACKWARD, AFTER_BOTH = range(len(PHASES))
"""Their places in PHASES."""


@dataclass(frozen=True, eq=False)
class Passes:
    """Backward passes in the order of time; an entry for each in all arrays, in nanoseconds."""

    starts: np.ndarray
    last_starts: np.ndarray
    """When its last operator began that does not only keep a gradient."""
    ends: np.ndarray
    limits: np.ndarray
    """Until when what follows it belongs to it."""
    updates: np.ndarray
    """Which update of the weights it is for, by number."""
    are_ready_last: np.ndarray
    """Whether most of its gradients, by the time to keep them, were ready when all was computed."""

    def numbers_at(self, times: np.ndarray) -> np.ndarray:
        """Return the number of the pass to which each time belongs, or NONE."""
        if len(self.starts) == 0:
            return np.full(len(times), NONE)
        numbers = np.searchsorted(self.starts, times, side="right") - 1
        return np.where(times < self.limits[numbers], numbers, NONE)


class _Operators(NamedTuple):
    """The operators of all backward passes, in the order of their start, in nanoseconds."""

    starts: np.ndarray
    latest_ends: np.ndarray
    """The latest end so far: of each operator and all before it."""
    computes: np.ndarray
    """Whether it does not only keep a gradient."""
    copying_times: np.ndarray
    """How long a copy of the gradient took that the operator keeps; 0 if it copies none."""


def backward_passes(case: CaseSpans) -> Passes:
    """Find the backward passes of a case; there are none if no operator is known as one of them."""
    backward = np.flatnonzero(case.named(f"^{BACKWARD}"))
    if len(backward) == 0:
        nothing = np.zeros(0, np.int64)
        return Passes(nothing, nothing, nothing, nothing, nothing, nothing.astype(bool))
    keeps = case.named(f"^{KEEPING}")[backward]
    operators = _Operators(
        case.spans.starts[backward],
        np.maximum.accumulate(case.spans.ends[backward]),
        computes=~keeps,
        copying_times=np.zeros(len(backward), np.int64),
    )
    operators.copying_times[keeps] = _copying_times(case, backward[keeps])
    updates = np.array(
        sorted(mark.start for mark in case.annotations if mark.name.startswith(OPTIMIZER)), np.int64
    )
    # Some optimizers step within a pass, which goes on then.
    ends = of_last_begun(operators.starts, operators.latest_ends, updates, EARLIEST)
    updates = updates[ends <= updates]
    steps = np.array([window.start for window in step_windows(case.annotations)], np.int64)
    losses = case.spans.starts[case.named(f"^{GRADIENT_OF_LOSS}")]
    return _divided(
        operators,
        boundaries=np.unique(np.concatenate((updates, steps, losses))),
        updates=updates if len(updates) else steps,
    )


def _divided(operators: _Operators, boundaries: np.ndarray, updates: np.ndarray) -> Passes:
    """Return the passes between boundaries, times in order; `updates` are when weights change.

    Without updates each pass may be for one of its own.
    """
    count = len(operators.starts)
    # A pass begins with the first operator behind a boundary.
    boundaries_before = np.searchsorted(boundaries, operators.starts, side="right")
    first_operators = np.flatnonzero(np.diff(boundaries_before, prepend=-1))
    last_operators = np.append(first_operators[1:], count) - 1
    starts = operators.starts[first_operators]

    # For each operator, the last one up to it that computes.
    last_computing = np.maximum.accumulate(np.where(operators.computes, np.arange(count), 0))
    # Of a pass that only keeps gradients the first operator stands for the last one.
    last_of_pass = np.maximum(last_computing[last_operators], first_operators)
    update_of_pass = np.arange(len(first_operators))
    if len(updates):
        update_of_pass = np.searchsorted(updates, starts, side="right")
    # The longer a copy takes, the larger its gradient is.
    copied_until = np.cumsum(operators.copying_times)
    copied_before = np.append(0, copied_until)[first_operators]
    copied_at_all = copied_until[last_operators] - copied_before
    copied_last = copied_until[last_operators] - copied_until[last_of_pass]
    return Passes(
        starts,
        last_starts=operators.starts[last_of_pass],
        ends=operators.latest_ends[last_operators],
        limits=np.append(boundaries, LATEST)[boundaries_before[first_operators]],
        updates=update_of_pass,
        are_ready_last=copied_last > MOSTLY * copied_at_all,
    )


def _copying_times(case: CaseSpans, keeping: np.ndarray) -> np.ndarray:
    """Return how long each operator that keeps a gradient took to copy it, in nanoseconds.

    `keeping` are the operators' places. Those of a CPU copy themselves, those of a host launch it.
    """
    lengths = case.lengths[keeping]
    copying_times = np.where(lengths >= COPIED, lengths, 0)
    by_launch = np.flatnonzero(~case.operations[keeping])
    if len(by_launch) == 0:
        return copying_times
    starts, ends = case.spans.starts[keeping[by_launch]], case.spans.ends[keeping[by_launch]]
    work = np.flatnonzero(case.of_kind("compute", "copy"))
    launches = case.since[work]
    is_within = launches < of_last_begun(starts, ends, launches, EARLIEST)
    operator = np.searchsorted(starts, launches[is_within], side="right") - 1
    copying_times[by_launch] = np.bincount(operator, case.lengths[work[is_within]], len(by_launch))
    return copying_times


def passes_of_exchanges(case: CaseSpans, passes: Passes, places: np.ndarray) -> np.ndarray:
    """Return the number of the pass whose gradients each exchange is of, or NONE.

    `places` are those of exchanges in the case's spans.
    """
    launched = case.since[places]
    numbers = passes.numbers_at(launched)
    exchanges = case.spans.select(places)
    may_be_of_gradients = (numbers != NONE) & named(exchanges, OF_GRADIENTS)
    # A layer's own exchange lies in the layer's operator of the pass.
    layers = np.flatnonzero(case.named(f"^{BACKWARD}") & ~case.named(f"^{KEEPING}"))
    starts, ends = case.intervals(layers).T
    is_in_layer = of_last_begun(starts, ends, launched, EARLIEST) > launched
    is_of_layer = is_in_layer & ~named(exchanges, SCATTERED)
    is_far = _far_behind(case, passes, numbers, launched)
    return np.where(may_be_of_gradients & ~is_of_layer & ~is_far, numbers, NONE)


def named(spans: Spans, pattern: re.Pattern[str]) -> np.ndarray:
    """Return the mask of the spans whose name, or full name, holds a pattern."""
    by_name = np.array([pattern.search(name) is not None for name in spans.names], bool)
    by_operator = np.array([pattern.search(name) is not None for name in spans.operators], bool)
    return by_name[spans.name_of] | by_operator[spans.operator_of]


def _far_behind(
    case: CaseSpans, passes: Passes, numbers: np.ndarray, times: np.ndarray
) -> np.ndarray:
    """Return whether a forward pass, or as much, lies between the end of its pass and each time.

    `numbers` are those of the passes to which the times belong, or NONE.
    """
    computing = case.in_order_of_launch(case.of_kind("compute"))
    launches, lengths = case.since[computing], case.lengths[computing]
    # The time that the first computations took together, and how many of them are not short.
    time_of_first = np.concatenate(([0], np.cumsum(lengths)))
    count_of_first = np.concatenate(([0], np.cumsum(lengths >= SHORT)))

    belongs = numbers != NONE
    pass_of = numbers[belongs]
    # How many computations were launched before the pass began, before it ended, before the time.
    before_pass = np.searchsorted(launches, passes.starts[pass_of])
    before_end = np.searchsorted(launches, passes.ends[pass_of])
    before_time = np.searchsorted(launches, times[belongs])
    # A forward pass has many operations and takes time; to join gradients takes time with few.
    is_far = belongs.copy()
    for amount_of_first in (time_of_first, count_of_first):
        of_pass = amount_of_first[before_end] - amount_of_first[before_pass]
        behind_pass = amount_of_first[before_time] - amount_of_first[before_end]
        is_far[belongs] &= behind_pass > BEHIND_A_PASS * of_pass
    return is_far


def phases_of_exchanges(case: CaseSpans) -> np.ndarray | None:
    """Return in which pass each exchange was launched, by its place in PHASES; None if no operator
    is known as a backward pass's.

    Without steps those are of the backward pass after whose launch the next operator is.
    """
    spans = case.spans
    is_backward = named(spans, IN_BACKWARD)
    if not is_backward.any():
        return None
    # Of a GPU's program the operators are the host's, and the kernels run later.
    on_host = case.of_kind("host")
    operators = np.flatnonzero(on_host if on_host.any() else case.of_kind("compute"))
    operators = operators[~case.named(f"^{KEEPING}")[operators]]
    exchanges = np.flatnonzero(case.of_kind("exchange"))
    launches = case.since[exchanges]
    windows = step_windows(case.annotations)
    if not windows:
        next_operator = np.searchsorted(spans.starts[operators], launches, side="right")
        is_before_backward = np.append(is_backward[operators], False)[next_operator]
        return np.where(is_before_backward, OF_BACKWARD, AFTER_BOTH)

    # An exchange that is launched at the first mark is of the forward pass, at the second of the
    # backward pass, and at the third of neither, for the last operator has begun.
    #     |F F F B B B B   |
    #        ^     ^    ^
    begins = np.array([window.start for window in windows])
    ends = np.array([window.end for window in windows])
    backward = spans.starts[operators[is_backward[operators]]]
    # In a step without a pass the last operator is of an earlier step: no launch is before it.
    last_start = of_last_begun(backward, backward, ends, EARLIEST, side="left")
    first_start = np.append(backward, LATEST)[np.searchsorted(backward, begins)]
    step = np.searchsorted(begins, launches, side="right") - 1
    is_early = (step >= 0) & (launches < last_start[step])
    is_early &= ~_left_over(case, exchanges, step, begins, first_start)
    is_forward = is_early & (launches < first_start[step])
    return np.select([is_forward, is_early], [OF_FORWARD, OF_BACKWARD], AFTER_BOTH)


def _left_over(
    case: CaseSpans,
    exchanges: np.ndarray,
    step_of: np.ndarray,
    begins: np.ndarray,
    pass_starts: np.ndarray,
) -> np.ndarray:
    """Return which exchanges of gradients or weights ended before a forward pass computed: they are
    of the step before.

    `begins` says when each step begins, and `pass_starts` when its backward pass does.
    """
    spans = case.spans
    computing = case.in_order_of_launch(case.of_kind("compute"))
    launches = case.since[computing]
    of_gradients = named(spans.select(exchanges), OF_GRADIENTS)
    is_left_over = np.zeros(len(exchanges), bool)
    in_steps = np.flatnonzero(of_gradients & (step_of >= 0))
    for same_step in groups_of(step_of[in_steps]):
        of_step = in_steps[same_step]
        step = step_of[of_step[0]]
        from_begin, to_pass = np.searchsorted(launches, (begins[step], pass_starts[step]))
        forward_pass = computing[from_begin:to_pass]
        by_end = forward_pass[np.argsort(spans.ends[forward_pass], kind="stable")]
        time_of_first = np.append(0, np.cumsum(case.lengths[by_end]))
        ended = np.searchsorted(spans.ends[by_end], spans.ends[exchanges[of_step]], side="right")
        is_left_over[of_step] = time_of_first[ended] < LEFT_OVER * time_of_first[-1]
    return is_left_over
