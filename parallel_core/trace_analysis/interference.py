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
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from parallel_core.measurement.confidence_intervals import exponential, stretched
from parallel_core.trace_analysis.case_spans import MAX_SLOWDOWN, NO_INTERVALS, CaseSpans, groups_of

FEWEST = 5
"""So many operations on each side are needed to say something."""
ALONE, BESIDE = 0.1, 0.25
"""Shares of an operation's time in which other operations ran: at most, and at least."""
ALIKE = 2.0
"""Of operations of one shape, nine in ten take at most so many times the fastest tenth's time."""
MOST = 1000
"""Of more operations as many are drawn, evenly over the time."""
RESAMPLES = 1000
SEVERAL = -1
"""Stands for the number of a queue where none runs, or several do."""

Beside: TypeAlias = Literal["anything", "compute", "copy", "exchange"]
NEIGHBOURS: tuple[Beside, ...] = ("anything", "compute", "copy", "exchange")
Operation: TypeAlias = tuple[str, str]
"""A name, and a device."""


class Sides(NamedTuple):
    """Durations of one operation, in nanoseconds."""

    alone: np.ndarray
    """In isolation."""
    beside: np.ndarray
    """Beside other operations."""


@dataclass(frozen=True)
class PricedOperation:
    """The computations of one name on one device: their number and mean duration on either side."""

    name: str
    device: str
    alone: int
    alone_seconds: float
    beside: int
    beside_seconds: float


@dataclass(frozen=True)
class Price:
    """Computations' relative time beside operations of one kind, and of no other kind, with its
    interval.
    """

    beside: Beside
    ratio: float
    low: float
    high: float
    operations: tuple[PricedOperation, ...]
    """Those that lost the most time first."""


def interference(cases: Sequence[CaseSpans]) -> tuple[Price, ...]:
    """Compare the computations of all cases of a timeline that the profiler did not slow down too
    much.
    """
    pieces: dict[Beside, dict[Operation, list[Sides]]] = {kind: {} for kind in NEIGHBOURS}
    for case in cases:
        if (case.slowdown or 0) > MAX_SLOWDOWN:
            continue
        for neighbour, operation, sides in _sides(case):
            pieces[neighbour].setdefault(operation, []).append(sides)

    prices = []
    for neighbour in NEIGHBOURS:
        comparable = _comparable(pieces[neighbour])
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

    for alike in groups_of(names.astype(np.int64) * len(spans.queues) + queues):
        device, _ = spans.queues[queues[alike[0]]]
        operation = spans.names[names[alike[0]]], device
        alone = lengths[alike[is_apart["anything"][alike]]]
        for neighbour in NEIGHBOURS:
            beside = lengths[alike[is_beside[neighbour][alike]]]
            yield neighbour, operation, Sides(alone, beside)


def time_beside(case: CaseSpans, operations: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Return how many nanoseconds of each span asked for operations of other queues ran in.

    Both are places. Other queues ran while any queue did, less the time in which only the span's
    own did. O(n log n).
    """
    begins, is_running, only = _stretches(case, operations)
    stretches = len(begins)
    if stretches == 0:
        return np.zeros(len(asked), np.int64)
    lasted = np.diff(begins, append=begins[-1])
    ran = _before(lasted * is_running)
    # The stretches with a single queue, queue by queue: a key for each queue and stretch.
    single = np.flatnonzero(only != SEVERAL)
    keys = only[single].astype(np.int64) * stretches + single
    order = np.argsort(keys)
    keys, ran_alone = keys[order], _before(lasted[single[order]])
    # Of a million operations these would fill the memory while times are looked up.
    del lasted, single, order
    queue_of = case.spans.queue_of[asked].astype(np.int64)

    def others_until(times: np.ndarray) -> np.ndarray:
        stretch = np.maximum(np.searchsorted(begins, times, side="right") - 1, 0)
        within = np.maximum(times - begins[stretch], 0)
        others = ran[stretch] + within * is_running[stretch]
        others -= ran_alone[np.searchsorted(keys, queue_of * stretches + stretch)]
        return others - within * (only[stretch] == queue_of)

    return others_until(case.spans.ends[asked]) - others_until(case.spans.starts[asked])


def _stretches(
    case: CaseSpans, operations: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Divide the time by the queues that run some operations.

    Return when each stretch begins, whether any queue runs in it, and which one does: SEVERAL if
    none does, or several do.
    """
    queue_of = case.spans.queue_of[operations]
    covered = [case.covered(operations[on_queue]) for on_queue in groups_of(queue_of)]
    queues = np.repeat(np.unique(queue_of), [len(times) for times in covered])
    edges = np.concatenate(covered or [NO_INTERVALS]).T.ravel()
    del covered
    order = np.argsort(edges, kind="stable")
    steps = np.repeat(np.array([1, -1], np.int8), len(queues))[order]
    running = np.cumsum(steps, dtype=np.int32)
    # The sum of the running queues' numbers is the number of a single one.
    sums = np.cumsum(np.tile(queues, 2)[order] * steps, dtype=np.int64)
    only = np.where(running == 1, sums, SEVERAL).astype(np.int32)
    return edges[order], running > 0, only


def _before(lengths: np.ndarray) -> np.ndarray:
    """Return the sum of the lengths before each place, and of all of them."""
    return np.concatenate(([0], np.cumsum(lengths)))


def _comparable(pieces: Mapping[Operation, Sequence[Sides]]) -> dict[Operation, Sides]:
    """Join the durations of all cases and queues, of the operations that can be compared."""
    comparable = {}
    for operation, some_sides in pieces.items():
        alone = np.concatenate([sides.alone for sides in some_sides])
        beside = np.concatenate([sides.beside for sides in some_sides])
        if min(len(alone), len(beside)) < FEWEST:
            continue
        if _are_alike(alone) and _are_alike(beside):
            comparable[operation] = Sides(alone, beside)
    return comparable


def _are_alike(lengths: np.ndarray) -> bool:
    fast, slow = np.percentile(lengths, (10, 90))
    return bool(slow <= ALIKE * fast)


def _price(neighbour: Beside, sides: Mapping[Operation, Sides]) -> Price:
    """Return how much longer operations took beside others than if all had been in isolation."""
    generator = np.random.default_rng(0)
    operations = []
    took, expected = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    for (name, device), (alone, beside) in sides.items():
        operations.append(
            PricedOperation(
                name=name,
                device=device,
                alone=len(alone),
                alone_seconds=float(alone.mean()) / 1e9,
                beside=len(beside),
                beside_seconds=float(beside.mean()) / 1e9,
            )
        )
        took += len(beside) * _resampled_means(beside, generator)
        expected += len(beside) * _resampled_means(alone, generator)

    seconds = sum(one.beside * one.beside_seconds for one in operations)
    expected_seconds = sum(one.beside * one.alone_seconds for one in operations)
    ratio = seconds / expected_seconds
    fewest = min(min(one.alone, one.beside) for one in operations)
    interval = exponential(stretched(float(np.log(ratio)), np.log(took / expected), fewest - 1))
    operations.sort(key=lambda one: one.beside * (one.alone_seconds - one.beside_seconds))
    return Price(neighbour, ratio, interval.low, interval.high, tuple(operations))


def _resampled_means(lengths: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return what the mean of some durations would be if others of their kind had been drawn."""
    places = np.linspace(0, len(lengths) - 1, min(len(lengths), MOST)).astype(int)
    drawn = lengths[places]
    resampled = drawn[generator.integers(len(drawn), size=(RESAMPLES, len(drawn)))]
    deviations = resampled.mean(axis=1) - drawn.mean()
    # Of many, the mean is known better than that of those drawn.
    return lengths.mean() + deviations * np.sqrt(len(drawn) / len(lengths))
