"""The price of overlap, how much longer operations take beside others, is the one planted."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from backends.profiling import Span, SpanKind
from parallel_core.traces.evidence.interference import FEWEST, Price, interference
from tests.parallel_core.traces.synthetic import SECOND, made_case, queue_of

ALONE, BESIDE = 1.18e-3, 2.08e-3


def priced(
    alone: int,
    beside: int,
    kind: SpanKind = "exchange",
    *,
    other: SpanKind | None = None,
    noise: float = 0.0,
) -> tuple[Price, ...]:
    """Return the prices of multiplications, some alone and then some beside operations of a kind,
    and perhaps of another kind.

    Those alone take `ALONE` seconds and those beside others `BESIDE`, but for the noise.
    """
    factors = 1 + noise * np.random.default_rng(0).standard_normal(alone + beside)
    spans: list[Span] = []
    start = 0.0
    for number, factor in enumerate(factors):
        is_alone = number < alone
        end = start + (ALONE if is_alone else BESIDE) * factor
        spans += queue_of([(start, end)])
        if not is_alone:
            spans += queue_of([(start, end)], kind, SECOND, "neighbour")
            if other is not None:
                spans += queue_of([(start, end)], other, SECOND, "other")
        start = end + 1e-4
    return prices_of(spans)


def prices_of(spans: Iterable[Span]) -> tuple[Price, ...]:
    """Return the prices of overlap in one case of these spans."""
    return interference((made_case(*spans),))


def test_operations_beside_an_exchange_take_what_is_planted() -> None:
    anything, exchange = priced(20, 12, noise=0.02)
    assert anything.beside == "anything"
    assert exchange.beside == "exchange"
    for price in (anything, exchange):
        assert price.ratio == pytest.approx(BESIDE / ALONE, rel=0.02)
        assert 1.5 < price.low < price.ratio < price.high < 2
    lost = exchange.lost_seconds
    assert lost.estimate == pytest.approx(12 * (BESIDE - ALONE), rel=0.05)
    assert 0 < lost.low < lost.estimate < lost.high


def test_kinds_of_neighbours_are_told_apart_and_of_two_at_once_neither_is_blamed() -> None:
    beside_copies = priced(9, 9, "copy")
    assert [price.beside for price in beside_copies] == ["anything", "copy"]
    beside_both = priced(9, 9, "copy", other="exchange")
    assert [price.beside for price in beside_both] == ["anything"]


def test_computation_beside_computation_is_priced_on_both_devices() -> None:
    # Those alone take a second, those beside others two.
    alone = [(start, start + 1) for start in range(0, 16, 2)]
    beside = [(start, start + 2) for start in range(100, 116, 2)]
    first_device = queue_of(alone + beside)
    second_device = queue_of(beside, device=SECOND)
    anything, compute = prices_of(first_device + second_device)
    assert compute.beside == "compute"
    assert compute.ratio == 2
    assert anything.ratio == 2


def test_of_too_few_operations_nothing_is_said() -> None:
    assert priced(FEWEST - 1, 20) == ()
    assert priced(20, FEWEST - 1) == ()
    assert prices_of(queue_of([(0, 1)])) == ()


def test_of_operations_of_several_shapes_nothing_is_said() -> None:
    # One name stands for operations of 2 s and of 0.2 s, by turns.
    alone = [(3 * n, 3 * n + (0.2 if n % 2 else 2)) for n in range(20)]
    beside = [(100 + start, 100 + end) for start, end in alone]
    computing = queue_of(alone + beside)
    copying = queue_of(beside, "copy", SECOND)
    assert prices_of(computing + copying) == ()


def test_alone_in_one_case_and_beside_others_in_another_are_compared() -> None:
    alone = made_case(*queue_of([(n, n + 1) for n in range(6)]))
    times = [(2 * n, 2 * n + 1.5) for n in range(6)]
    both = made_case(*queue_of(times), *queue_of(times, "copy", SECOND))
    assert interference((alone,)) == ()
    assert interference((both,)) == ()
    assert [price.ratio for price in interference((alone, both))] == [1.5, 1.5]
    slowed_by_the_profiler = replace(both, timed=both.seconds / 1.4)
    assert interference((alone, slowed_by_the_profiler)) == ()


def test_what_is_hardly_beside_others_is_on_neither_side() -> None:
    # A copy lies beside a tenth, a fifth or a fourth of each operation. Those beside a fifth take
    # so long that they would show on either side.
    operations, copies = [], []
    for number, (share, length) in enumerate([(0.1, 1)] * 6 + [(0.2, 1.8)] * 6 + [(0.25, 1.5)] * 6):
        start = 2.0 * number
        operations.append((start, start + length))
        copies.append((start, start + share * length))
    anything, _ = prices_of(queue_of(operations) + queue_of(copies, "copy", SECOND))
    assert anything.ratio == 1.5
