"""What a time consists of, and the median step's parts with intervals: `trace` and `profile` read
both here.

The parts of a time sum to it: some queue computes; none does, but one exchanges; neither, but one
copies; nothing runs. What copies within a device is that device's work, and no transfer.

An exchange is hidden by what the same device computes: that another one computes meanwhile does not
help the one that waits. A copy is hidden by what any device computes.

An interval is over the steps of one recording, no shorter than what differs between processes.
Where other work took a share s of the cores' time, any part may have lost up to s of the time to
it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from backends.profiling import HOST_DEVICE, in_seconds
from parallel_core.measurement.confidence_intervals import Interval, exponential
from parallel_core.measurement.verdicts import BETWEEN_PROCESSES, in_percent, over_rounds
from parallel_core.system.formatting import listed, percent, seconds
from parallel_core.trace_analysis.case_spans import (
    ALL,
    NO_INTERVALS,
    CaseSpans,
    clip,
    gaps,
    groups_of,
    intersection,
    total_length,
    union,
)
from parallel_core.trace_analysis.devices import FILLS, WITHIN_A_DEVICE, named

PARTS = ("compute_seconds", "exposed_exchange_seconds", "exposed_copy_seconds", "idle_seconds")
"""Those that sum to the whole."""
WORDS: Mapping[str, str] = dict(
    zip(PARTS, ("computing", "exchange only", "copies only", "waiting"), strict=True)
)
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
    """How long an exchange ran on a device, whatever ran meanwhile; the mean of the devices that
    exchange.
    """
    hidden_exchange_seconds: float
    """How much of that lay under the same device's computation."""
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
    whole = times_of(case)
    by_device = exchanges_by_device(case)
    return tuple(
        _parts(
            start,
            end,
            Activities(*(clip(some, start, end) for some in whole)),
            [device.clipped(start, end) for device in by_device],
        )
        for start, end in times
    )


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

    def clipped(self, start: int, end: int) -> "DeviceExchange":
        """Return what lies from `start` to `end`."""
        return self._replace(
            exchanging=clip(self.exchanging, start, end), computing=clip(self.computing, start, end)
        )

    @property
    def hidden(self) -> np.ndarray:
        """The times of the exchange that lie under the computation."""
        return intersection(self.exchanging, self.computing)


def masks_of(case: CaseSpans) -> Activities:
    """Return the masks of a case's spans by what they did."""
    copying, exchanging = case.of_kind("copy"), case.of_kind("exchange")
    within_a_device = named(case, WITHIN_A_DEVICE)
    if case.name == ALL:
        copying &= ~within_a_device
    if case.name == ALL and {device for device, _ in case.spans.queues} <= {HOST_DEVICE, "cpu"}:
        # A CPU's copies stay in its memory, and its thread computes nothing meanwhile: they are its
        # work.
        copying = np.zeros_like(copying)
    working = case.operations & ~copying & ~exchanging
    computing = working & ~within_a_device if within_a_device.any() else working
    return Activities(working, exchanging, copying, computing)


def times_of(case: CaseSpans) -> Activities:
    """Return when a case's operations ran, on all devices together, as interval sets."""
    masks = masks_of(case)
    working, exchanging, copying = map(case.covered, masks[:3])
    # Of a million spans, to find out twice takes a tenth of a second.
    computing = working if masks.computing is masks.working else case.covered(masks.computing)
    return Activities(working, exchanging, copying, computing)


def exchanges_by_device(case: CaseSpans) -> tuple[DeviceExchange, ...]:
    """Return when each device of a case exchanged that did, in the order of their first spans.

    What a device computes hides its own exchange. One that never computes exchanges on behalf of
    the others, and any of them hides it.
    """
    masks, device_of = masks_of(case), case.device_of
    # As Holistic Trace Analysis has it, filling memory hides no exchange.
    kernels = np.flatnonzero(masks.computing & ~named(case, FILLS))
    kernels_of = {int(device_of[own[0]]): own for own in _by_device(device_of, kernels)}
    exchanges = _by_device(device_of, np.flatnonzero(masks.exchanging))
    numbers = [int(device_of[own[0]]) for own in exchanges]
    all_compute = set(numbers) <= set(kernels_of)
    on_any_device = NO_INTERVALS if all_compute else case.covered(kernels)
    found = []
    for number, own in zip(numbers, exchanges, strict=True):
        on_device = kernels_of.get(number)
        computing = on_any_device if on_device is None else case.covered(on_device)
        device, _ = case.spans.queues[number]
        found.append(DeviceExchange(device, own, case.covered(own), computing))
    return tuple(found)


def _by_device(device_of: np.ndarray, places: np.ndarray) -> list[np.ndarray]:
    return [places[own] for own in groups_of(device_of[places])]


def _parts(start: int, end: int, times: Activities, by_device: Sequence[DeviceExchange]) -> Parts:
    work, copy = map(total_length, (times.working, times.copying))
    exposed_exchange = total_length(intersection(gaps(times.working, start, end), times.exchanging))
    busy = total_length(union(times.working, times.exchanging, times.copying))
    devices = max(len(by_device), 1)
    exchange = sum(total_length(device.exchanging) for device in by_device)
    hidden = sum(total_length(device.hidden) for device in by_device)
    hidden_copy = total_length(intersection(times.computing, times.copying))
    return Parts(
        seconds=in_seconds(end - start),
        compute_seconds=in_seconds(work),
        exposed_exchange_seconds=in_seconds(exposed_exchange),
        exposed_copy_seconds=in_seconds(busy - work - exposed_exchange),
        idle_seconds=in_seconds(end - start - busy),
        exchange_seconds=in_seconds(exchange) / devices,
        hidden_exchange_seconds=in_seconds(hidden) / devices,
        copy_seconds=in_seconds(copy),
        hidden_copy_seconds=in_seconds(hidden_copy),
    )


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
