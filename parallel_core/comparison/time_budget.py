"""How a comparison fits into the time that it was given: smaller sizes first, then fewer rounds.

Before the first round every cell is timed once, at the smallest sizes: its *sounding*. From these
the sizes follow, the same for all cells of an experiment, with which the wanted rounds fit: each
experiment gets the same seconds for measuring in its slowest cell, as many as there are. Where even
the smallest sizes leave too little time for the wanted rounds, there are fewer; where sizes are as
large as usual and time is left, there are more. Nothing here runs or waits.
"""

import math
from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, NamedTuple

from parallel_core.comparison.cells import Cell
from parallel_core.comparison.plan import Plan
from parallel_core.experiments import Experiment, Mode
from parallel_core.measurement.fresh_process import Measured

GROWTH: Mapping[str, int] = {"size": 3, "steps": 1, "limit": 1}
"""The parameters that are made smaller where time is short, and the power of each with which the
time grows.
"""
LEAST: Mapping[str, int] = {"size": 256, "steps": 200, "limit": 4}
"""Their smallest values: below, overheads are all that is measured."""
LEAST_COPIED: Mapping[Mode, int] = {"full": 1000, "quick": 600}
"""The smallest side of matrices that are copied: below, issuing on MXNet takes over a tenth of a
copy, or a third.
"""
MULTIPLE: Mapping[str, int] = {"size": 8, "steps": 100}
"""They are multiples of these, unless they are as usual."""
GPU_SIDES = 4
"""Sides of matrices are so many times as large on GPUs, which compute smaller ones sooner than they
are launched.
"""
USUAL_ROUNDS = 3
"""How many rounds are wanted unless the user says: the fewest that allow a verdict."""
MOST_ROUNDS = 10
"""More are not taken, however quick the machine is."""
MARGIN = 0.9
"""The share of the seconds left that is planned for, since later rounds may take longer than the
first idea of them.
"""
SPARE = 1.25
"""How much longer than expected a process may measure before it takes fewer repetitions."""
SHORTEST_BUDGET = 1.0
"""Seconds: a run refuses a budget of none."""
LONGEST = 2.0
"""Seconds of a repetition in the slowest cell, at the most, where sides are chosen: more time goes
into more rounds.
"""
STEPS = 2**14
"""In so many steps the seconds that each experiment measures are chosen."""


class Sounding(NamedTuple):
    """What one process of a cell takes at the smallest sizes, in seconds."""

    start: float
    """To start, to import the framework and to end."""
    fixed: float
    """To prepare and to check, whatever the sizes."""
    repetition: float
    """To do once what is timed."""


UNKNOWN = Sounding(start=2.0, fixed=1.0, repetition=0.1)
"""Where no sounding succeeded."""


@dataclass(frozen=True)
class Work:
    """What decides how much of an experiment a process does."""

    least: Mapping[str, int]
    """The smallest values of the parameters that can be made smaller."""
    most: Mapping[str, int | None]
    """Their usual values, None for those that have none."""
    repetitions: int
    """How often all that is timed is done, warm-up included."""
    has_budget: bool

    def options(self, sizes: Mapping[str, int], budget: float) -> dict[str, Any]:
        """Return the options of a run with these sizes, and with a budget of so many seconds if it
        takes one.
        """
        return {
            **sizes,
            **({"budget": max(SHORTEST_BUDGET, round(budget, 1))} if self.has_budget else {}),
        }

    def sizes(self, growth: float) -> dict[str, int]:
        """Return the parameters with which it takes about so many times the time of the
        smallest.
        """
        sizes = {}
        for name, least in self.least.items():
            usual, multiple = self.most[name], MULTIPLE.get(name, 1)
            size = least * growth ** (1 / GROWTH[name])
            sizes[name] = (
                usual
                if usual is not None and size >= usual
                else max(least, int(size) // multiple * multiple)
            )
        return sizes

    def growth(self, sizes: Mapping[str, int]) -> float:
        """Return the time with these sizes over that with the smallest, at the most."""
        return max(
            [1.0, *((sizes[name] / least) ** GROWTH[name] for name, least in self.least.items())]
        )


@dataclass(frozen=True)
class Fit:
    """The sizes with which a comparison fits into its time, and how long it is then expected to
    take.
    """

    plan: Plan
    soundings: Mapping[Cell, Sounding]
    """Of every cell, if only by what is known of other cells."""
    works: Mapping[str, Work]
    """By experiment."""
    sizes: Mapping[str, Mapping[str, int]]
    """By experiment, on CPUs."""
    sides: int = 1
    """How many times as large the sides of matrices are."""

    def cell_seconds(self, cell: Cell, traced: bool = False) -> float:
        """Return how long a cell is expected to take after its process has started."""
        sounding, work = self.soundings[cell], self.works[cell.experiment]
        repetition = sounding.repetition * work.growth(self.sizes[cell.experiment])
        # A profiler starts, everything is repeated twice, more slowly, and what was recorded is
        # read and written.
        tracing = sounding.start / 4 + 2 * repetition if traced else 0.0
        return sounding.fixed + work.repetitions * repetition + tracing

    def round_seconds(self, traced: bool = False) -> float:
        """Return how long a round is expected to take."""
        starts = sum(
            mean(self.soundings[cell].start for cell in cells) for cells in self.plan.groups
        )
        return starts + sum(self.cell_seconds(cell, traced) for cell in self.soundings)

    @property
    def options(self) -> dict[str, dict[str, Any]]:
        """The options that each experiment's processes are given: its sizes, and a budget if it
        takes one.
        """
        longest = dict.fromkeys(self.sizes, 0.0)
        for cell in self.soundings:
            longest[cell.experiment] = max(longest[cell.experiment], self.cell_seconds(cell))
        enlarged = {
            name: {of: size * (self.sides if of == "size" else 1) for of, size in sizes.items()}
            for name, sizes in self.sizes.items()
        }
        return {
            name: self.works[name].options(sizes, SPARE * longest[name])
            for name, sizes in enlarged.items()
        }


def sounding_of(measured: Measured, start: float) -> Sounding:
    """Return what a run with the smallest options says, whose process took so many seconds to
    start.
    """
    cases = measured.result.cases
    repetition = sum(
        case.repeats * sum(median(some) for some in (case.seconds, case.bare_seconds) if some)
        for case in cases
    )
    repetitions = 1 + max((len(case.warmup_seconds) for case in cases), default=0)
    return Sounding(
        max(0.0, start), max(0.0, measured.seconds - repetitions * repetition), repetition
    )


def work_of(experiment: Experiment, mode: Mode) -> Work:
    """Return how much an experiment usually does in a comparison, and how much at least."""
    usual, known = experiment.options.get(mode, {}), experiment.parameters_by_option
    values = {name: usual.get(name, parameter.default) for name, parameter in known.items()}
    most = {
        name: None if values[name] is None else int(values[name])
        for name in GROWTH
        if name in known
    }
    smallest_of = {**LEAST, "size": LEAST_COPIED[mode]} if "copies" in known else LEAST
    least = {
        name: smallest_of[name] if value is None else min(smallest_of[name], value)
        for name, value in most.items()
    }
    repetitions = int(values["epochs"]) if "epochs" in usual else 1 + int(values.get("rounds") or 0)
    return Work(least, most, repetitions, "budget" in known)


def smallest(experiment: Experiment, mode: Mode) -> dict[str, Any]:
    """Return the options with which a process of an experiment is as short as possible, for a
    sounding.
    """
    work = work_of(experiment, mode)
    once = {name: 1 for name in ("rounds", "epochs") if name in experiment.options.get(mode, {})}
    return {**work.options(work.least, SHORTEST_BUDGET), **once}


def fit(plan: Plan, soundings: Mapping[Cell, Sounding], left: float, sides: int = 1) -> Fit:
    """Choose the largest sizes with which the wanted rounds take no more than the seconds left,
    with a margin.

    A cell without a sounding is expected to take as long as the mean of its experiment's other
    cells, else of all.
    """
    known = {cell: _sounding(soundings, cell) for cell in plan.cells}
    works = {experiment.name: work_of(experiment, plan.mode) for experiment in plan.experiments}
    # All cells of an experiment get the sizes that fit the slowest one.
    slowest = {
        name: max(one.repetition for cell, one in known.items() if cell.experiment == name)
        for name in works
    }

    def fitted(step: int) -> Fit:
        measuring = max(0.0, left) * step / STEPS
        growths = {
            name: min(
                measuring / work.repetitions,
                LONGEST if work.most.get("size", 0) is None else math.inf,
            )
            / (slowest[name] or math.inf)
            for name, work in works.items()
        }
        sizes = {name: work.sizes(max(1.0, growths[name])) for name, work in works.items()}
        return Fit(plan, known, works, sizes, sides)

    def is_too_long(step: int) -> bool:
        one, further = fitted(step), (plan.rounds or USUAL_ROUNDS) - 1
        return (
            one.round_seconds(plan.traces_in is not None) + further * one.round_seconds()
            > MARGIN * left
        )

    return fitted(max(0, bisect(range(STEPS + 1), False, key=is_too_long) - 1))


def _sounding(soundings: Mapping[Cell, Sounding], cell: Cell) -> Sounding:
    alike = [one for other, one in soundings.items() if other.experiment == cell.experiment]
    some = (
        [soundings[cell]] if cell in soundings else alike or list(soundings.values()) or [UNKNOWN]
    )
    return Sounding(*(mean(values) for values in zip(*some, strict=True)))
