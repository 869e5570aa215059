"""Which processes of a comparison are next, and how long the rest will take: a `Schedule` follows
from the plan, from what was measured and from the time, and runs nothing.

Every cell is measured once in each round. Where time is limited, a round begins if it fits, judging
by how long it took before; the first one is run in any case.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from statistics import mean
from typing import Any

from parallel_core.compare.plan import FIRST, Plan
from parallel_core.compare.results import Cell, CellResults, FailedRun
from parallel_core.measurement.result import Result

Process = tuple[Cell, ...]
"""The cells that a process measures, one after the other."""
MAX_FAILURES = 2
"""A cell is given up after so many failed processes."""
LATE = 0.1
"""By what fraction of the time the last round may end late."""
CLOSING_STARTS = 2.0
"""Analysis and report take so many times the start of a process."""
SHARE_OF_ONE, LONGER_THAN_BEFORE, SHORTEST_DEADLINE = 0.5, 3, 30.0
"""Where time is limited, a process is killed when it has computed for this share of it, or if one
with its cells was faster before, for so many times that, but not before so many seconds.
"""


@dataclass(frozen=True)
class Generation:
    """Processes that are about to start together, as a progress display shows it."""

    processes: tuple[Process, ...]
    round: int
    rounds: int
    """How many rounds there will be."""
    done: int
    """How many results were there before."""
    left: int
    """How many remain, those of this generation included."""
    seconds_left: float | None
    """About how long they will take, and what follows; None before the first one has ended."""

    def experiment_after(self, results: int) -> str:
        """Return the experiment that is measured when there are so many results: all processes
        measure the same.
        """
        cells = max(self.processes, key=len)
        measured_in_each = results // len(self.processes)
        return cells[min(measured_in_each, len(cells) - 1)].experiment


@dataclass(frozen=True)
class Ran:
    """What a process gave for its cells: what was measured, and which one failed. What it did not
    reach is missing.
    """

    measured: Mapping[Cell, Result]
    failures: Mapping[Cell, FailedRun] = field(default_factory=dict)
    start: float = 0.0
    """The seconds that it took to start and to load its framework."""
    seconds: float = 0.0
    """The seconds that it computed, with these."""


@dataclass(frozen=True)
class Lived:
    """A generation that has ended, or as far as it has come."""

    generation: Generation
    ran: tuple[Ran, ...]
    """What each of its processes gave."""


@dataclass(frozen=True)
class Schedule:
    """What was run so far. What was measured, what was chosen and what comes next follow from it
    and from the time.
    """

    plan: Plan
    done: tuple[Lived, ...] = ()

    def after(self, generation: Generation, ran: tuple[Ran, ...]) -> "Schedule":
        """Return the schedule after a generation, or in its course, by what its processes gave."""
        return Schedule(self.plan, (*self.done, Lived(generation, ran)))

    @cached_property
    def cells(self) -> dict[Cell, CellResults]:
        """The results and failures of all cells."""
        cells: dict[Cell, CellResults] = {}
        for cell in self.plan.cells:
            results = [ran.measured[cell] for ran in self._all_ran if cell in ran.measured]
            failures = [ran.failures[cell] for ran in self._all_ran if cell in ran.failures]
            cells[cell] = CellResults(cell, tuple(results), tuple(failures))
        return cells

    @property
    def chosen(self) -> dict[str, dict[str, Any]]:
        """The parameters of the next process by experiment: those that the first process of each
        experiment chose, unless the plan gives them.
        """
        chosen: dict[str, dict[str, Any]] = {one.name: {} for one in self.plan.experiments}
        for cell, results in self.cells.items():
            if results.results and not chosen[cell.experiment]:
                parameters = results.results[0].parameters
                names = self.plan.to_calibrate(cell.experiment)
                chosen[cell.experiment] = {name: parameters[name] for name in names}
        return {name: {**chosen[name], **self.plan.sizes.get(name, {})} for name in chosen}

    def next_generation(self, elapsed: float) -> Generation | None:
        """Return the next generation, after so many seconds of the comparison; None if there is
        none.
        """
        turn = self.done[-1].generation.round if self.done else FIRST
        due = self._generations(turn)
        if not due:
            turn += 1
            due = self._generations(turn)
            if not due or turn > self.plan.rounds or not self._fits(due, elapsed):
                return None
        seconds = self._expected(due)
        later = self._generations(turn + 1)
        rounds = turn
        while rounds < self.plan.rounds and later and self._fits(later, elapsed + seconds):
            rounds += 1
            seconds += self._expected(later)
        left = _results_of(due) + (rounds - turn) * _results_of(later)
        seconds_left = seconds + self._closing if self.done else None
        done = sum(len(cell.results) for cell in self.cells.values())
        return Generation(due[0], turn, rounds, done, left, seconds_left)

    def deadline(self, process: Process, turn: int, elapsed: float) -> float:
        """Return the seconds for which a process of a round may compute that starts after so many
        seconds of the comparison.
        """
        if math.isinf(self.plan.seconds):
            return self.plan.deadline
        took = [ran.seconds for ran in self._ran(process)]
        longest = LONGER_THAN_BEFORE * max(took) if took else SHARE_OF_ONE * self.plan.seconds
        if turn > FIRST:
            longest = min(longest, self._time_left(elapsed))
        return min(self.plan.deadline, max(SHORTEST_DEADLINE, longest))

    def _generations(self, turn: int) -> list[tuple[Process, ...]]:
        """List what remains of a round, if nothing fails: the processes of each generation."""
        due = self._processes(turn)
        if self.plan.shared:
            return [tuple(due)] if due else []
        by_experiment = groupby(due, key=lambda process: process[0].experiment)
        return [tuple(processes) for _, processes in by_experiment]

    def _processes(self, turn: int) -> list[Process]:
        """List the cells of each process of a round that remains, if none of them fails."""
        tried: set[Cell] = set()
        for lived in self.done:
            if lived.generation.round == turn:
                for ran in lived.ran:
                    tried |= {*ran.measured, *ran.failures}
        due = []
        for group in self.plan.groups_in(turn):
            cells = tuple(c for c in group if c not in tried and not self._is_given_up(c))
            if cells:
                due.append(cells)
        return due

    def _is_given_up(self, cell: Cell) -> bool:
        """Return whether a cell is not tried again: it failed twice, or was refused."""
        failures = self.cells[cell].failures
        return len(failures) >= MAX_FAILURES or any(failure.refused for failure in failures)

    @cached_property
    def _all_ran(self) -> list[Ran]:
        """What the processes gave, in the order of the generations."""
        return [ran for lived in self.done for ran in lived.ran]

    def _ran(self, process: Process | None = None) -> list[Ran]:
        """Return what the processes did, or those with these cells, if they did not fail."""
        return [
            ran
            for lived in self.done
            for cells, ran in zip(lived.generation.processes, lived.ran, strict=True)
            if process in (None, cells) and not ran.failures
        ]

    def _expected(self, generations: Sequence[tuple[Process, ...]]) -> float:
        """Return how long some generations are expected to take: each process as long as the last
        one with its cells, else as all did on average.
        """
        every_start = [ran.start for ran in self._ran()] or [0.0]
        every_turn = [ran.seconds - ran.start for ran in self._ran()] or [0.0]
        seconds = 0.0
        for processes in generations:
            longest_start = 0.0
            for process in processes:
                start, turns = mean(every_start), mean(every_turn)
                for ran in self._ran(process):
                    start, turns = ran.start, ran.seconds - ran.start
                # All start at the same time.
                longest_start = max(longest_start, start)
                seconds += turns
            seconds += longest_start
        return seconds

    def _fits(self, generations: Sequence[tuple[Process, ...]], elapsed: float) -> bool:
        """Return whether some generations end in time if they start after so many seconds."""
        return self._expected(generations) <= self._time_left(elapsed)

    def _time_left(self, elapsed: float) -> float:
        """Return in how many seconds the last generation has to end."""
        return (1 + LATE) * self.plan.seconds - elapsed - self._closing

    @property
    def _closing(self) -> float:
        """The seconds that follow the last generation."""
        starts = [ran.start for ran in self._all_ran if ran.measured]
        return CLOSING_STARTS * mean(starts or [1.0])


def _results_of(generations: Sequence[tuple[Process, ...]]) -> int:
    return sum(len(process) for processes in generations for process in processes)
