"""Rules that decide what bounds a step and what to look at first, as data.

The first rule that holds gives its code and its sentence. A rule is open where an interval touches
two answers, and then nothing is decided, so that the same program gives the same answer twice, or
none. Time outside of computation can go without a faster device, so that is looked at first where
it is worth it.
"""

from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from statistics import median
from typing import NamedTuple

from parallel_core.traces.account import Parts
from parallel_core.traces.bounds.recording import (
    COMPUTE,
    COPY,
    EXCHANGE,
    IDLE,
    MOST,
    OUTSIDE,
    Recording,
)

UNKNOWN, INCONCLUSIVE = "unknown", "inconclusive"
"""The code of an answer where a device's work was not recorded, or an interval touches two."""
MANY_STEPS = 30
"""Of so many steps that are alike the interval is as short as more steps can make it."""
ON_A_QUIET_MACHINE = "run it on a quiet machine"
MORE_STEPS = "record more steps (profile --steps N)"
BOTH = "record more steps (profile --steps N), on a quiet machine"
NEITHER = "more steps would not decide it"


class Rule(NamedTuple):
    """What is decided of a recording, and what is said then."""

    code: str
    holds: Callable[[Recording], bool | None]
    """None if that is open."""
    sentence: str = ""


BOUNDS = (
    Rule(
        UNKNOWN,
        lambda recording: recording.is_unseen,
        "Neither overlap nor what bounds it is known: {unseen}.",
    ),
    Rule(
        INCONCLUSIVE,
        lambda recording: recording.is_slowed_down,
        "What bounds it is open: under the profiler it took {slowdown} × as long, so its parts "
        "show the profiler.",
    ),
    Rule(
        "cores",
        lambda recording: recording.lacks_cores,
        "Other work bounds it: for {core_wait} of it its busiest thread waited for a core.",
    ),
    Rule(
        "computation",
        lambda recording: recording.is_largest(COMPUTE),
        "Computing bounds it: {shares}{cores}.",
    ),
    Rule(
        "exchange",
        lambda recording: recording.is_largest(EXCHANGE),
        "Exchange that nothing hides bounds it: {shares}.",
    ),
    Rule(
        "copies",
        lambda recording: recording.is_largest(COPY),
        "Copying that nothing hides bounds it: {shares}.",
    ),
    Rule("waiting", lambda recording: recording.is_largest(IDLE), "Waiting bounds it: {shares}."),
)
"""What bounds a step, in the order in which they are tried."""
FIRST = (
    Rule(UNKNOWN, lambda recording: recording.is_unseen),
    Rule(INCONCLUSIVE, lambda recording: recording.is_slowed_down),
    Rule(
        "cores",
        lambda recording: recording.lacks_cores,
        "what else runs on this machine, and at the program's number of threads",
    ),
    Rule(
        "operators",
        lambda recording: recording.has_little_outside,
        "the operators that compute longest, {operators} of their time",
    ),
    Rule(
        "other-process",
        lambda recording: (
            recording.is_largest(EXCHANGE, OUTSIDE) and recording.mean("between_two_share") >= MOST
        ),
        "the sends and receives: a receive waits until the other process has computed and sent, so "
        "smaller parts of a batch let both compute",
    ),
    Rule(
        "late-rank",
        lambda recording: (
            recording.is_largest(EXCHANGE, OUTSIDE) and recording.is_waiting_for_a_rank
        ),
        "who is late: most of the exchange is waiting, and rank {last_rank} came last in {last} of "
        "{exchanges}",
    ),
    Rule(
        "exchange-less",
        lambda recording: (
            recording.is_largest(EXCHANGE, OUTSIDE) and recording.sum("early_exchanges") != 0
        ),
        "the exchange beyond the backward pass",
    ),
    Rule(
        "exchange-earlier",
        lambda recording: recording.is_largest(EXCHANGE, OUTSIDE),
        "the exchange, which starts after the backward pass",
    ),
    Rule("copies", lambda recording: recording.is_largest(COPY, OUTSIDE), "the copies"),
    Rule(
        "loading",
        lambda recording: recording.is_loading,
        "the DataLoader, for which the program waits {loading} of a step: num_workers, or less to "
        "decode",
    ),
    Rule(
        "launching",
        lambda recording: recording.mean("launching_share") >= MOST,
        "what the host does between launches, for which the devices wait: Python, reading of data; "
        "CUDA graphs, torch.compile or larger batches launch less often",
    ),
    Rule(
        "waiting",
        lambda recording: recording.is_largest(IDLE, OUTSIDE),
        "what the devices wait for: reading of data, Python between the operators, other processes",
    ),
)
"""What to look at first, in the order in which they are tried."""
OPEN = Rule(INCONCLUSIVE, lambda _recording: None)


def decided(rules: Sequence[Rule], recording: Recording) -> Rule:
    """Return the first rule that holds; OPEN if one before it is open."""
    for rule in rules:
        holds = rule.holds(recording)
        if holds is None:
            return OPEN
        if holds:
            return rule
    return OPEN


def what_would_decide(is_decided: Callable[[Recording], bool], recording: Recording) -> str:
    """Return what to do, as a clause, where some steps leave something open.

    More steps make their spread matter less, and a quiet machine what other processes took.
    """
    typical = Parts(*map(median, zip(*map(astuple, recording.steps), strict=True)))
    many_steps = replace(recording, steps=[typical] * MANY_STEPS)
    if recording.taken and is_decided(replace(recording, taken=0.0)):
        return ON_A_QUIET_MACHINE
    if is_decided(many_steps):
        return MORE_STEPS
    if is_decided(replace(many_steps, taken=0.0)):
        return BOTH
    return NEITHER
