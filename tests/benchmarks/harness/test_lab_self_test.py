"""What labs say of one run is seldom wrong, whatever the noise: counted with fixed seeds, as the full count does."""

import pytest

from benchmarks.harness.lab_self_test import MOST_FALSE, NOISES, count
from benchmarks.harness.lab_truths import TRUTHS, Truth
from parallel_core.experiments import EXPERIMENTS

TRIALS = 20


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda truth: f"{truth.lab}: {truth.name}")
def test_few_verdicts_on_one_run_are_false_and_what_is_there_is_found(truth: Truth) -> None:
    counted = count(truth, NOISES["usual"], rounds=5, trials=TRIALS)
    assert counted.false <= MOST_FALSE * TRIALS
    quiet = count(truth, NOISES["quiet"], rounds=5, trials=TRIALS)
    assert max(quiet.false, quiet.missed) <= MOST_FALSE * TRIALS


def test_every_lab_that_judges_times_is_counted() -> None:
    # These judge by values alone, or say figures without a verdict.
    by_values = {"building-blocks", "data-parallel", "learning-rates"}
    # It shares what it says with `dependencies`.
    shared = {"graph"}
    assert {truth.lab for truth in TRUTHS} - {"any"} == set(EXPERIMENTS) - by_values - shared
