"""The usual deviations between processes are those of the published comparisons."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.deviations import fit, inverse_trigamma, times_by_experiment, trigamma
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.differences import USUAL_FREEDOM

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"


def test_what_was_planted_is_fitted() -> None:
    generator = np.random.default_rng(0)
    deviations = 0.05 * np.sqrt(4 / generator.chisquare(4, 2000))
    cells = [np.exp(generator.normal(0, deviation, 6)).tolist() for deviation in deviations]
    deviation, freedom = fit(cells)
    assert deviation == pytest.approx(0.05, rel=0.05)
    assert freedom == pytest.approx(4, rel=0.2)


@pytest.mark.parametrize("x", [0.1, 0.5, 1.0, 7.0, 300.0])
def test_the_trigamma_function_is_inverted(x: float) -> None:
    assert inverse_trigamma(trigamma(x)) == pytest.approx(x, rel=1e-6)


def test_the_declared_deviations_are_those_of_the_published_comparisons() -> None:
    times = times_by_experiment(sorted(RESULTS.glob("*/comparison.json")))
    assert len(times) >= 4
    for name, cells in times.items():
        deviation, _ = fit(cells)
        assert 0.5 < EXPERIMENTS[name].usual_deviation / deviation < 2, name
    _, freedom = fit([cell for cells in times.values() for cell in cells])
    assert 0.5 < USUAL_FREEDOM / freedom < 2
