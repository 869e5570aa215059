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


def test_few_verdicts_are_wrong_and_slow_operations_and_queues_are_named_by_their_own_part(rates: Rates) -> None:
    assert rates["compared"] == TRIALS
    assert rates["found"] >= REQUIRED * TRIALS
    assert rates["false"] <= (1 - REQUIRED) * TRIALS
    assert min(rates["neither"], rates["kernels_only"], rates["queue_only"]) >= OF_REASONS * TRIALS


def rows(*rates: Rates) -> list[str]:
    """Return the rows of the page of a file that holds some rates."""
    written: dict[str, Any] = {"machine": describe_machine(), "rates": rates, "trials": {}}
    return [line for line in page(written).splitlines() if line.startswith("| ")][2:]


def test_old_counts_are_shown_without_reasons() -> None:
    old = {"name": "synthetic, usual noise", "rounds": 5, "compared": 200, "false": 0, "found": 198}
    assert rows(old) == ["| synthetic, usual noise | 5 | 200 | 0 % (0 %–1.9 %) | 99 % (96 %–100 %) |"]


def test_a_slow_down_that_was_not_planted_has_no_share(rates: Rates) -> None:
    counts = {"compared": 40, "false": 2, "found": 38, "neither": 36, "kernels_only": 30, "queue_only": None}
    first, second = rows(rates, {"name": "real, torch async", "rounds": 5, **counts})
    assert first.count("|") == second.count("|") == 9
    assert second.endswith("| 90 % (77 %–96 %) | 75 % (60 %–86 %) | – |")
