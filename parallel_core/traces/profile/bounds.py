"""What bounds a step, and what to look at first: a code and a sentence each.

Time outside of computation can go without a faster device, so that is looked at first where it is
worth it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

import numpy as np

from parallel_core.measurement.confidence_intervals import Interval, decide
from parallel_core.measurement.verdicts import BETWEEN_PROCESSES
from parallel_core.system.formatting import figure, listed, percent
from parallel_core.system.machine import WORTH_SAYING
from parallel_core.traces.account import (
    PARTS,
    Parts,
    StepAccount,
    account_of,
    over_steps,
    share_in_words,
)
from parallel_core.traces.profile.deciding import INCONCLUSIVE, largest_part, what_would_decide
from parallel_core.traces.profile.step_figures import StepFigures

MOST = 0.5
"""From this share on an exchange overlaps, or is waiting, or goes from one process to another."""
MIN_SHARE = 0.1
"""Time outside of computation that is worth looking at first, as a share of a step."""
COMPUTE, EXCHANGE, COPY, IDLE = PARTS
BOUNDS = {
    COMPUTE: ("computation", "Computation bounds a step: {} of it"),
    EXCHANGE: ("exchange", "Exchange that nothing computes under bounds a step: {} of it"),
    COPY: ("copies", "Copying that nothing computes under bounds a step: {} of it"),
    IDLE: ("waiting", "Waiting bounds a step: in {} of it nothing ran"),
}
"""What bounds a step if one of its parts is the largest: a code, and a sentence."""
CORES = "cores"
"""The code of a bound, and of what to look at first: cores that others held."""
OTHERS = "Other work bounds a step: for {} of it its busiest thread waited for a core"
WAITED_FOR_A_CORE = "; for {} of a step its busiest thread waited for a core, and computed less"
FIRST = {
    CORES: "what else runs on this machine, and at the program's number of threads",
    "operators": "the operators that compute longest, {operators} of their time",
    "late-rank": "who is late: most of the exchange is waiting, and rank {last_rank} came last in "
    "{last} of "
    "{exchanges}",
    "exchange-less": "the exchange beyond the backward pass, {share} of a step, for the reason "
    "below",
    "exchange-earlier": "the exchange, which starts after the backward pass and takes {share} of a "
    "step, for the reason below",
    "other-process": "the sends and receives, {share} of a step: a receive waits until the other "
    "process has computed and sent, so smaller parts of a batch let both compute",
    "copies": "the copies, {share} of a step, for the reason below",
    "loading": "the DataLoader, for which the program waits {loading} of a step: num_workers, or "
    "less to decode",
    "launching": "what the host does between launches, for which the devices wait: Python, reading "
    "of data; CUDA graphs, torch.compile or larger batches launch less often",
    "waiting": "what the devices wait for in {share} of a step: reading of data, Python between "
    "the operators, other "
    "processes",
}
"""What to look at first, by its code: time outside of computation can go without a faster
device.
"""
UNDECIDED_BOUND = "Inconclusive what bounds a step ({})"
UNDECIDED_FIRST = "Inconclusive what to look at first ({}): {}."
SLOWED = (
    "Inconclusive what bounds a step: under the profiler it took {} × its time without: its "
    "parts are the profiler's."
)


class Bound(NamedTuple):
    """What bounds a step, and what to look at first: their codes, and one sentence of both."""

    code: str
    first: str
    """A key of FIRST; INCONCLUSIVE if an interval touches two answers."""
    sentence: str


@dataclass(frozen=True)
class Waiting:
    """How several processes waited for each other in the exchanges in which all of them met."""

    share: float
    """Of the time of these exchanges, that beyond the shortest part of each."""
    last_rank: int
    """Who came last most often: in `last` of the exchanges."""
    last: int
    exchanges: int


@dataclass(frozen=True)
class Recording:
    """The steps of one process, or of several that train together."""

    processes: Sequence[StepFigures]
    steps: Sequence[Parts]
    """The parts of every step, on average over the processes."""
    waiting: Waiting | None
    taken: float
    """The share of the cores' time that other processes took."""

    @property
    def account(self) -> StepAccount:
        """The median step."""
        return account_of(self.steps, self.taken)

    @property
    def loading_share(self) -> float:
        """The share of the time in which the program waited for its DataLoader."""
        return fmean(process.loading_share for process in self.processes)

    @property
    def launching_share(self) -> float:
        """The share of the devices' idle time in which they waited for the host to launch."""
        return fmean(process.launching_share for process in self.processes)

    @property
    def is_between_two(self) -> bool:
        """Whether most of the exchange is sends and receives, as in a pipeline."""
        return fmean(process.between_two_share for process in self.processes) >= MOST


def slowed_down(slowdown: float) -> Bound:
    """Return that nothing is known of a step which the profiler slowed down so much."""
    return Bound(INCONCLUSIVE, INCONCLUSIVE, SLOWED.format(figure(slowdown)))


def bound_of(recording: Recording, core_wait: float) -> Bound:
    """Return what bounds a step, and what to look at first.

    `core_wait` is the share of a step in which the busiest thread waited for a core.
    """
    account = recording.account
    shares = account.shares_in_words
    largest = largest_part(PARTS, recording.steps, recording.taken)
    # In a trace an operator computes until it ends, also while its thread has no core.
    if largest == COMPUTE and core_wait >= account.shares[COMPUTE].estimate / 2:
        sentence = f"{OTHERS.format(percent(core_wait))}. Look first at {FIRST[CORES]}."
        return Bound(CORES, CORES, sentence)

    if largest is None:
        code, sentence = INCONCLUSIVE, UNDECIDED_BOUND.format(shares)
    else:
        code, words = BOUNDS[largest]
        sentence = words.format(share_in_words(account.shares[largest]))
        if largest == COMPUTE and core_wait >= WORTH_SAYING:
            sentence += WAITED_FOR_A_CORE.format(percent(core_wait))

    first, share = _first(recording)
    if first in FIRST:
        sentence += f". Look first at {_first_in_words(recording, first, share)}."
    elif largest is None:
        sentence += f": {what_would_decide(_knows_largest, recording.steps, recording.taken)}."
    else:

        def knows_first(steps: Sequence[Parts], taken: float) -> bool:
            return _first(replace(recording, steps=steps, taken=taken))[0] in FIRST

        todo = what_would_decide(knows_first, recording.steps, recording.taken)
        sentence += f". {UNDECIDED_FIRST.format(shares, todo)}"
    return Bound(code, first, sentence)


def _knows_largest(steps: Sequence[Parts], taken: float) -> bool:
    return largest_part(PARTS, steps, taken) is not None


def _first_in_words(recording: Recording, code: str, share: str) -> str:
    """Return what to look at first; `share` is that of a step which it takes, in words."""
    slots: dict[str, object] = {} if recording.waiting is None else dict(vars(recording.waiting))
    operators = recording.processes[0].operators
    slots["operators"] = listed([f"{name} ({percent(taken)})" for name, taken in operators])
    slots["share"] = share
    slots["loading"] = percent(recording.loading_share)
    return FIRST[code].format_map(slots)


def _first(recording: Recording) -> tuple[str, str]:
    """Return the code of what to look at first, and the share of a step that it takes, in words."""
    steps, taken = recording.steps, recording.taken
    outside = (EXCHANGE, COPY, IDLE)
    largest_outside = over_steps(
        lambda of: np.max([of[part] for part in outside], axis=0) / of["seconds"], steps, taken
    )
    is_worth_it = decide(largest_outside, MIN_SHARE)
    if is_worth_it == 0:
        return "operators", ""
    part = largest_part(outside, steps, taken) if is_worth_it else None
    if part is None:
        return INCONCLUSIVE, ""
    if part == EXCHANGE:
        code = _first_of_exchange(recording)
    elif part == COPY:
        code = "copies"
    else:
        code = _first_of_waiting(recording)
    return code, share_in_words(recording.account.shares[part])


def _first_of_exchange(recording: Recording) -> str:
    if recording.is_between_two:
        return "other-process"
    code = "exchange-less" if early_exchanges(recording.processes) != 0 else "exchange-earlier"
    return _decided(_waited(recording.waiting, recording.taken), MOST, code, "late-rank")


def _first_of_waiting(recording: Recording) -> str:
    # Loading that makes up at least half of the waiting.
    idle = recording.account.shares[IDLE]
    code = _decided(idle, 2 * recording.loading_share, "loading", "waiting")
    if code == "waiting" and recording.launching_share >= MOST:
        return "launching"
    return code


def _decided(interval: Interval, bound: float, below: str, above: str) -> str:
    place = decide(interval, bound)
    return INCONCLUSIVE if place is None else (below, above)[place]


def _waited(waiting: Waiting | None, taken: float) -> Interval:
    share, left = waiting.share if waiting else 0.0, max(1 - taken, 1e-9)
    return Interval(
        share,
        (share * (1 - BETWEEN_PROCESSES) - taken) / left,
        share * (1 + BETWEEN_PROCESSES) / left,
    )


def early_exchanges(processes: Sequence[StepFigures]) -> int | None:
    """Return how many exchanges of all processes were early; None if one does not know that."""
    counts = [process.early_exchanges for process in processes]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
