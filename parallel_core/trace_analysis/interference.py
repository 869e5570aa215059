"""The price of overlap: how much longer computations take while other operations run beside them.

An operation runs in isolation if others run in at most a tenth of its time, and beside others if in a quarter of it
or more: the price is that of neighbours as they come, with the gaps between them.
"Others" are the operations of all other queues. Operations of one name on one device are compared, and a
trace has no shapes: a name whose durations on either side differ too much is left out: it may be several
operations. So is one with too few operations on either side.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from backends.profiling.timeline import KINDS
from parallel_core.measurement.confidence_intervals import exponential, stretched
from parallel_core.trace_analysis.case_spans import MAX_SLOWDOWN, CaseSpans

FEWEST = 5
"""So many operations on each side are needed to say something."""
ALONE, BESIDE = 0.1, 0.25
"""Shares of an operation's time in which other operations ran: at most, and at least."""
ALIKE = 2.0
"""Of operations of one shape, nine in ten take at most so many times the fastest tenth's time."""
MOST = 1000
"""Of more operations as many are drawn, evenly over the time."""
RESAMPLES = 1000

Beside: TypeAlias = Literal["anything", "compute", "copy", "exchange"]
NEIGHBOURS: tuple[Beside, ...] = ("anything", "compute", "copy", "exchange")
Sides: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Durations in nanoseconds: in isolation, and beside other operations."""


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
    """Computations' relative time beside operations of one kind, and of no other kind, with its interval."""

    beside: Beside
    ratio: float
    low: float
    high: float
    operations: tuple[PricedOperation, ...]
    """Those that lost the most time first."""


def interference(cases: Sequence[CaseSpans]) -> tuple[Price, ...]:
    """Compare the computations of all cases of a timeline that the profiler did not slow down too much."""
    sides: dict[Beside, dict[tuple[str, str], list[Sides]]] = {}
    for case in cases:
        if (case.slowdown or 0) > MAX_SLOWDOWN:
            continue
        for beside, key, one in _sides(case):
            sides.setdefault(beside, {}).setdefault(key, []).append(one)
    joined = {beside: _joined(by_name) for beside, by_name in sides.items()}
    return tuple(_price(beside, joined[beside]) for beside in NEIGHBOURS if joined.get(beside))


def _sides(case: CaseSpans) -> Iterator[tuple[Beside, tuple[str, str], Sides]]:
    spans, lengths = case.spans, case.lengths
    computing = case.of_kind("compute") & (lengths > 0)
    masks = (case.operations, *(case.of_kind(kind) for kind in KINDS[:3]))
    shares = np.zeros((len(NEIGHBOURS), len(lengths)))
    for place in np.unique(spans.queue_of[computing]):
        own = computing & (spans.queue_of == place)
        others = spans.queue_of != place
        for row, mask in enumerate(masks):
            shares[row, own] = _covered(case.covered(mask & others), *case.intervals(own).T) / lengths[own]
    alone = shares[0] <= ALONE
    named = spans.name_of.astype(np.int64) * len(spans.queues) + spans.queue_of
    for key in np.unique(named[computing]).tolist():
        own = computing & (named == key)
        name, device = spans.names[key // len(spans.queues)], spans.queues[key % len(spans.queues)][0]
        for row, beside in enumerate(NEIGHBOURS):
            apart = np.ones(len(own), bool) if row == 0 else np.all(np.delete(shares[1:], row - 1, 0) <= ALONE, axis=0)
            yield beside, (name, device), (lengths[own & alone], lengths[own & (shares[row] >= BESIDE) & apart])


def _covered(times: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return how much of the time from each start to its end an interval set covers."""
    if len(times) == 0:
        return np.zeros(len(starts))
    reached = np.concatenate(([0], np.cumsum(times[:, 1] - times[:, 0])))
    # Between two edges the covered time stands still, or grows as time does.
    covered = np.stack((reached[:-1], reached[1:]), axis=1).ravel()
    return np.interp(ends, times.ravel(), covered) - np.interp(starts, times.ravel(), covered)


def _joined(by_name: Mapping[tuple[str, str], Sequence[Sides]]) -> dict[tuple[str, str], Sides]:
    joined = {}
    for key, some in by_name.items():
        alone, beside = (np.concatenate(side) for side in zip(*some, strict=True))
        if min(len(alone), len(beside)) >= FEWEST and all(map(_are_alike, (alone, beside))):
            joined[key] = alone, beside
    return joined


def _are_alike(lengths: np.ndarray) -> bool:
    fast, slow = np.percentile(lengths, (10, 90))
    return bool(slow <= ALIKE * fast)


def _price(beside: Beside, sides: Mapping[tuple[str, str], Sides]) -> Price:
    generator = np.random.default_rng(0)
    rows, drawn, expected = [], np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    for (name, device), (alone, others) in sides.items():
        alone_mean, others_mean = float(alone.mean()), float(others.mean())
        rows.append(PricedOperation(name, device, len(alone), alone_mean / 1e9, len(others), others_mean / 1e9))
        drawn += len(others) * _resampled_means(others, generator)
        expected += len(others) * _resampled_means(alone, generator)
    took = sum(row.beside * row.beside_seconds for row in rows)
    ratio = took / sum(row.beside * row.alone_seconds for row in rows)
    fewest = min(min(row.alone, row.beside) for row in rows)
    found = exponential(stretched(float(np.log(ratio)), np.log(drawn / expected), fewest - 1))
    ordered = sorted(rows, key=lambda row: -row.beside * (row.beside_seconds - row.alone_seconds))
    return Price(beside, ratio, found.low, found.high, tuple(ordered))


def _resampled_means(lengths: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    some = lengths[np.linspace(0, len(lengths) - 1, min(len(lengths), MOST)).astype(int)]
    means = some[generator.integers(len(some), size=(RESAMPLES, len(some)))].mean(axis=1)
    # Of many, the mean is known better than that of those drawn.
    return lengths.mean() + (means - some.mean()) * np.sqrt(len(some) / len(lengths))
