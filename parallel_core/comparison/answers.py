"""What a comparison answers: what each experiment's figure means on every cell, then who took how long.

Every sentence is a fixed text followed by figures; what a figure means is the experiment's affair (`Metric.place`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from parallel_core.comparison.cells import Cell, CellResults
from parallel_core.comparison.verdicts import TimeRatio
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.runner.metrics import Band
from parallel_core.measurement.confidence_intervals import (
    FEWEST_FOR_A_VERDICT,
    Interval,
    Verdict,
    median_interval,
    with_bounds,
)

__all__ = ["Answered", "answer_to", "answered", "conclusions", "ratio_sentence"]

VERDICTS: Mapping[Verdict, str] = {
    "faster": "faster",
    "slower": "slower",
    "no difference shown": "no significant difference",
    "too few runs": "too few runs to tell",
}
NOTHING_MEASURED = "Nothing could be measured; every cell says why."
ONE_FRAMEWORK = "Only one framework was measured, so there is no other to compare it with."
NO_PAIR = "No two frameworks were measured in the same experiment on the same engine."


class Answered(NamedTuple):
    """A believed cell, and its experiment's metric if it has one."""

    results: CellResults
    metric: Interval | None

    @property
    def cell(self) -> Cell:
        """The experiment, backend and engine."""
        return self.results.cell

    def band(self, experiment: Experiment) -> Band | None:
        """What the metric means; None if the noise, or too few processes, leave that open."""
        main = experiment.main
        if self.metric is None or len(self.results.valid) < FEWEST_FOR_A_VERDICT:
            return None
        return main.place(self.metric, self.results.valid[0])

    def figure(self, experiment: Experiment) -> str:
        """The cell with its figure: `torch async (1.97 of 2)`; with bounds if it is inconclusive."""
        main = experiment.main
        assert self.metric is not None
        brief = Interval(self.metric.estimate, -math.inf, math.inf)
        is_open = main.bands and self.band(experiment) is None and len(self.results.valid) >= FEWEST_FOR_A_VERDICT
        written = main.write(self.metric if is_open else brief, self.results.valid[0])
        return f"{self.cell.side} ({written})"


def answered(results: CellResults) -> Answered:
    """Return a believed cell with its experiment's metric over its processes."""
    values = results.metric(EXPERIMENTS[results.cell.experiment].main.name)
    return Answered(results, median_interval(values) if values else None)


def answer_to(experiment: Experiment, cells: Sequence[Answered]) -> str:
    """Say what an experiment's figure means on its believed cells: a sentence for each band; empty without cells.

    `The devices worked at the same time: mxnet async (1.98 of 2), torch async (1.97 of 2).`
    """
    main = experiment.main
    groups: dict[str, list[str]] = {}
    for one in cells:
        if one.metric is not None:
            band = one.band(experiment)
            says = band.says if band else "Inconclusive" if main.bands else experiment.main.name
            groups.setdefault(says, []).append(one.figure(experiment))
    return " ".join(f"{says}: {', '.join(figures)}." for says, figures in groups.items())


def ratio_sentence(ratio: TimeRatio) -> str:
    """Write a ratio as a sentence: `overlap: torch async took 1.21 (1.15–1.28) times as long as mxnet async: slower.`

    A second one has its factors, if they are known.
    """
    few = ratio.verdict == "too few runs"

    def value(interval: Interval) -> str:
        return f"{interval.estimate:.2f}" if few else with_bounds(interval)

    sentence = (
        f"{ratio.cell.experiment}: {ratio.cell.side} took {value(ratio.interval)} times as long as "
        f"{ratio.against.side}: {VERDICTS[ratio.verdict]}."
    )
    if ratio.kernels is None or ratio.scheduling is None:
        return sentence
    return f"{sentence} That is kernels {value(ratio.kernels)} × scheduling {value(ratio.scheduling)}."


def conclusions(
    answers: Mapping[str, str], ratios: Sequence[TimeRatio], believed: Sequence[Answered]
) -> tuple[str, ...]:
    """Return what figures with bands mean, then each framework against the first one.

    `answers` are by experiment; of the `ratios` between frameworks those on the first engine count, and those between
    engines. `believed` are the cells of all experiments.
    """
    said = [answer for name, answer in answers.items() if answer and EXPERIMENTS[name].main.bands]
    engine = ratios[0].cell.engine if ratios else ""
    counted = [one for one in ratios if one.cell.engine == engine or one.cell.engine != one.against.engine]
    if counted:
        return (*said, *map(ratio_sentence, counted))
    names = {one.cell.backend for one in believed}
    return (*said, (NOTHING_MEASURED, ONE_FRAMEWORK, NO_PAIR)[min(len(names), 2)])
