"""What a comparison answers: what each experiment's figure means on every cell, then who took how long.

Every sentence is a fixed text followed by figures; what a figure means is the experiment's affair (`Metric.place`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from parallel_core.comparison.account import PARTS, TimeDifference
from parallel_core.comparison.cells import Cell, CellResults
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.runner.metrics import Band
from parallel_core.measurement.confidence_intervals import (
    FEWEST_FOR_A_VERDICT,
    Interval,
    Verdict,
    median_interval,
    with_seconds,
)

__all__ = [
    "Answered",
    "answer_to",
    "answered",
    "conclusions",
    "difference_in_words",
    "difference_sentence",
    "reasons_in_words",
]

VERDICTS: Mapping[Verdict, str] = {
    "faster": "faster",
    "slower": "slower",
    "no difference shown": "no significant difference",
    "too few runs": "too few runs to decide",
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


def difference_in_words(difference: TimeDifference) -> str:
    """Write what a cell's time differs by: `30 ms (28–31) slower`, or that no difference was found."""
    if difference.verdict not in ("faster", "slower"):
        return VERDICTS[difference.verdict]
    low, high = sorted((abs(difference.seconds.low), abs(difference.seconds.high)))
    size = Interval(abs(difference.seconds.estimate), low, high)
    return f"{with_seconds(size)} {difference.verdict}"


def reasons_in_words(difference: TimeDifference) -> str:
    """Name the parts of a difference: `issuing 30 ms`; say so if none explains it, or if they are withheld."""
    if difference.verdict not in ("faster", "slower") or not difference.parts:
        return ""
    if difference.withheld:
        return "reasons withheld"
    named = (
        f"{PARTS[part]} {with_seconds(Interval(abs(difference.parts[part].estimate), -math.inf, math.inf))}"
        for part in difference.reasons
    )
    return ", ".join(named) or "no part explains it"


def difference_sentence(difference: TimeDifference) -> str:
    """Write it as a sentence: `overlap: torch async against mxnet async: 30 ms (28–31) slower; issuing 30 ms.`"""
    compared = f"{difference.cell.experiment}: {difference.cell.side} against {difference.against.side}"
    words = filter(None, (difference_in_words(difference), reasons_in_words(difference)))
    return f"{compared}: {'; '.join(words)}."


def conclusions(
    answers: Mapping[str, str], differences: Sequence[TimeDifference], believed: Sequence[Answered]
) -> tuple[str, ...]:
    """Return what figures with bands mean, then each framework against the first one.

    `answers` are by experiment; of the `differences` between frameworks those on the first engine count, and
    those between engines. `believed` are the cells of all experiments.
    """
    said = [answer for name, answer in answers.items() if answer and EXPERIMENTS[name].main.bands]
    engine = differences[0].cell.engine if differences else ""
    counted = [one for one in differences if one.cell.engine == engine or one.cell.engine != one.against.engine]
    if counted:
        return (*said, *map(difference_sentence, counted))
    names = {one.cell.backend for one in believed}
    return (*said, (NOTHING_MEASURED, ONE_FRAMEWORK, NO_PAIR)[min(len(names), 2)])
