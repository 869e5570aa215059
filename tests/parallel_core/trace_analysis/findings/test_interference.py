"""The price of overlap, how much longer operations take beside others, is the one planted."""

from dataclasses import replace

import numpy as np
import pytest

from backends.profiling import Span, SpanKind
from parallel_core.trace_analysis.interference import FEWEST, Price, interference
from tests.parallel_core.trace_analysis.synthetic import (
    FIRST,
    SECOND,
    made_case,
    queue_of,
)

ALONE, BESIDE = 1.18e-3, 2.08e-3


def priced(
    alone: int,
    beside: int,
    kind: SpanKind = "exchange",
    *,
    other: SpanKind | None = None,
    noise: float = 0.0,
) -> tuple[Price, ...]:
    """Multiply alone, then as often beside operations of a kind, and of another one; the price is
    planted.
    """
    factors = iter(1 + noise * np.random.default_rng(0).standard_normal(alone + beside))
    spans: list[Span] = []
    now = 0.0
    for number in range(alone + beside):
        times = [(now, now + (ALONE if number < alone else BESIDE) * next(factors))]
        spans += queue_of(times)
        if number >= alone:
            spans += queue_of(times, kind, SECOND, "neighbour")
            spans += queue_of(times, other, SECOND, "other") if other else ()
        now = times[0][1] + 1e-4
    return interference((made_case(*spans),))


def test_operations_beside_an_exchange_take_what_is_planted() -> None:
    anything, exchange = priced(20, 12, noise=0.02)
    assert (anything.beside, exchange.beside) == ("anything", "exchange")
    for price in (anything, exchange):
        assert price.ratio == pytest.approx(BESIDE / ALONE, rel=0.02)
        assert 1.5 < price.low < price.ratio < price.high < 2
    (operation,) = exchange.operations
    assert (operation.name, operation.device, operation.alone, operation.beside) == (
        "compute",
        FIRST,
        20,
        12,
    )
    assert operation.alone_seconds == pytest.approx(ALONE, rel=0.02)
    assert operation.beside_seconds == pytest.approx(BESIDE, rel=0.02)


def test_kinds_of_neighbours_are_told_apart_and_of_two_at_once_neither_is_blamed() -> None:
    assert [price.beside for price in priced(9, 9, "copy")] == ["anything", "copy"]
    assert [price.beside for price in priced(9, 9, "copy", other="exchange")] == ["anything"]


def test_computation_beside_computation_is_priced_on_both_devices() -> None:
    alone, beside = [(2 * n, 2 * n + 1) for n in range(8)], [(n, n + 2) for n in range(100, 116, 2)]
    anything, compute = interference(
        (made_case(*queue_of(alone + beside), *queue_of(beside, device=SECOND)),)
    )
    assert (anything.ratio, compute.ratio) == (2, 2)
    assert compute.beside == "compute"


def test_of_too_few_operations_or_of_several_shapes_nothing_is_said() -> None:
    assert priced(FEWEST - 1, 20) == priced(20, FEWEST - 1) == ()
    assert interference((made_case(*queue_of([(0, 1)])),)) == ()
    times = [(3 * n, 3 * n + (0.2 if n % 2 else 2)) for n in range(20)]
    beside = [(100 + start, 100 + end) for start, end in times]
    assert (
        interference((made_case(*queue_of(times + beside), *queue_of(beside, "copy", SECOND)),))
        == ()
    )


def test_alone_in_one_case_and_beside_others_in_another_are_compared() -> None:
    alone = made_case(*queue_of([(n, n + 1) for n in range(6)]))
    times = [(2 * n, 2 * n + 1.5) for n in range(6)]
    both = made_case(*queue_of(times), *queue_of(times, "copy", SECOND))
    assert interference((alone,)) == interference((both,)) == ()
    assert [price.ratio for price in interference((alone, both))] == [1.5, 1.5]
    assert interference((alone, replace(both, timed=both.seconds / 1.4))) == (), (
        "the profiler slowed it down"
    )


def test_what_is_hardly_beside_others_is_on_neither_side() -> None:
    times = [(2.0 * n, 2.0 * n + 1) for n in range(18)]
    shares = [0.1] * 6 + [0.2] * 6 + [0.25] * 6
    covered = [(start, start + share) for (start, _), share in zip(times, shares, strict=True)]
    anything, _ = interference((made_case(*queue_of(times), *queue_of(covered, "copy", SECOND)),))
    assert [(one.alone, one.beside) for one in anything.operations] == [(6, 6)]
