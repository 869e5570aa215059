"""All benchmarks are run with the same options, and summed up."""

import importlib

import pytest

from benchmarks import run_all
from tests.benchmarks.synthetic import REPORT


def test_the_summary_counts_over_all_benchmarks_and_names_failed_ones() -> None:
    found = {"findings": [finding.as_json() for finding in REPORT.findings]}
    text = run_all.summary({"one": found, "two": None})
    assert "one: missed: bad: 1.3 ×, at most 1.02" in text
    assert "two: FAILED" in text
    assert text.endswith("1 targets met, 1 missed, 0 undecided; failed: two")


@pytest.mark.parametrize("name", [*run_all.NAMES, "training/network", "processes"])
def test_every_benchmark_has_the_shared_options(name: str) -> None:
    options = {option.name for option in importlib.import_module(f"benchmarks.{name.replace('/', '.')}").main.params}
    assert options == {"out", "rounds", "quick"}
