"""The usual deviations between processes are those of the published comparisons."""

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import numpy as np

from parallel_core.compare.assessed import main_case
from parallel_core.compare.storage import read_comparison
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.differences import logarithm_bias

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


def usual_deviation(cells: Sequence[Sequence[float]]) -> float:
    """Return the deviation of logarithms that explains best how far each cell's times lie apart."""
    logarithms: list[float] = []
    for times in cells:
        deviation = float(np.std(np.log(times), ddof=1))
        logarithms.append(2 * math.log(deviation) + logarithm_bias(len(times) - 1))
    return math.exp(mean(logarithms) / 2)


def test_the_declared_deviations_are_those_of_the_published_comparisons() -> None:
    times = times_by_experiment(sorted(RESULTS.glob("*/comparison.json")))
    assert len(times) >= 4
    for name, cells in times.items():
        ratio = EXPERIMENTS[name].usual_deviation / usual_deviation(cells)
        assert 0.5 < ratio < 2, name
