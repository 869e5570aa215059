"""How often verdicts on differences are wrong, counted with synthetic noise and fixed seeds."""

import pytest

from benchmarks.trust.self_test import (
    NOISES,
    Counts,
    coverage,
    findings_of_coverage,
    findings_of_rates,
    synthetic,
)

TRIALS = 60
REQUIRED, OF_REASONS = 0.95, 0.9
"""Shares of right verdicts, and of right reasons."""


@pytest.fixture(scope="module")
def rates() -> Counts:
    """Return the full count's kind of cells of which targets are set, with fewer cells."""
    return synthetic("usual", 5, TRIALS)


def test_few_verdicts_are_wrong(rates: Counts) -> None:
    assert rates["compared"] == TRIALS
    assert rates["found"] >= REQUIRED * TRIALS
    assert rates["false"] <= (1 - REQUIRED) * TRIALS


@pytest.mark.parametrize("reason", ["neither", "kernels_only", "queue_only"])
def test_slow_operations_and_queues_are_named_by_their_own_part(rates: Counts, reason: str) -> None:
    assert rates[reason] >= OF_REASONS * TRIALS


def test_targets_are_set_of_the_usual_noise_at_the_default_rounds() -> None:
    counts = {"compared": 200, "false": 5, "found": 190, "neither": 1, "kernels_only": 2}
    counts |= {"queue_only": 3}
    default = {"name": "synthetic, usual noise", "rounds": 5, **counts}
    findings = [*findings_of_rates([default, {**default, "rounds": 2}])]
    assert [finding.interval.estimate for finding in findings] == 2 * [2.5, 95.0, 0.5, 1.0, 1.5]
    of_default, of_two_rounds = findings[:5], findings[5:]
    assert [str(finding.target) for finding in of_default] == ["≤ 5", "≥ 95", *3 * ["≥ 90"]]
    assert [finding.target for finding in of_two_rounds] == 5 * [None]


def test_intervals_of_single_cells_hold_the_true_median() -> None:
    counts = [coverage(noise, processes, 400) for processes in (5, 7) for noise in NOISES]
    for count, finding in zip(counts, findings_of_coverage(counts), strict=True):
        assert count["below"] + count["above"] <= 0.1 * count["cells"]
        missed = 100 * (count["below"] + count["above"]) / count["cells"]
        assert finding.interval.estimate == pytest.approx(100 - missed)
