"""How far apart the processes of each experiment usually are, in published comparisons.

    python -m benchmarks.harness.deviations benchmarks/results/*/comparison.json

Prints the usual deviation of each experiment and its degrees of freedom, for
`Experiment.usual_deviation` and `differences.USUAL_FREEDOM`: the method of moments of Smyth 2004.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import numpy as np

from parallel_core.comparison.storage import read_comparison
from parallel_core.comparison.validity import main_case
from parallel_core.measurement.differences import logarithm_bias


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


def main() -> None:
    """Print what is fitted to the comparisons that are named."""
    times = times_by_experiment([Path(name) for name in sys.argv[1:]])
    every = [cell for cells in times.values() for cell in cells]
    for name, cells in (*times.items(), ("all", every)):
        deviation, freedom = fit(cells)
        print(f"{name}: deviation {deviation:.3f}, freedom {freedom:.1f}, {len(cells)} cells")


if __name__ == "__main__":
    main()
