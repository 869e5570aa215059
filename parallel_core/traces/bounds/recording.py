"""What the rules on a step read: the steps of one process, or of several that train together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

import numpy as np

from backends.profiling import HOST_DEVICE
from parallel_core.measurement.confidence_intervals import Interval, decide
from parallel_core.measurement.over_rounds import BETWEEN_PROCESSES
from parallel_core.traces.account import (
    PARTS,
    Parts,
    StepAccount,
    account_of,
    over_steps,
)
from parallel_core.traces.case_spans import MAX_SLOWDOWN
from parallel_core.traces.cases import CaseFigures

MOST = 0.5
"""From this share on an exchange overlaps, or is waiting, or goes from one process to another."""
MIN_SHARE = 0.1
"""Time outside of computation that is worth looking at first, as a share of a step."""
COMPUTE, EXCHANGE, COPY, IDLE = PARTS
OUTSIDE = (EXCHANGE, COPY, IDLE)


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
    """The steps of one process, or of several that train together: what the rules read."""

    processes: Sequence[CaseFigures]
    steps: Sequence[Parts]
    """The parts of every step, on average over the processes."""
    waiting: Waiting | None = None
    taken: float = 0.0
    """The share of the cores' time that other processes took."""
    core_wait: float = 0.0
    """The share of a step in which the busiest thread waited for a core."""
    slowdown: float = 1.0
    """A step's time under the profiler over its time without."""
    is_without_profiler: bool = False
    """Whether the steps are as long as without the profiler."""

    @cached_property
    def account(self) -> StepAccount:
        """The median step."""
        wholes = [process.parts for process in self.processes]
        return account_of(self.steps, wholes, self.taken)

    def mean(self, name: str) -> float:
        """Return a figure's mean over the processes; 0 stands for what is not known."""
        return fmean(getattr(process, name) or 0.0 for process in self.processes)

    def sum(self, name: str) -> int | None:
        """Return a count over all processes; None if one does not know it."""
        counts = [getattr(process, name) for process in self.processes]
        return None if None in counts else sum(counts)

    @property
    def is_unseen(self) -> bool:
        """Whether hardly anything was recorded of the devices."""
        queues = [queue for process in self.processes for queue in process.queues]
        nothing_ran = all(queue.device == HOST_DEVICE for queue in queues)
        return nothing_ran or self.mean("unseen_share") >= MOST

    @property
    def is_slowed_down(self) -> bool:
        """Whether a step's parts are the profiler's."""
        return self.slowdown > MAX_SLOWDOWN and not self.is_without_profiler

    @property
    def lacks_cores(self) -> bool:
        """Whether less than half of what looks like computing was computed: in a trace an operator
        computes until it ends, also while its thread has no core.
        """
        if not self.core_wait or not self.is_largest(COMPUTE):
            return False
        return self.core_wait >= self.account.shares[COMPUTE].estimate / 2

    def is_largest(self, part: str, among: tuple[str, ...] = PARTS) -> bool | None:
        """Return whether a part of a step is larger than each other one, of all or of those
        outside of computation; None if that is open.
        """
        largest = self._largest_among[among]
        return None if largest is None else part == largest

    @cached_property
    def _largest_among(self) -> Mapping[tuple[str, ...], str | None]:
        return {parts: largest_part(parts, self.steps, self.taken) for parts in (PARTS, OUTSIDE)}

    @property
    def has_little_outside(self) -> bool | None:
        """Whether no part in which nothing computes is worth looking at first."""
        largest = over_steps(
            lambda of: np.max([of[part] for part in OUTSIDE], axis=0) / of["seconds"],
            self.steps,
            self.taken,
        )
        return below(largest, MIN_SHARE)

    @property
    def is_waiting_for_a_rank(self) -> bool | None:
        """Whether most of the exchange is waiting for a rank that is late."""
        share = self.waiting.share if self.waiting else 0.0
        left = max(1 - self.taken, 1e-9)
        low = (share * (1 - BETWEEN_PROCESSES) - self.taken) / left
        is_little = below(Interval(share, low, share * (1 + BETWEEN_PROCESSES) / left), MOST)
        return None if is_little is None else not is_little

    @property
    def is_loading(self) -> bool | None:
        """Whether at least half of the waiting is for a DataLoader."""
        return below(self.account.shares[IDLE], 2 * self.mean("loading_share"))


def below(interval: Interval, bound: float) -> bool | None:
    """Return whether a whole interval lies below a bound; None if it holds the bound."""
    place = decide(interval, bound)
    return None if place is None else place == 0


def largest_part(names: Sequence[str], steps: Sequence[Parts], taken: float) -> str | None:
    """Return which of some parts is larger than each other one beyond the noise, if any is.

    `taken` is the share of the cores' time that other processes took.
    """
    largest = max(names, key=lambda part: median(getattr(step, part) for step in steps))
    others = [part for part in names if part != largest]
    apart = over_steps(
        lambda of: (of[largest] - np.max([of[part] for part in others], axis=0)) / of["seconds"],
        steps,
        taken,
        is_difference=True,
    )
    return largest if decide(apart, 0.0) == 1 else None
