"""What a time consists of, and the median step's parts with intervals: `trace` and `profile` read
both here.

The parts of a time sum to it. At each instant the first that holds counts: some queue computes; one
exchanges; one copies; nothing runs. Of the time in which nothing runs, the part is known in which
the host stood in a call that waits: in the rest it launches, or does not, as Python pleases. What
copies within a device is that device's work, and no transfer.

An exchange is hidden by what the same device computes: that another one computes meanwhile does not
help the one that waits. A copy is hidden by what any device computes.

An interval is over the steps of one recording, no shorter than what differs between processes.
Where other work took a share s of the cores' time, any part may have lost up to s of the time to
it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import lru_cache
from math import inf
from statistics import fmean
from typing import Annotated, Any, NamedTuple

import numpy as np

from backends.profiling import HOST_DEVICE
from parallel_core.measurement.confidence_intervals import Interval, exponential
from parallel_core.measurement.over_rounds import BETWEEN_PROCESSES, in_percent, over_rounds
from parallel_core.system.formatting import listed, percent
from parallel_core.traces.case_spans import (
    ALL,
    NO_INTERVALS,
    CaseSpans,
    gaps,
    intersection,
    lengths_within,
    places_by_key,
    union,
)
from parallel_core.traces.devices import FILLS, WITHIN_A_DEVICE
from parallel_core.traces.devices.blocking import blocked_times
from parallel_core.traces.figures import (
    Count,
    Lacking,
    Seconds,
    SecondsInterval,
    ShareInterval,
    ratio,
)

PARTS = ("compute_seconds", "exposed_exchange_seconds", "exposed_copy_seconds", "idle_seconds")
"""Those that sum to the whole."""
WORDS: Mapping[str, str] = dict(
    zip(PARTS, ("computing", "exchange only", "copies only", "waiting"), strict=True)
)
LEAST = 0.005
"""A smaller share would be written as 0 %, and is left out."""
Formula = Callable[[dict[str, Any]], Any]
"""What follows from the medians of the steps' parts, element by element."""


@dataclass(frozen=True)
class Parts:
    """A time and its parts, over all devices together."""

    seconds: Seconds
    compute_seconds: Seconds
    exposed_exchange_seconds: Seconds
    exposed_copy_seconds: Seconds
    idle_seconds: Seconds
    exchange_seconds: Seconds
    """How long an exchange ran on a device, whatever ran meanwhile; the mean of the devices that
    exchange.
    """
    hidden_exchange_seconds: Seconds
    """How much of that lay under the same device's computation."""
    copy_seconds: Seconds
    hidden_copy_seconds: Seconds
    blocked_seconds: Seconds = 0.0
    """How much of the idle time the host stood in a call that waits for a device."""

    @property
    def hidden_exchange_share(self) -> float | None:
        """The share of the exchange that lay alongside computation; None without an exchange."""
        return ratio(self.hidden_exchange_seconds, self.exchange_seconds)

    @property
    def hidden_copy_share(self) -> float | None:
        """The share of the copying that lay alongside computation; None without a copy."""
        return ratio(self.hidden_copy_seconds, self.copy_seconds)


def bounds_in_words(parts: Parts, has_host: bool) -> str:
    """Write the shares of what bounds a time; without the host's calls, who is waited for is not
    known.
    """
    launching = parts.idle_seconds - parts.blocked_seconds
    waiting = {"the host launches": launching, "a blocking call": parts.blocked_seconds}
    bounds = {
        "computing": parts.compute_seconds,
        "exchange only": parts.exposed_exchange_seconds,
        "copies only": parts.exposed_copy_seconds,
        **(waiting if has_host else {"waiting": parts.idle_seconds}),
    }
    shares = {name: taken / parts.seconds for name, taken in bounds.items()}
    return listed([f"{percent(share)} {name}" for name, share in shares.items() if share >= LEAST])


NAMES = tuple(field.name for field in fields(Parts))
OF_DEVICES = [NAMES.index("exchange_seconds"), NAMES.index("hidden_exchange_seconds")]
"""The parts that are means over the devices that exchange."""


@dataclass(frozen=True)
class StepAccount:
    """The median step with intervals: its time, and its parts as shares of it, which are named in
    PARTS.
    """

    steps: Count
    seconds: Seconds
    seconds_interval: Annotated[SecondsInterval | None, Lacking("single-step")]
    shares: dict[str, Interval]
    hidden_exchange_share: Annotated[ShareInterval | None, Lacking("no-exchange")]
    """The share of the exchange of all steps that lay alongside computation."""
    hidden_copy_share: Annotated[ShareInterval | None, Lacking("no-copies")]

    @property
    def time(self) -> Interval:
        """The time with its interval, which is unbounded for a single step."""
        return self.seconds_interval or Interval(self.seconds, 0.0, inf)


def share_in_words(share: Interval) -> str:
    """Write a share with its interval: `60 % (55–65 %)`; without, if nothing is known of it."""
    is_unknown = share.low == 0 and share.high == 1
    return percent(share.estimate) if is_unknown else in_percent(share)


class Activities(NamedTuple):
    """What devices did: the masks of the spans, or the interval sets that they cover."""

    working: np.ndarray
    """A device's own work: it computed, filled its memory or copied within it."""
    exchanging: np.ndarray
    copying: np.ndarray
    """From one device to another, to the host or from it."""
    computing: np.ndarray
    """Work that may hide a copy: all but what copies within a device."""


class DeviceExchange(NamedTuple):
    """When a device exchanged, and when something computed that hides its exchange, as interval
    sets.
    """

    device: str
    places: np.ndarray
    """Of the exchanges, in the case's spans."""
    exchanging: np.ndarray
    computing: np.ndarray

    @property
    def hidden(self) -> np.ndarray:
        """The times of the exchange that lie under the computation."""
        return intersection(self.exchanging, self.computing)


def masks_of(case: CaseSpans) -> Activities:
    """Return the masks of a case's spans by what they did."""
    copying, exchanging = case.of_kind("copy"), case.of_kind("exchange")
    within_a_device = case.named(WITHIN_A_DEVICE)
    if case.name == ALL:
        copying &= ~within_a_device
        devices = {device for device, _ in case.spans.queues}
        if devices <= {HOST_DEVICE, "cpu"}:
            # A CPU's copies stay in its memory, and its thread computes nothing meanwhile: they are
            # its work.
            copying = np.zeros_like(copying)
    working = case.operations & ~copying & ~exchanging
    computing = working & ~within_a_device if within_a_device.any() else working
    return Activities(working, exchanging, copying, computing)


def times_of(case: CaseSpans) -> Activities:
    """Return when a case's operations ran, on all devices together, as interval sets."""
    masks = masks_of(case)
    working = case.covered(masks.working)
    # Of a million spans, to find out twice takes a tenth of a second.
    computing = working if masks.computing is masks.working else case.covered(masks.computing)
    return Activities(
        working=working,
        exchanging=case.covered(masks.exchanging),
        copying=case.covered(masks.copying),
        computing=computing,
    )


def exchanges_by_device(case: CaseSpans) -> tuple[DeviceExchange, ...]:
    """Return when each device of a case exchanged that did, in the order of their first spans.

    What a device computes hides its own exchange. One that never computes exchanges on behalf of
    the others, and any of them hides it.
    """
    masks, device_of = masks_of(case), case.device_of
    # As Holistic Trace Analysis has it, filling memory hides no exchange.
    kernels = np.flatnonzero(masks.computing & ~case.named(FILLS))
    kernels_of = places_by_key(device_of, kernels)
    exchanges_of = places_by_key(device_of, np.flatnonzero(masks.exchanging))
    all_compute = set(exchanges_of) <= set(kernels_of)
    on_any_device = NO_INTERVALS if all_compute else case.covered(kernels)
    rows = []
    for number, exchanges in exchanges_of.items():
        kernels_on_device = kernels_of.get(number)
        computing = on_any_device
        if kernels_on_device is not None:
            computing = case.covered(kernels_on_device)
        device, _ = case.spans.queues[number]
        rows.append(DeviceExchange(device, exchanges, case.covered(exchanges), computing))
    return tuple(rows)


class Division(NamedTuple):
    """What divides a case's time into parts, all of it interval sets."""

    activities: Activities
    busy: np.ndarray
    """When anything ran: work, an exchange or a copy."""
    exchanging_beside_work: np.ndarray
    hidden_copying: np.ndarray
    exchanges: tuple[DeviceExchange, ...]
    """Of each device that exchanges."""
    blocked: np.ndarray
    """When nothing ran, and the host stood in a call that waits."""

    @classmethod
    def of(cls, case: CaseSpans) -> "Division":
        """Return what divides the time of a case."""
        activities = times_of(case)
        working, exchanging, copying, computing = activities
        busy = union(working, exchanging, copying)
        idle = gaps(busy, case.start, case.end)
        return cls(
            activities,
            busy,
            exchanging_beside_work=intersection(exchanging, working),
            hidden_copying=intersection(copying, computing),
            exchanges=exchanges_by_device(case),
            blocked=intersection(blocked_times(case), idle),
        )

    def parts(self, times: Sequence[tuple[int, int]]) -> tuple[Parts, ...]:
        """Divide each of some times, from start to end in nanoseconds."""
        windows = np.array(times, np.int64).reshape(-1, 2)

        def within(*interval_sets: np.ndarray) -> np.ndarray:
            """Return for each time how long interval sets cover it, added up."""
            lengths = (lengths_within(intervals, windows) for intervals in interval_sets)
            return sum(lengths, np.zeros(len(windows), np.int64))

        whole = windows[:, 1] - windows[:, 0]
        work, busy = within(self.activities.working), within(self.busy)
        only_exchange = within(self.activities.exchanging) - within(self.exchanging_beside_work)
        # In the order of the fields of `Parts`.
        columns = np.stack(
            (
                whole,
                work,
                only_exchange,
                busy - work - only_exchange,
                whole - busy,
                within(*(device.exchanging for device in self.exchanges)),
                within(*(device.hidden for device in self.exchanges)),
                within(self.activities.copying),
                within(self.hidden_copying),
                within(self.blocked),
            )
        )
        seconds_of_parts = columns / 1e9
        seconds_of_parts[OF_DEVICES] /= max(len(self.exchanges), 1)
        return tuple(Parts(*row) for row in seconds_of_parts.T.tolist())


def over_steps(
    formula: Formula, steps: Sequence[Parts], taken: float = 0.0, *, is_difference: bool = False
) -> Interval:
    """Return a share of a step, or the difference of two, with its interval; unbounded for a single
    step.

    `taken` is the share of the cores' time that other processes took.
    """
    columns = [[getattr(step, name) for step in steps] for name in NAMES]

    def quantity(*medians: np.ndarray) -> np.ndarray:
        parts = dict(zip(NAMES, medians, strict=True))
        return np.asarray(formula(parts))

    interval = over_rounds(quantity, *columns, noise=BETWEEN_PROCESSES)
    # Without the other processes a step takes `left` of its time. They may have brought about up to
    # `taken` of it, all in this part, or, of a difference, all in the part that is subtracted.
    left = max(1 - taken, 1e-9)
    if is_difference:
        low, high = (interval.low - taken) / left, (interval.high + taken) / left
    else:
        # A share is between 0 and 1.
        low, high = max((interval.low - taken) / left, 0), min(interval.high / left, 1)
    return Interval(interval.estimate, low, high)


def share_of(part: str, whole: str = "seconds") -> Formula:
    """Return the formula of a part's share of a step, or of another part."""
    return lambda medians: medians[part] / medians[whole]


def account_of(
    steps: Sequence[Parts], wholes: Sequence[Parts] = (), taken: float = 0.0
) -> StepAccount:
    """Return the median of steps, each of which took some time.

    `wholes` are the recordings of each process, of whose hidden shares the mean is taken; without
    them it is that of the steps. `taken` is other processes' share of the cores.
    """
    return _account_of(tuple(steps), tuple(wholes) or (mean_of(steps),), taken)


@lru_cache(maxsize=16)
def _account_of(steps: tuple[Parts, ...], wholes: tuple[Parts, ...], taken: float) -> StepAccount:
    """Return the account of steps; a screen and the JSON ask for the same one."""
    seconds_of_steps = [step.seconds for step in steps]
    median = exponential(over_rounds(np.log, seconds_of_steps, noise=BETWEEN_PROCESSES))
    # Without the other processes a step may have taken less.
    interval = Interval(median.estimate, median.low * (1 - taken), median.high)
    return StepAccount(
        steps=len(steps),
        seconds=median.estimate,
        seconds_interval=interval if len(steps) > 1 else None,
        shares={part: over_steps(share_of(part), steps, taken) for part in PARTS},
        hidden_exchange_share=_hidden_share("exchange", steps, wholes, taken),
        hidden_copy_share=_hidden_share("copy", steps, wholes, taken),
    )


def _hidden_share(
    kind: str, steps: Sequence[Parts], wholes: Sequence[Parts], taken: float
) -> Interval | None:
    """Return the share of the recordings' exchange or copying that was hidden, with the interval
    over the steps that have any; None if there is none.
    """
    part, hidden_part = f"{kind}_seconds", f"hidden_{kind}_seconds"
    shares = [getattr(whole, f"hidden_{kind}_share") for whole in wholes]
    known = [share for share in shares if share is not None]
    if not known:
        return None
    share = fmean(known)
    with_any = [step for step in steps if getattr(step, part)]
    if not with_any:
        return Interval(share, 0.0, 1.0)
    spread = over_steps(share_of(hidden_part, part), with_any, taken)
    return Interval(share, min(share, spread.low), max(share, spread.high))


def mean_of(steps: Sequence[Parts]) -> Parts:
    """Return the mean of steps, or of one step of several processes."""
    columns = zip(*map(astuple, steps), strict=True)
    return Parts(*map(fmean, columns))


def divided(whole: Parts, steps: int) -> Parts:
    """Return the mean step of a recording of so many."""
    return Parts(*(part / steps for part in astuple(whole)))
