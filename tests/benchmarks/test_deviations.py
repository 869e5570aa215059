"""The usual deviations between processes, and their degrees of freedom, are those of the published
comparisons, fitted by the method of moments of Smyth 2004.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from parallel_core.compare.assessed import main_case
from parallel_core.compare.storage import read_comparison
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.differences import USUAL_FREEDOM, logarithm_bias

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def times_by_experiment(paths: Sequence[Path]) -> dict[str, list[tuple[float, ...]]]:
    """Return for each experiment the processes' seconds of every cell, in its main case."""
    times: defaultdict[str, list[tuple[float, ...]]] = defaultdict(list)
    for path in paths:
        comparison = read_comparison(path)
        for experiment in comparison.experiments:
            cells = [results for results in comparison.of(experiment) if results.valid]
            case = main_case(*cells)
            times[experiment] += [results.medians(case) for results in cells]
    return times


def fit(cells: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the deviation of logarithms, and its degrees of freedom, that explain best how far
    each cell's times lie apart.

    The degrees of freedom are infinite if all cells vary alike.
    """
    logarithms: list[float] = []
    by_chance: list[float] = []
    for times in cells:
        freedom = len(times) - 1
        deviation = float(np.std(np.log(times), ddof=1))
        logarithms.append(2 * math.log(deviation) + logarithm_bias(freedom))
        by_chance.append(trigamma(freedom / 2))
    excess = float(np.var(logarithms, ddof=1)) - mean(by_chance)
    if excess <= 0:
        return math.exp(mean(logarithms) / 2), math.inf
    freedom_of_usual = 2 * inverse_trigamma(excess)
    return math.exp((mean(logarithms) - logarithm_bias(freedom_of_usual)) / 2), freedom_of_usual


def trigamma(x: float) -> float:
    """Return the second derivative of the logarithm of the gamma function, within 1e-8."""
    below = 0.0
    while x < 8:
        below += 1 / x**2
        x += 1
    return below + 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3) - 1 / (30 * x**5) + 1 / (42 * x**7)


def inverse_trigamma(value: float) -> float:
    """Return where the trigamma function, which falls, has a positive value; by bisection."""
    low, high = 1e-4, 1e4
    for _ in range(100):
        middle = math.sqrt(low * high)
        if trigamma(middle) > value:
            low = middle
        else:
            high = middle
    return low


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
