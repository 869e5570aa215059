"""A target is met, missed, or undecided."""

import pytest

from benchmarks.harness.findings import Target
from parallel_core.measurement.confidence_intervals import Interval


@pytest.mark.parametrize(
    ("kind", "low", "high", "verdict"),
    [
        ("at least", 2.0, 2.2, "met"),
        ("at least", 1.9, 2.2, "undecided"),
        ("at least", 1.7, 1.9, "missed"),
        ("at most", 1.7, 2.0, "met"),
        ("at most", 1.9, 2.2, "undecided"),
        ("at most", 2.1, 2.2, "missed"),
        ("at least", float("-inf"), float("inf"), "undecided"),
    ],
)
def test_a_target_is_met_or_missed_by_the_whole_interval(kind: str, low: float, high: float, verdict: str) -> None:
    assert Target(kind, 2.0).verdict(Interval((low + high) / 2, low, high)) == verdict  # type: ignore[arg-type]
