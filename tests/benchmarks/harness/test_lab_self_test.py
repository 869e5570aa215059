"""The bands of one run are seldom wrong, whatever the noise: counted with fixed seeds, as the full count does."""

import pytest

from benchmarks.harness.lab_self_test import MOST_FALSE, NOISES, TRUTHS, Truth, count
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.metrics import WITHOUT_QUEUE

TRIALS = 20


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda truth: f"{truth.lab}: {truth.name}")
def test_few_bands_of_one_run_are_false_and_what_is_there_is_found(truth: Truth) -> None:
    assert truth.right in {band.code for band in (*truth.declared.bands, WITHOUT_QUEUE)}
    assert count(truth, NOISES["usual"], rounds=5, trials=TRIALS).false <= MOST_FALSE * TRIALS
    quiet = count(truth, NOISES["quiet"], rounds=5, trials=TRIALS)
    assert max(quiet.false, quiet.missed) <= MOST_FALSE * TRIALS


# Their figures are those of another experiment, or follow from fits and counts that their own tests judge.
JUDGED_ELSEWHERE = {
    "eager-cpu",
    "graph",
    "barriers",
    "cost-model",
    "data-parallel",
    "building-blocks",
    "learning-rates",
}


def test_every_lab_whose_figure_is_of_times_is_counted() -> None:
    assert {truth.lab for truth in TRUTHS} == set(EXPERIMENTS) - JUDGED_ELSEWHERE
