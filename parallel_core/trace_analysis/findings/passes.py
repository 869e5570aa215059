"""The backward passes of a PyTorch program in its trace, and which exchanges they launched.

A pass begins behind the operator that makes the gradient of a loss, and lasts to the next one; it
ends at the latest where an optimizer or another step begins. What a pass launched are exchanges of
gradients, whether its operators launched them or the program did right behind them.
"""

import re
from dataclasses import dataclass

import numpy as np

from backends.profiling import Spans
from parallel_core.trace_analysis.case_spans import CaseSpans
from parallel_core.trace_analysis.steps.figures import step_windows

BACKWARD = "autograd::engine::evaluate_function"
"""PyTorch runs each operator of a backward pass within one of this name."""
KEEPING = f"{BACKWARD}: torch::autograd::AccumulateGrad"
"""Keeps a gradient that is ready, and launches its exchange: no time to hide it under."""
GRADIENT_OF_LOSS = "aten::ones_like"
"""What `backward` calls first, for a loss that is one number."""
OPTIMIZER = "Optimizer.step#"
"""How PyTorch annotates an optimizer's step."""
OF_GRADIENTS = re.compile(r"all_?reduce|reduce_?scatter", re.IGNORECASE)
"""In the names of exchanges that may be of gradients; what gathers weights is none."""
SCATTERED = re.compile(r"reduce_?scatter", re.IGNORECASE)
BEHIND_A_PASS = 0.25
"""What lies behind a pass and is larger than this share of it is another one: a forward pass."""
SHORT = 10_000
"""Nanoseconds: what takes less is no layer's, and may only look at data in another way."""
NONE = -1


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

    def of(self, times: np.ndarray) -> np.ndarray:
        """Return the number of the pass to which each time belongs, or NONE."""
        if len(self.starts) == 0:
            return np.full(len(times), NONE)
        numbers = np.searchsorted(self.starts, times, side="right") - 1
        return np.where(times < self.limits[numbers], numbers, NONE)


def backward_passes(case: CaseSpans) -> Passes:
    """Find the backward passes of a case; there are none if no operator is known as one of them."""
    spans = case.spans
    backward = np.flatnonzero(_named(case, BACKWARD))
    if len(backward) == 0:
        return Passes(*np.zeros((5, 0), np.int64))
    starts, ends = spans.starts[backward], spans.ends[backward]
    latest_end = np.maximum.accumulate(ends)
    updates = _outside(_begun(case, OPTIMIZER), starts, latest_end)
    steps = [window.start for window in step_windows(case.annotations)]
    losses = spans.starts[_named(case, GRADIENT_OF_LOSS)]
    boundaries = np.unique(np.concatenate((updates, steps, losses)).astype(np.int64))
    part_of = np.searchsorted(boundaries, starts, side="right")
    firsts = np.flatnonzero(np.diff(part_of, prepend=-1))
    lasts = np.append(firsts[1:], len(backward)) - 1
    computing = ~_named(case, KEEPING)[backward]
    # Of a pass that only keeps gradients the first operator stands for the last one.
    last_computing = np.maximum.accumulate(np.where(computing, np.arange(len(backward)), 0))
    limits = np.append(boundaries, np.iinfo(np.int64).max)[part_of[firsts]]
    counted = updates if len(updates) else np.array(steps, np.int64)
    numbers = np.searchsorted(counted, starts[firsts], side="right")
    return Passes(
        starts[firsts],
        starts[np.maximum(last_computing[lasts], firsts)],
        latest_end[lasts],
        limits,
        # Without updates or steps each pass may be for one of its own.
        numbers if len(counted) else np.arange(len(firsts)),
    )


def passes_of_exchanges(case: CaseSpans, passes: Passes, places: np.ndarray) -> np.ndarray:
    """Return the number of the pass whose gradients each exchange is of, or NONE.

    `places` are those of exchanges in the case's spans.
    """
    launched = case.since[places]
    numbers = passes.of(launched)
    exchanges = case.spans.select(places)
    # A layer's own exchange lies in the layer's operator of the pass.
    counts = exchanges_named(exchanges, SCATTERED) | ~_inside_a_layer(case, launched)
    counts &= (numbers != NONE) & exchanges_named(exchanges, OF_GRADIENTS)
    counts &= ~_far_behind(case, passes, numbers, launched)
    return np.where(counts, numbers, NONE)


def _inside_a_layer(case: CaseSpans, times: np.ndarray) -> np.ndarray:
    layers = np.flatnonzero(_named(case, BACKWARD) & ~_named(case, KEEPING))
    before = np.searchsorted(case.spans.starts[layers], times, side="right") - 1
    ends = np.append(case.spans.ends[layers], np.iinfo(np.int64).min)
    return ends[before] > times


def exchanges_named(exchanges: Spans, pattern: re.Pattern[str]) -> np.ndarray:
    """Return the mask of the exchanges whose name, or full name, holds a pattern."""
    by_name = np.array([pattern.search(name) is not None for name in exchanges.names], bool)
    by_operator = np.array([pattern.search(name) is not None for name in exchanges.operators], bool)
    return by_name[exchanges.name_of] | by_operator[exchanges.operator_of]


def _far_behind(
    case: CaseSpans, passes: Passes, numbers: np.ndarray, times: np.ndarray
) -> np.ndarray:
    """Return whether a forward pass, or as much, lies between the end of its pass and each time."""
    computing = np.flatnonzero(case.of_kind("compute"))
    computing = computing[np.argsort(case.since[computing], kind="stable")]
    launches, lengths = case.since[computing], case.lengths[computing]
    time_before = np.concatenate(([0], np.cumsum(lengths)))
    count_before = np.concatenate(([0], np.cumsum(lengths >= SHORT)))
    inside = np.flatnonzero(numbers != NONE)
    own = numbers[inside]
    moments = passes.starts[own], passes.ends[own], times[inside]
    begun, ended, asked = (np.searchsorted(launches, moment) for moment in moments)
    far = np.ones(len(inside), bool)
    # A forward pass has many operations and takes time; to join gradients takes time with few.
    for before in (time_before, count_before):
        of_pass = before[ended] - before[begun]
        far &= before[asked] - before[ended] > BEHIND_A_PASS * of_pass
    is_far = np.zeros(len(times), bool)
    is_far[inside] = far
    return is_far


def covered_before(intervals: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return how much of an interval set lies before each time, in nanoseconds."""
    if len(intervals) == 0:
        return np.zeros(len(times), np.int64)
    lengths = intervals[:, 1] - intervals[:, 0]
    before = np.concatenate(([0], np.cumsum(lengths)))
    begun = np.searchsorted(intervals[:, 0], times, side="right")
    last = np.maximum(begun - 1, 0)
    unfinished = np.where(begun > 0, np.maximum(intervals[last, 1] - times, 0), 0)
    return before[begun] - unfinished


def _named(case: CaseSpans, beginning: str) -> np.ndarray:
    """Return the mask of the spans whose operator's name begins so."""
    named = np.array([name.startswith(beginning) for name in case.spans.operators], bool)
    return named[case.spans.operator_of] if len(named) else np.zeros(0, bool)


def _begun(case: CaseSpans, beginning: str) -> np.ndarray:
    """Return when annotations begin whose names begin so, in order."""
    marked = [mark.start for mark in case.annotations if mark.name.startswith(beginning)]
    return np.array(sorted(marked), np.int64)


def _outside(times: np.ndarray, starts: np.ndarray, latest_end: np.ndarray) -> np.ndarray:
    """Return the times at which no operator of a backward pass runs: some optimizers step in it."""
    before = np.searchsorted(starts, times, side="right") - 1
    ends = np.append(latest_end, np.iinfo(np.int64).min)
    return times[ends[before] <= times]
