"""What a comparison answers: what each experiment's figure means on every cell, then who took how long.

Every sentence is a fixed text followed by figures; what a figure means is the experiment's affair (`Metric.place`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from parallel_core.comparison.account import PARTS, TimeDifference
from parallel_core.comparison.cells import CellResults
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.measurement.confidence_intervals import (
    FEWEST_FOR_A_VERDICT,
    Interval,
    Verdict,
    median_interval,
    with_seconds,
)

__all__ = [
    "answer_to",
    "conclusions",
    "difference_in_words",
    "difference_sentence",
    "interval_of",
    "reasons_in_words",
]

NO_DIFFERENCE: Mapping[Verdict, str] = {
    "no difference shown": "no significant difference",
    "too few runs": "too few runs to decide",
}
NOTHING_MEASURED = "Nothing could be measured; every cell says why."
ONE_FRAMEWORK = "Only one framework was measured, so there is no other to compare it with."
NO_PAIR = "No two frameworks were measured in the same experiment on the same engine."


def interval_of(values: Sequence[float]) -> Interval:
    """Return the median of processes with its interval; of too few without bounds, which would reach to millions."""
    interval = median_interval(values)
    return interval if len(values) >= FEWEST_FOR_A_VERDICT else replace(interval, low=-math.inf, high=math.inf)


def answer_to(experiment: Experiment, cells: Iterable[tuple[CellResults, Interval | None]]) -> str:
    """Say what an experiment's figure means on its believed cells: a sentence for each band; empty without cells.

    `cells` have their figures, if they have one. What touches several bands has its bounds, too.
    `The devices worked at the same time: mxnet async (1.98 of 2), torch async (1.97 of 2).`
    """
    main = experiment.main
    groups: dict[str, list[str]] = {}
    for results, interval in cells:
        if interval is not None:
            result = results.valid[0]
            band = main.place(interval, result)
            says = band.says if band else "Inconclusive" if main.bands else main.name
            is_open = main.bands and band is None
            written = main.write(interval, result) if is_open else main.in_short(interval.estimate, result)
            groups.setdefault(says, []).append(f"{results.cell.side} ({written})")
    return " ".join(f"{says}: {', '.join(figures)}." for says, figures in groups.items())


def difference_in_words(difference: TimeDifference) -> str:
    """Write what a cell's time differs by: `30 ms (28–31) slower`, or that no difference was found."""
    if difference.verdict not in ("faster", "slower"):
        return NO_DIFFERENCE[difference.verdict]
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
    answers: Mapping[str, str], differences: Sequence[TimeDifference], measured: Set[str]
) -> tuple[str, ...]:
    """Return what figures with bands mean, then each framework against the first one.

    `answers` are by experiment; of the `differences` between frameworks those on the first engine count, and
    those between engines. `measured` are the frameworks.
    """
    said = [answer for name, answer in answers.items() if answer and EXPERIMENTS[name].main.bands]
    engine = differences[0].cell.engine if differences else ""
    counted = [one for one in differences if one.cell.engine == engine or one.cell.engine != one.against.engine]
    if counted:
        return (*said, *map(difference_sentence, counted))
    return (*said, (NOTHING_MEASURED, ONE_FRAMEWORK, NO_PAIR)[min(len(measured), 2)])
