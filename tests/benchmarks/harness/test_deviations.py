"""The usual deviations between processes are those of the published comparisons."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.deviations import fit, inverse_trigamma, times_by_experiment, trigamma
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.differences import USUAL_FREEDOM

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"


def test_what_was_planted_is_fitted() -> None:
    planted_deviation, planted_freedom, processes = 0.05, 4, 6
    generator = np.random.default_rng(0)
    chi_squares = generator.chisquare(planted_freedom, 2000)
    cells = []
    for deviation in planted_deviation * np.sqrt(planted_freedom / chi_squares):
        times = np.exp(generator.normal(0, deviation, processes))
        cells.append(times.tolist())
    deviation, freedom = fit(cells)
    assert deviation == pytest.approx(planted_deviation, rel=0.05)
    assert freedom == pytest.approx(planted_freedom, rel=0.2)


@pytest.mark.parametrize("x", [0.1, 0.5, 1.0, 7.0, 300.0])
def test_the_trigamma_function_is_inverted(x: float) -> None:
    assert inverse_trigamma(trigamma(x)) == pytest.approx(x, rel=1e-6)


def test_the_declared_deviations_are_those_of_the_published_comparisons() -> None:
    times = times_by_experiment(sorted(RESULTS.glob("*/comparison.json")))
    assert len(times) >= 4
    for name, cells in times.items():
        deviation, _ = fit(cells)
        assert 0.5 < EXPERIMENTS[name].usual_deviation / deviation < 2, name
    all_cells = list(chain.from_iterable(times.values()))
    _, freedom = fit(all_cells)
    assert 0.5 < USUAL_FREEDOM / freedom < 2
