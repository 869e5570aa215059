"""The chart of where a traced repetition's time went: the bare operations, and what came on top, for each cell."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from humanize import metric

from parallel_core.comparison.analysis import ExperimentAnalysis
from parallel_core.report.scales import Scale, Tick, axis, from_zero, write_seconds
from parallel_core.trace_analysis.division import Division

__all__ = ["DivisionChart", "DivisionRow", "Part", "division_chart"]

LEAST_SHARE = 0.01
"""Of a repetition's time: shorter parts are drawn and not named."""

Kind: TypeAlias = Literal["bare", "interference", "turns", "exposed", "idle"]
WORDS: Mapping[Kind, str] = {
    "bare": "bare operations",
    "interference": "more in them than as one unit",
    "turns": "others’ turns to compute",
    "exposed": "communication with nothing computed meanwhile",
    "idle": "no device at work",
}


class Part(NamedTuple):
    """A part of a bar, in percent of the chart's width."""

    kind: Kind
    start: float
    length: float


class DivisionRow(NamedTuple):
    """A cell's repetition under the profiler: its parts, in a row without gaps, and in words."""

    name: str
    parts: tuple[Part, ...]
    seconds: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class DivisionChart:
    """A row for each cell whose trace could be divided, and for each other one the reason."""

    rows: tuple[DivisionRow, ...]
    undivided: Mapping[str, str]
    ticks: tuple[Tick, ...]
    legend: tuple[tuple[Kind, str], ...]


def division_chart(experiment: ExperimentAnalysis) -> DivisionChart | None:
    """Draw what the time of an experiment's main case went to, by the traces; None if no trace tells."""
    divided = {cell.cell.side: cell.division for cell in experiment.believed if cell.division}
    if not divided:
        return None
    scale = from_zero(one.seconds for one in divided.values())
    rows = tuple(_row(name, one, scale) for name, one in divided.items())
    drawn = {part.kind for row in rows for part in row.parts}
    return DivisionChart(
        rows,
        {cell.cell.side: cell.undivided for cell in experiment.believed if cell.undivided},
        axis(scale, write_seconds),
        tuple((kind, words) for kind, words in WORDS.items() if kind in drawn),
    )


def _row(name: str, division: Division, scale: Scale) -> DivisionRow:
    parts: list[Part] = []
    reached = 0.0
    seconds = _seconds(division)
    for kind, taken in seconds.items():
        if taken > 0:
            start = scale.place(reached)
            reached += taken
            parts.append(Part(kind, start, scale.place(reached) - start))
    named = {kind: taken for kind, taken in seconds.items() if taken > LEAST_SHARE * division.seconds}
    words = tuple(f"{metric(taken, 's')} {WORDS[kind]}" for kind, taken in named.items())
    return DivisionRow(name, tuple(parts), metric(division.seconds, "s"), words)


def _seconds(division: Division) -> dict[Kind, float]:
    """Return the parts, which sum to the whole."""
    return {
        "bare": division.bare_part_seconds,
        "interference": max(0.0, division.interference_seconds),
        "turns": division.turns_seconds,
        "exposed": division.exposed_seconds,
        "idle": division.idle_seconds,
    }
