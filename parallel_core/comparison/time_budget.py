"""How a comparison fits into the time that it was given: smaller sizes first, then fewer rounds.

Before the first round every cell is timed once, at the smallest sizes: its *sounding*. From these the sizes follow, the
same for all cells of an experiment, with which the wanted rounds fit: each experiment gets the same seconds for
measuring in its slowest cell, as many as there are. Where even the smallest sizes leave too little time for the wanted
rounds, there are fewer; where sizes are as large as usual and time is left, there are more. Nothing here runs or waits.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from statistics import mean, median
from types import MappingProxyType
from typing import Any

from parallel_core.comparison.cells import Cell
from parallel_core.comparison.plan import Plan, options_of
from parallel_core.experiments import Experiment, Mode
from parallel_core.measurement.result import Result

__all__ = ["SOUNDING_SHARE", "Fit", "Sounding", "Work", "fit", "rounds_that_fit", "smallest", "sounding_of", "work_of"]

GROWTH: Mapping[str, int] = MappingProxyType({"size": 3, "steps": 1, "limit": 1})
"""The parameters that are made smaller where time is short, and the power of each with which the time grows."""
LEAST: Mapping[str, int] = MappingProxyType({"size": 192, "steps": 200, "limit": 4})
"""Their smallest values: below, overheads are all that is measured."""
MULTIPLE: Mapping[str, int] = MappingProxyType({"size": 8, "steps": 100})
"""They are multiples of these, unless they are as usual."""
USUAL_ROUNDS = 3
"""How many rounds are wanted unless the user says: the fewest that allow a verdict."""
MOST_ROUNDS = 10
"""More are not taken, however quick the machine is."""
MARGIN = 0.9
"""The share of the seconds left that is planned for, since later rounds may take longer than the first idea of them."""
SPARE = 1.25
"""How much longer than expected a process may measure before it takes fewer repetitions."""
SHORTEST_BUDGET = 1.0
"""Seconds: a run refuses a budget of none."""
STEPS_OF_BISECTION = 40
SOUNDING_SHARE = 0.25
"""The share of the time in which every cell is timed once."""


@dataclass(frozen=True)
class Sounding:
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

    least: Mapping[str, int] = field(default_factory=dict)
    """The smallest values of the parameters that can be made smaller."""
    most: Mapping[str, int | None] = field(default_factory=dict)
    """Their usual values, None for those that have none."""
    repetitions: int = 1
    """How often all that is timed is done, warm-up included."""

    def sizes(self, growth: float) -> dict[str, int]:
        """Return the parameters with which it takes about so many times as long as with the smallest."""
        sizes = {}
        for name, least in self.least.items():
            usual, multiple = self.most[name], MULTIPLE.get(name, 1)
            size = least * growth ** (1 / GROWTH[name])
            sizes[name] = usual if usual is not None and size >= usual else max(least, int(size) // multiple * multiple)
        return sizes

    def growth(self, sizes: Mapping[str, int]) -> float:
        """Return how many times as long as with the smallest sizes it takes with these, at the most."""
        return max([1.0, *((sizes[name] / least) ** GROWTH[name] for name, least in self.least.items())])


@dataclass(frozen=True)
class Fit:
    """How many rounds there are, with which sizes, and how long each process is expected to take."""

    rounds: int
    sizes: Mapping[str, Mapping[str, int]]
    """By experiment."""
    measuring: Mapping[str, float]
    """By experiment, the seconds after its start that the slowest cell's process is expected to take."""
    starts: Mapping[str, float]
    """By backend and engine, the seconds of a process that belong to no cell."""
    seconds: Mapping[Cell, float]
    """By cell, without a trace."""
    tracing: Mapping[Cell, float]
    """By cell, how much longer it takes if it is profiled."""
    processes: tuple[str, ...]
    """The backend and engine of each process of a round."""

    def cell_seconds(self, cell: Cell, traced: bool) -> float:
        """Return how long a cell is expected to take."""
        return self.seconds[cell] + (self.tracing[cell] if traced else 0.0)

    def round_seconds(self, traced: bool) -> float:
        """Return how long a round is expected to take."""
        return sum(self.starts[side] for side in self.processes) + sum(
            self.cell_seconds(cell, traced) for cell in self.seconds
        )

    def total_seconds(self, traced: bool) -> float:
        """Return how long all rounds are expected to take."""
        return self.rounds * self.round_seconds(False) + self.round_seconds(traced) - self.round_seconds(False)

    def options(self, plan: Plan) -> dict[str, dict[str, Any]]:
        """Return the options that each experiment's processes are given: its sizes, and a budget if it takes one."""
        return {
            experiment.name: {
                **self.sizes[experiment.name],
                **(
                    {"budget": max(SHORTEST_BUDGET, round(SPARE * self.measuring[experiment.name], 1))}
                    if _has_budget(experiment)
                    else {}
                ),
            }
            for experiment in plan.experiments
        }


def sounding_of(result: Result, start: float, seconds: float) -> Sounding:
    """Return what a run with the smallest options says, which took so many seconds after its process had started."""
    repetition = sum(
        case.repeats * sum(median(some) for some in (case.seconds, case.bare_seconds) if some) for case in result.cases
    )
    repetitions = 1 + max((len(case.warmup_seconds) for case in result.cases), default=0)
    return Sounding(max(0.0, start), max(0.0, seconds - repetitions * repetition), repetition)


def work_of(experiment: Experiment, mode: Mode) -> Work:
    """Return how much an experiment usually does in a comparison, and how much at least."""
    usual, known = experiment.options.get(mode, {}), options_of(experiment)
    values = {name: usual.get(name, parameter.default) for name, parameter in known.items()}
    most = {name: None if values[name] is None else int(values[name]) for name in GROWTH if name in known}
    least = {name: LEAST[name] if value is None else min(LEAST[name], value) for name, value in most.items()}
    repetitions = int(values["epochs"]) if "epochs" in usual else 1 + int(values.get("rounds") or 0)
    return Work(least, most, repetitions)


def smallest(experiment: Experiment, mode: Mode) -> dict[str, Any]:
    """Return the options with which a process of an experiment is as short as it can be, for a sounding."""
    once = {name: 1 for name in ("rounds", "epochs") if name in experiment.options.get(mode, {})}
    budget = {"budget": SHORTEST_BUDGET} if _has_budget(experiment) else {}
    return {**work_of(experiment, mode).sizes(1.0), **once, **budget}


def fit(
    plan: Plan,
    soundings: Mapping[Cell, Sounding],
    left: float,
    late: float,
) -> Fit:
    """Choose rounds and sizes with which all processes take as many of the seconds left as are of use, with a margin.

    A cell without a sounding is expected to take as long as the mean of its experiment's other cells, else of all.
    The wanted rounds may end up to `late` seconds later. There is one round at least, even if it takes longer.
    """
    wanted, traced = plan.rounds, plan.traces_in is not None
    works = {experiment.name: work_of(experiment, plan.mode) for experiment in plan.experiments}
    known = {cell: _sounding(soundings, cell) for cell in plan.cells}
    planned = MARGIN * left
    processes = tuple(group[0].side for group in plan.groups)

    def fitted(measuring: float, rounds: int) -> Fit:
        return _fit_of(known, works, measuring, rounds, processes)

    def fits(measuring: float, rounds: int, late: float = 0.0) -> bool:
        return fitted(measuring, rounds).total_seconds(traced) <= planned + late

    rounds = wanted or USUAL_ROUNDS
    while rounds > 1 and not fits(0.0, rounds, late):
        rounds -= 1
    if rounds < (wanted or USUAL_ROUNDS):
        # Should the machine be quicker than it seems, there is time for one more.
        return fitted(0.0, rounds)
    low, high = 0.0, max(left, 0.0)
    if fits(high, rounds):
        low = high
    for _ in range(STEPS_OF_BISECTION):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle, rounds) else (low, middle)
    while wanted is None and rounds < MOST_ROUNDS and fits(low, rounds + 1):
        rounds += 1
    return fitted(low, rounds)


def rounds_that_fit(done: int, left: float, round_seconds: float, wanted: int | None) -> int:
    """Return how many rounds there are in all, if `done` are behind and each further one takes so many seconds."""
    return max(1, done, min(done + int(max(0.0, left) / round_seconds), wanted or MOST_ROUNDS))


def _fit_of(
    known: Mapping[Cell, Sounding], works: Mapping[str, Work], measuring: float, rounds: int, processes: tuple[str, ...]
) -> Fit:
    """Fit each experiment's sizes to the seconds that its slowest cell may measure."""
    slowest: dict[str, float] = {}
    for cell, sounding in known.items():
        slowest[cell.experiment] = max(slowest.get(cell.experiment, 0.0), sounding.repetition)
    sizes = {}
    for name, repetition in slowest.items():
        growth = measuring / (works[name].repetitions * repetition) if repetition else 1.0
        sizes[name] = works[name].sizes(max(1.0, growth))
    growths = {name: works[name].growth(some) for name, some in sizes.items()}

    def measured(cell: Cell) -> float:
        return works[cell.experiment].repetitions * known[cell].repetition * growths[cell.experiment]

    after_start = {cell: sounding.fixed + measured(cell) for cell, sounding in known.items()}
    return Fit(
        rounds,
        sizes,
        measuring={
            name: max(seconds for cell, seconds in after_start.items() if cell.experiment == name) for name in growths
        },
        starts={
            side: mean(sounding.start for cell, sounding in known.items() if cell.side == side) for side in processes
        },
        seconds=after_start,
        # A profiler starts, everything is repeated twice, more slowly, and what was recorded is read and written.
        tracing={
            cell: sounding.start / 4 + 2 * sounding.repetition * growths[cell.experiment]
            for cell, sounding in known.items()
        },
        processes=processes,
    )


def _sounding(soundings: Mapping[Cell, Sounding], cell: Cell) -> Sounding:
    alike = [one for other, one in soundings.items() if other.experiment == cell.experiment]
    some = [soundings[cell]] if cell in soundings else alike or list(soundings.values()) or [UNKNOWN]
    return Sounding(*(mean(values) for values in zip(*map(astuple, some), strict=True)))


def _has_budget(experiment: Experiment) -> bool:
    return "budget" in options_of(experiment)
