"""The bands of one run are seldom wrong, whatever the noise: counted with fixed seeds, as the full count does."""

import pytest

from benchmarks.harness.lab_self_test import MOST_FALSE, NOISES, count
from benchmarks.harness.lab_truths import TRUTHS, Truth
from parallel_core.experiments import EXPERIMENTS

TRIALS = 20


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda truth: f"{truth.lab}: {truth.name}")
def test_few_bands_of_one_run_are_false_and_what_is_there_is_found(truth: Truth) -> None:
    counted = count(truth, NOISES["usual"], rounds=5, trials=TRIALS)
    assert counted.false <= MOST_FALSE * TRIALS
    quiet = count(truth, NOISES["quiet"], rounds=5, trials=TRIALS)
    assert max(quiet.false, quiet.missed) <= MOST_FALSE * TRIALS


def test_every_band_of_a_formula_is_counted() -> None:
    declared = {
        (experiment.name, metric.name, band.code)
        for experiment in EXPERIMENTS.values()
        for metric in experiment.metrics
        if metric.formula is not None
        for band in metric.bands
    }
    counted = {(truth.lab, truth.metric, code) for truth in TRUTHS for code in truth.right}
    # What the book's way shows is judged like ours.
    alike = {one for one in declared if one[1].startswith("book_")}
    assert declared - alike - counted == set()
