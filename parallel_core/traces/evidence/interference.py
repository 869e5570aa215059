"""The price of overlap: how much longer computations take while other operations run beside them.

An operation runs in isolation if others run in at most a tenth of its time, and beside others if in
a quarter of it or more: the price is that of neighbours as they come, with the gaps between them.
"Others" are the operations of all other queues. Operations of one name on one device are compared,
and a trace has no shapes: a name whose durations on either side differ too much is left out: it may
be several operations. So is one with too few operations on either side.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Literal, NamedTuple

import numpy as np

from backends.profiling.timeline import in_seconds
from parallel_core.measurement.confidence_intervals import Interval, exponential, stretched
from parallel_core.traces.case_spans import (
    NO_INTERVALS,
    CaseSpans,
    groups_of,
    lengths_within,
    places_by_key,
    union,
)
from parallel_core.traces.figures import Ratio, SecondsInterval

FEWEST = 5
"""The number of operations on each side that is needed to say something."""
ALONE, BESIDE = 0.1, 0.25
"""Shares of an operation's time in which other operations ran: at most, and at least."""
ALIKE = 2.0
"""Nine in ten operations of one shape take at most this many times the time of the fastest
tenth.
"""
MOST = 1000
"""If there are more operations, this number of them is drawn, evenly over the time."""
RESAMPLES = 1000

Beside = Literal["anything", "compute", "copy", "exchange"]
NEIGHBOURS: tuple[Beside, ...] = ("anything", "compute", "copy", "exchange")
Operation = tuple[str, str]
"""A name, and a device."""


class Sides(NamedTuple):
    """Durations of one operation, in nanoseconds."""

    alone: np.ndarray
    """In isolation."""
    beside: np.ndarray
    """Beside other operations."""


@dataclass(frozen=True)
class Price:
    """Computations' relative time beside operations of one kind, and of no other kind, with its
    interval.
    """

    beside: Beside
    ratio: Ratio
    low: float
    high: float
    lost_seconds: SecondsInterval
    """How much longer they took than in isolation; the mean of their devices."""


def interference(cases: Sequence[CaseSpans]) -> tuple[Price, ...]:
    """Compare the computations of all cases of a timeline that the profiler did not slow down too
    much.
    """
    sides_by_case: dict[Beside, dict[Operation, list[Sides]]] = {kind: {} for kind in NEIGHBOURS}
    for case in cases:
        if case.is_slowed_down:
            continue
        for neighbour, operation, sides in _sides(case):
            sides_by_case[neighbour].setdefault(operation, []).append(sides)

    prices = []
    for neighbour in NEIGHBOURS:
        comparable = _comparable(sides_by_case[neighbour])
        if comparable:
            prices.append(_price(neighbour, comparable))
    return tuple(prices)


def _sides(case: CaseSpans) -> Iterator[tuple[Beside, Operation, Sides]]:
    """Yield the durations of a case's computations on either side of each kind of neighbour."""
    computing = np.flatnonzero(case.of_kind("compute") & (case.lengths > 0))
    spans = case.spans
    names, queues = spans.name_of[computing], spans.queue_of[computing]
    lengths = case.lengths[computing]
    is_apart, is_beside = {}, {}
    for neighbour in NEIGHBOURS:
        mask = case.operations if neighbour == "anything" else case.of_kind(neighbour)
        share = time_beside(case, np.flatnonzero(mask), computing) / lengths
        is_apart[neighbour] = share <= ALONE
        is_beside[neighbour] = share >= BESIDE
    # Beside one kind means: beside no other kind.
    for kind, other_kind in permutations(NEIGHBOURS[1:], 2):
        is_beside[kind] &= is_apart[other_kind]

    # A number for each name and queue.
    kind_of = names.astype(np.int64) * len(spans.queues) + queues
    for same_kind in groups_of(kind_of):
        device, _ = spans.queues[queues[same_kind[0]]]
        operation = spans.names[names[same_kind[0]]], device
        lengths_of_kind = lengths[same_kind]
        alone = lengths_of_kind[is_apart["anything"][same_kind]]
        for neighbour in NEIGHBOURS:
            beside = lengths_of_kind[is_beside[neighbour][same_kind]]
            yield neighbour, operation, Sides(alone, beside)


def time_beside(case: CaseSpans, operations: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return how long operations of other queues ran in each of some spans, in nanoseconds.

    `operations` and `places` are places of spans. Other queues ran while any queue did, less the
    time in which only the span's own did.
    """
    times = lengths_within(case.covered(operations), case.intervals(places))
    alone_by_queue = _running_alone(case, operations)
    numbers_of_queue = places_by_key(case.spans.queue_of[places], np.arange(len(places)))
    for queue, numbers in numbers_of_queue.items():
        if queue in alone_by_queue:
            windows = case.intervals(places[numbers])
            times[numbers] -= lengths_within(alone_by_queue[queue], windows)
    return times


def _running_alone(case: CaseSpans, operations: np.ndarray) -> dict[int, np.ndarray]:
    """Return by queue when it runs some operations, and no other queue does, as interval sets."""
    operations_of_queue = places_by_key(case.spans.queue_of, operations)
    covered = {queue: case.covered(on_queue) for queue, on_queue in operations_of_queue.items()}
    queues = np.repeat(
        np.array(list(covered), np.int64), [len(times) for times in covered.values()]
    )
    # All intervals' starts, then all their ends.
    edges = np.concatenate([NO_INTERVALS, *covered.values()]).T.ravel()
    order = np.argsort(edges, kind="stable")
    edges = edges[order]
    steps = np.repeat(np.array([1, -1], np.int8), len(queues))[order]
    running = np.cumsum(steps, dtype=np.int32)
    # The sum of the running queues' numbers is the number of a single one.
    sums = np.cumsum(np.tile(queues, 2)[order] * steps, dtype=np.int64)
    # From one edge to the next a single queue runs.
    single = np.flatnonzero(running == 1)
    stretches = np.stack((edges[single], edges[single + 1]), axis=1)
    numbers_of_queue = places_by_key(sums[single], np.arange(len(single)))
    return {queue: union(stretches[numbers]) for queue, numbers in numbers_of_queue.items()}


def _comparable(sides_by_case: Mapping[Operation, Sequence[Sides]]) -> dict[Operation, Sides]:
    """Join the durations of all cases and queues, of the operations that can be compared."""
    comparable = {}
    for operation, sides_of_cases in sides_by_case.items():
        alone = np.concatenate([sides.alone for sides in sides_of_cases])
        beside = np.concatenate([sides.beside for sides in sides_of_cases])
        if min(len(alone), len(beside)) < FEWEST:
            continue
        if _are_alike(alone) and _are_alike(beside):
            comparable[operation] = Sides(alone, beside)
    return comparable


def _are_alike(lengths: np.ndarray) -> bool:
    """Return whether durations differ so little that they may be of one shape."""
    fast, slow = np.percentile(lengths, (10, 90))
    return bool(slow <= ALIKE * fast)


def _price(neighbour: Beside, operations: Mapping[Operation, Sides]) -> Price:
    """Return how much longer operations took beside others than if all had been in isolation.

    The interval is that of the ratio if other operations of their kind had been drawn: `took` and
    `expected` are the sums of nanoseconds, `drawn_took` and `drawn_expected` those in each of
    RESAMPLES drawings.
    """
    generator = np.random.default_rng(0)
    took, expected = 0.0, 0.0
    drawn_took, drawn_expected = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    for alone, beside in operations.values():
        took += float(beside.sum())
        expected += len(beside) * float(alone.mean())
        drawn_took += len(beside) * _resampled_means(beside, generator)
        drawn_expected += len(beside) * _resampled_means(alone, generator)

    ratio = took / expected
    fewest = min(min(len(alone), len(beside)) for alone, beside in operations.values())
    log_ratio, log_ratios = float(np.log(ratio)), np.log(drawn_took / drawn_expected)
    interval = exponential(stretched(log_ratio, log_ratios, fewest - 1))
    seconds_of_device = in_seconds(round(expected)) / len({device for _, device in operations})
    bounds = (ratio, interval.low, interval.high)
    lost = Interval(*(seconds_of_device * (bound - 1) for bound in bounds))
    return Price(neighbour, *bounds, lost)


def _resampled_means(lengths: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return what the mean of some durations would be if others of their kind had been drawn."""
    places = np.linspace(0, len(lengths) - 1, min(len(lengths), MOST)).astype(int)
    drawn = lengths[places]
    resampled = drawn[generator.integers(len(drawn), size=(RESAMPLES, len(drawn)))]
    deviations = resampled.mean(axis=1) - drawn.mean()
    # Of many, the mean is known better than that of those drawn.
    return lengths.mean() + deviations * np.sqrt(len(drawn) / len(lengths))
