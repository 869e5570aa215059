"""How often verdicts are wrong, counted with the noise that the full count takes."""

from typing import Any

import pytest

from benchmarks.self_test import OF_REASONS, REQUIRED, Rates, page, synthetic
from parallel_core.system.machine import describe_machine

TRIALS = 60


@pytest.fixture(scope="module")
def rates() -> Rates:
    """Return what the full count begins with, at the number of rounds that a comparison takes."""
    return synthetic("usual", 5, TRIALS)


def test_slow_operations_and_slow_queues_are_named_by_their_own_part(rates: Rates) -> None:
    assert rates.queue_only is not None
    assert min(rates.neither, rates.kernels_only, rates.queue_only) >= OF_REASONS * TRIALS


def test_few_verdicts_are_wrong(rates: Rates) -> None:
    assert rates.found >= REQUIRED * TRIALS
    assert rates.false <= (1 - REQUIRED) * TRIALS


def written(*rates: Rates) -> dict[str, Any]:
    """Return what a file holds of some rates."""
    return {"machine": describe_machine(), "rates": [vars(one) for one in rates], "trials": {}}


def test_old_counts_are_shown_without_reasons() -> None:
    *_, row, _ = page(written(Rates("synthetic, usual noise", 5, 200, 0, 198))).splitlines()
    assert row == "| synthetic, usual noise | 5 | 200 | 0 % (0 %–1.9 %) | 99 % (96 %–100 %) |"


def test_a_slow_down_that_was_not_planted_has_no_share(rates: Rates) -> None:
    real = Rates("real, torch async", 5, 40, 2, 38, 36, 30)
    *_, first, second, _ = page(written(rates, real)).splitlines()
    assert first.count("|") == second.count("|") == 9
    assert second.endswith("| 90 % (77 %–96 %) | 75 % (60 %–86 %) | – |")
