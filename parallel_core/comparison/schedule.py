"""Which process is next, and how long the rest will take: the schedule of a comparison, without running anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any, TypeAlias

from parallel_core.comparison.cells import Cell, CellResults, FailedRun
from parallel_core.comparison.plan import TRACED, Plan
from parallel_core.comparison.processes import Ran
from parallel_core.comparison.time_budget import Fit, rounds_that_fit

__all__ = ["CALIBRATION", "NextRun", "Schedule"]

CALIBRATION = 0
"""The number of the uncounted round in which first processes choose the sizes for all."""
MAX_FAILURES = 2
"""A cell is given up after so many failed processes."""
MAKE_UP_ROUNDS = 2
"""How many rounds follow for the cells whose processes failed or gave invalid results."""
LATE = 0.1
"""The share of the time by which the last round may end late."""
TOO_LATE = 0.15
"""The share from which on no process is started, unless it belongs to the first round."""
LONGER_THAN_EXPECTED = 3
"""Where time is short, a process is killed when it has taken so many times as long as expected, …"""
PATIENCE, SHORTEST_DEADLINE = 0.2, 30.0
"""… but not before this share of the time, nor before so many seconds."""


Process: TypeAlias = tuple[tuple[Cell, ...], bool]
"""The cells that share a process, and whether they are profiled."""


@dataclass(frozen=True)
class NextRun:
    """A process that is about to start, as a progress display shows it."""

    cells: tuple[Cell, ...]
    round: int
    rounds: int
    """How many rounds there will be."""
    left: int
    """How many processes remain, this one included."""
    seconds_left: float | None
    """About how long they will take, and what follows; None before the first one has ended, unless time is set."""

    @property
    def what(self) -> str:
        """What is run: `overlap on torch async`, or `torch async` if several cells share the process."""
        return str(self.cells[0]) if len(self.cells) == 1 else self.cells[0].side


@dataclass(frozen=True)
class _Taken:
    """How long a cell took."""

    cell: Cell
    traced: bool
    seconds: float


@dataclass(frozen=True)
class Schedule:
    """What has been done and measured so far. The next process follows from it and from the time."""

    plan: Plan
    cells: Mapping[Cell, CellResults]
    chosen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Values of parameters, by experiment."""
    fit: Fit | None = None
    """What is expected, if time is set."""
    closing: float = 0.0
    """The seconds that follow the last process."""
    taken: tuple[_Taken, ...] = ()
    starts: tuple[tuple[str, float], ...] = ()
    """By backend and engine, the seconds of each process that belong to no cell."""
    tried: frozenset[tuple[int, Cell]] = frozenset()
    """What has been run, by round."""
    last: NextRun | None = None

    @property
    def rounds(self) -> int:
        """How many rounds were begun."""
        return 0 if self.last is None else min(self.last.round, self.last.rounds)

    def next_run(self, elapsed: float) -> NextRun | None:
        """Return the next process, after so many seconds of the comparison; None if there is none."""
        if self.last is not None:
            turn, rounds = self.last.round, self.last.rounds
        else:
            turn, rounds = (CALIBRATION, self.plan.rounds or 1) if self.fit is None else (1, self.fit.rounds)
        while True:
            due = self._processes(turn, rounds)
            if due:
                if not self._in_time(due[0], turn, elapsed):
                    return None
                if turn == CALIBRATION:
                    # One process calibrates for all cells of its experiment.
                    due = list({cells[0].experiment: (cells, traced) for cells, traced in reversed(due)}.values())[::-1]
                if self.fit is not None and turn <= rounds:
                    rounds = self._rounds(turn, due, elapsed)
                later = [process for one in range(turn + 1, rounds + 1) for process in self._processes(one, rounds)]
                left = [*due, *later]
                return NextRun(due[0][0], turn, rounds, len(left), self._seconds_left(left))
            if self.fit is not None and turn <= rounds:
                rounds = self._rounds(turn, (), elapsed)
            turn += 1
            if turn > rounds + MAKE_UP_ROUNDS:
                return None

    def after(self, run: NextRun, ran: Ran) -> "Schedule":
        """Return the schedule when a process has ended."""
        cells, chosen = dict(self.cells), dict(self.chosen)
        for cell, outcome in ran.outcomes.items():
            if isinstance(outcome, FailedRun):
                cells[cell] = replace(cells[cell], failures=(*cells[cell].failures, outcome))
                continue
            own = {name: outcome.parameters[name] for name in self.plan.to_calibrate(cell)}
            chosen[cell.experiment] = {**own, **chosen.get(cell.experiment, {})}
            if run.round != CALIBRATION:
                cells[cell] = replace(cells[cell], results=(*cells[cell].results, outcome))
        traced = self._is_traced(run.round)
        # How long a failure took says nothing about the next run.
        succeeded = [cell for cell, outcome in ran.outcomes.items() if not isinstance(outcome, FailedRun)]
        return replace(
            self,
            cells=cells,
            chosen=chosen,
            taken=(*self.taken, *(_Taken(cell, traced, ran.seconds[cell]) for cell in succeeded)),
            starts=(*self.starts, *((cell.side, ran.start) for cell in succeeded[:1])),
            tried=self.tried | {(run.round, cell) for cell in ran.outcomes},
            last=run,
        )

    def deadline(self, run: NextRun, elapsed: float) -> float:
        """Return the seconds after which a process is killed, if it starts after so many of the comparison."""
        if self.plan.seconds is None:
            return self.plan.deadline
        expected = LONGER_THAN_EXPECTED * (self._expected((run.cells, self._is_traced(run.round))) or 0)
        deadline = min(self.plan.deadline, max(PATIENCE * self.plan.seconds, SHORTEST_DEADLINE, expected))
        return deadline if run.round == 1 else min(deadline, self._latest_end(elapsed))

    def _processes(self, turn: int, rounds: int) -> list[Process]:
        """List the processes of a round that remain, if none of them fails."""
        due = (
            tuple(cell for cell in group if (turn, cell) not in self.tried and self._is_due(cell, turn, rounds))
            for group in self.plan.groups
        )
        return [(cells, self._is_traced(turn)) for cells in due if cells]

    def _is_due(self, cell: Cell, turn: int, rounds: int) -> bool:
        """Tell whether a cell is run in a round: in every regular one, and later to replace invalid and failed runs."""
        results = self.cells[cell]
        if _given_up(results):
            return False
        if turn == CALIBRATION:
            known = self.chosen.get(cell.experiment, {})
            return not all(name in known for name in self.plan.to_calibrate(cell))
        return turn <= rounds or len(results.valid) < rounds

    def _seconds_left(self, left: Sequence[Process]) -> float | None:
        """Estimate how long the remaining processes take, and what follows; None if there is nothing to go by."""
        seconds = self._expected_sum(left)
        return None if seconds is None else seconds + self.closing

    def _expected_sum(self, some: Sequence[Process]) -> float | None:
        expected = [self._expected(one) for one in some]
        known = [seconds for seconds in expected if seconds is not None]
        return sum(known) if len(known) == len(some) else None

    def _expected(self, process: Process) -> float | None:
        """Estimate how long a process takes; None if there is nothing to go by."""
        cells, traced = process
        start = [seconds for side, seconds in self.starts if side == cells[0].side]
        if start:
            in_all = mean(start)
        else:
            in_all = self._slowness() * self.fit.starts[cells[0].side] if self.fit is not None else 0.0
        for cell in cells:
            seconds = self._expected_of_cell(cell, traced)
            if seconds is None:
                return None
            in_all += seconds
        return in_all

    def _expected_of_cell(self, cell: Cell, traced: bool) -> float | None:
        """Estimate how long a cell takes from how long it took, else from what is expected and how it went so far.

        Without a fit, from other cells of its experiment, else from all.
        """
        own = [one.seconds for one in self.taken if one.cell == cell and one.traced == traced]
        if own:
            return mean(own)
        if self.fit is not None:
            return self._slowness() * self.fit.cell_seconds(cell, traced)
        alike = [
            [one.seconds for one in self.taken if one.cell == cell],
            [one.seconds for one in self.taken if one.cell.experiment == cell.experiment],
            [one.seconds for one in self.taken],
        ]
        return next((mean(some) for some in alike if some), None)

    def _slowness(self) -> float:
        """How many times as long as expected things take: at first as long, then more and more as they took so far."""
        assert self.fit is not None
        doubt = self.fit.round_seconds(traced=False) / 4
        expected = sum(self.fit.cell_seconds(one.cell, one.traced) for one in self.taken)
        return (sum(one.seconds for one in self.taken) + doubt) / (expected + doubt)

    def _is_traced(self, turn: int) -> bool:
        return self.plan.traces_in is not None and turn == TRACED

    def _time_left(self, elapsed: float) -> float:
        assert self.plan.seconds is not None
        return self.plan.seconds - elapsed - self.closing

    def _in_time(self, process: Process, turn: int, elapsed: float) -> bool:
        """Tell whether a process may still be started; those of the first round may."""
        if self.plan.seconds is None or turn <= 1:
            return True
        return (self._expected(process) or 0) <= self._latest_end(elapsed)

    def _latest_end(self, elapsed: float) -> float:
        """Return in how many seconds the last process has to end."""
        assert self.plan.seconds is not None
        return self._time_left(elapsed) + TOO_LATE * self.plan.seconds

    def _rounds(self, turn: int, due: Sequence[Process], elapsed: float) -> int:
        """Return how many rounds there will be, if these processes of this one remain, as far as can be foreseen."""
        assert self.plan.seconds is not None
        left = self._time_left(elapsed) + LATE * self.plan.seconds - (self._expected_sum(due) or 0.0)
        a_round = self._expected_sum(self._processes(turn + 1, turn + 1))
        return rounds_that_fit(turn, left, a_round, self.plan.rounds) if a_round else turn


def _given_up(results: CellResults) -> bool:
    return len(results.failures) >= MAX_FAILURES or any(failure.refused for failure in results.failures)
