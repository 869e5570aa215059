"""Colours, lines and axis labels that all pictures share: those that matplotlib draws and those of the report."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.sweep import Curves, write_point
from parallel_core.system.formatting import seconds
from parallel_core.trace_analysis.figures import CaseFigures
from parallel_core.trace_analysis.lanes import Block, Look

__all__ = [
    "COLOURS",
    "GREY",
    "LOOKS",
    "Appearance",
    "CurveStyle",
    "curve_styles",
    "curve_ticks",
    "key_case",
    "message_of",
    "opacity",
]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#888888"
MAX_TICKS = 10
MIN_OPACITY = 0.2
MIN_AT_ONCE = 1.05
"""With fewer queues at once operations did not overlap."""

Dash = Literal["solid", "dot", "dash", "dashdot"]
DOTTED: Sequence[Dash] = ("dot", "dash", "dashdot")


class CurveStyle(NamedTuple):
    """A colour, and the kind of line."""

    colour: str
    dash: Dash


class Appearance(NamedTuple):
    """How blocks of a timeline look: the legend's text, a colour, and the opacity of a block that was always busy."""

    name: str
    colour: str
    opacity: float = 1.0


LOOKS: Mapping[Look, Appearance] = {
    "compute": Appearance("computation", COLOURS[0]),
    "copy": Appearance("copy", COLOURS[1]),
    "exchange": Appearance("exchange", COLOURS[2]),
    "host": Appearance("Python", GREY),
    "wait": Appearance("waiting", GREY, 0.35),
}


def opacity(block: Block) -> float:
    """Return how strongly a block has its look's colour: the less of it was busy, the paler."""
    return MIN_OPACITY + (1 - MIN_OPACITY) * block.busy_share


def key_case(figures: Sequence[CaseFigures], experiment: str = "") -> CaseFigures | None:
    """Return an experiment's main case, else that in which most queues worked at once, the first of several."""
    shown = EXPERIMENTS[experiment].case if experiment in EXPERIMENTS else ""
    return max(figures, key=lambda case: (case.case == shown, case.queues_at_once or 0.0), default=None)


def message_of(case: CaseFigures, experiment: str = "") -> str:
    """Say what a case's timeline shows: how long it took, and how long its operations take one after the other."""
    took = ": ".join(filter(None, (experiment, case.case, seconds(case.seconds))))
    at_once = case.queues_at_once or 0.0
    in_turn = case.seconds + (at_once - 1) * case.working_seconds
    return took if at_once < MIN_AT_ONCE else f"{took}; one after the other its operations take {seconds(in_turn)}"


def curve_styles(labels: Iterable[str], curves: Curves) -> dict[str, CurveStyle]:
    """Return a colour for each label; bounds and predictions are grey, and each is dotted in its own way."""
    names = list(dict.fromkeys(labels))
    solid = [label for label in names if label not in curves.dotted]
    return {
        label: CurveStyle(COLOURS[solid.index(label) % len(COLOURS)], "solid")
        if label in solid
        else CurveStyle(GREY, DOTTED[curves.dotted.index(label) % len(DOTTED)])
        for label in names
    }


def curve_ticks(values: Sequence[float], curves: Curves) -> dict[float, str]:
    """Return the labelled points of a logarithmic x axis, with their labels: measured points, but not too many."""
    return {value: write_point(value, curves.over) for value in values[:: 1 + (len(values) - 1) // MAX_TICKS]}
