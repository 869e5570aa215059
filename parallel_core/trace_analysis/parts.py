"""What a time consists of, and the median step's parts with intervals: `trace` and `profile` read
both here.

The parts of a time sum to it: some queue computes; none does, but one exchanges; neither, but one
copies; nothing runs. An interval is over the steps of one recording, no shorter than what differs
between processes. Where other work took a share s of the cores' time, any part may have lost up to
s of the time to them. What the median step hides, such as the time between epochs, is a pause.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np

from backends.profiling import HOST_DEVICE, Window, in_seconds
from parallel_core.measurement.confidence_intervals import Interval, exponential
from parallel_core.measurement.verdicts import BETWEEN_PROCESSES, in_percent, over_rounds
from parallel_core.system.formatting import listed, percent, seconds
from parallel_core.trace_analysis.case_spans import (
    ALL,
    CaseSpans,
    clip,
    gaps,
    intersection,
    total_length,
    union,
)

PARTS = ("compute_seconds", "exposed_exchange_seconds", "exposed_copy_seconds", "idle_seconds")
"""Those that sum to the whole."""
WORDS: Mapping[str, str] = dict(
    zip(PARTS, ("computing", "exchange only", "copies only", "waiting"), strict=True)
)
LEAST_PAUSE = 0.1
"""By how much the share of a recording in which nothing ran exceeds the median step's, if it is
said.
"""
Formula: TypeAlias = Callable[[dict[str, Any]], Any]
"""What follows from the medians of the steps' parts, element by element."""


@dataclass(frozen=True)
class Parts:
    """A time and its parts, over all devices together."""

    seconds: float
    compute_seconds: float
    exposed_exchange_seconds: float
    exposed_copy_seconds: float
    idle_seconds: float
    exchange_seconds: float
    """How long an exchange ran, whatever ran meanwhile."""
    hidden_exchange_seconds: float
    """How much of that lay under computation."""
    copy_seconds: float
    hidden_copy_seconds: float

    @property
    def hidden_exchange_share(self) -> float | None:
        """The share of the exchange that lay under computation; None without an exchange."""
        return (
            self.hidden_exchange_seconds / self.exchange_seconds if self.exchange_seconds else None
        )

    @property
    def hidden_copy_share(self) -> float | None:
        """The share of the copying that lay under computation; None without a copy."""
        return self.hidden_copy_seconds / self.copy_seconds if self.copy_seconds else None


NAMES = tuple(field.name for field in fields(Parts))


@dataclass(frozen=True)
class StepAccount:
    """The median step with intervals: its time, and its parts as shares of it, which are named in
    PARTS.
    """

    steps: int
    seconds: float
    seconds_interval: Interval | None
    """None for a single step."""
    shares: dict[str, Interval]

    @property
    def seconds_in_words(self) -> str:
        """The time with its interval, if there is one."""
        time, over = seconds(self.seconds), self.seconds_interval
        return f"{time} ({seconds(over.low)} … {seconds(over.high)})" if over else time

    @property
    def shares_in_words(self) -> str:
        """The parts that there are, with their intervals."""
        return listed(
            [f"{share_in_words(self.shares[part])} {WORDS[part]}" for part in self.present]
        )

    @property
    def present(self) -> tuple[str, ...]:
        """The parts that take something of a step."""
        return tuple(part for part, share in self.shares.items() if round(share.estimate, 2) > 0)


def share_in_words(share: Interval) -> str:
    """Write a share with its interval: `60 % (55–65 %)`; without, if nothing is known of it."""
    return percent(share.estimate) if (share.low, share.high) == (0, 1) else in_percent(share)


def parts_of(case: CaseSpans, times: Sequence[tuple[int, int]]) -> tuple[Parts, ...]:
    """Divide each of some times, from start to end in nanoseconds, by what a case's operations did
    in it.
    """
    of_kinds = times_by_kind(case)
    return tuple(
        _parts(start, end, *(clip(one, start, end) for one in of_kinds)) for start, end in times
    )


def times_by_kind(case: CaseSpans) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return when a case computed, exchanged and copied, as interval sets."""
    copies, exchanges = case.of_kind("copy"), case.of_kind("exchange")
    if case.name == ALL and {device for device, _ in case.spans.queues} <= {HOST_DEVICE, "cpu"}:
        # A CPU's copies stay in its memory, and its thread computes nothing meanwhile: they are its
        # work.
        copies = np.zeros_like(copies)
    return (
        case.covered(case.operations & ~copies & ~exchanges),
        case.covered(exchanges),
        case.covered(copies),
    )


def _parts(
    start: int, end: int, computing: np.ndarray, exchanging: np.ndarray, copying: np.ndarray
) -> Parts:
    compute, exchange, copy = map(total_length, (computing, exchanging, copying))
    exposed_exchange = total_length(intersection(gaps(computing, start, end), exchanging))
    working = total_length(union(computing, exchanging, copying))
    lengths = (
        end - start,
        compute,
        exposed_exchange,
        working - compute - exposed_exchange,
        end - start - working,
        exchange,
        total_length(intersection(computing, exchanging)),
        copy,
        total_length(intersection(computing, copying)),
    )
    return Parts(*map(in_seconds, lengths))


def over_steps(
    formula: Formula, steps: Sequence[Parts], taken: float = 0.0, *, is_difference: bool = False
) -> Interval:
    """Return a share of a step, or the difference of two, with its interval; unbounded for a single
    step.

    `taken` is the share of the cores' time that other processes took.
    """
    columns = [[getattr(step, name) for step in steps] for name in NAMES]

    def quantity(*medians: np.ndarray) -> np.ndarray:
        return np.asarray(formula(dict(zip(NAMES, medians, strict=True))))

    found = over_rounds(quantity, *columns, noise=BETWEEN_PROCESSES)
    left = max(1 - taken, 1e-9)
    low, high = (found.low - taken) / left, (found.high + taken * is_difference) / left
    # A share is between 0 and 1.
    return (
        Interval(found.estimate, low, high)
        if is_difference
        else Interval(found.estimate, max(low, 0), min(high, 1))
    )


def share_of(part: str, whole: str = "seconds") -> Formula:
    """Return the formula of a part's share of a step, or of another part."""
    return lambda of: of[part] / of[whole]


def account_of(steps: Sequence[Parts], taken: float = 0.0) -> StepAccount:
    """Return the median of steps, each of which took some time; `taken` is other processes' share
    of the cores.
    """
    over = exponential(
        over_rounds(np.log, [step.seconds for step in steps], noise=BETWEEN_PROCESSES)
    )
    return StepAccount(
        len(steps),
        over.estimate,
        Interval(over.estimate, over.low * (1 - taken), over.high) if len(steps) > 1 else None,
        {part: over_steps(share_of(part), steps, taken) for part in PARTS},
    )


@dataclass(frozen=True)
class Pause:
    """The time of a recording in which nothing ran, where the median step shows little of it."""

    share: float
    """Of the recording."""
    step_share: float
    """Of the median step."""
    longest_seconds: float
    after: str
    """The step in which the longest stretch without any operation begins."""
    before: str
    """The step in which that ends; the same if it lies in one."""

    @property
    def in_words(self) -> str:
        """What it is, and where it is longest."""
        where = f"in {self.after}"
        if self.after != self.before:
            where = f"between {self.after} and {self.before}"
        return (
            f"nothing ran in {percent(self.share)} of the recording, and in "
            f"{percent(self.step_share)} of the median step: longest {where}, for "
            f"{seconds(self.longest_seconds)}"
        )


def pause_of(case: CaseSpans, steps: Sequence[Window], step_share: float) -> Pause | None:
    """Return the time in which nothing ran if the median step, idle for a share, hides it."""
    # A recording may begin before its first step and end after its last one.
    start, end = max(case.start, steps[0].start), case.end
    idle = gaps(case.covered(case.operations), start, end)
    share = total_length(idle) / max(end - start, 1)
    if share - step_share < LEAST_PAUSE or len(idle) == 0:
        return None
    longest = idle[np.argmax(idle[:, 1] - idle[:, 0])]
    begins = [step.start for step in steps]
    first, last = np.searchsorted(begins, longest, side="right") - 1
    return Pause(
        share,
        step_share,
        in_seconds(longest[1] - longest[0]),
        steps[max(first, 0)].name,
        steps[max(last, 0)].name,
    )
