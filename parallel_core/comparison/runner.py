"""Run a comparison: its cells in processes, in interleaved rounds (A B C D, A B C D, …), and go on
when one fails.

Every cell is run once in each round. Where time is limited, every cell is timed once before, at the
smallest sizes, and there are as many rounds as fit. Which process is next, and how long the rest
will take, a `Schedule` says, which runs nothing.
"""

import datetime
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from statistics import mean
from time import monotonic
from typing import Any

from parallel_core.comparison.cells import Cell, CellResults, Comparison, FailedRun
from parallel_core.comparison.plan import SOUNDING, Plan
from parallel_core.comparison.time_budget import (
    GPU_SIDES,
    MOST_ROUNDS,
    USUAL_ROUNDS,
    Fit,
    fit,
    smallest,
    sounding_of,
)
from parallel_core.measurement.fresh_process import Measured, measured_in
from parallel_core.measurement.result import Result
from parallel_core.system.errors import REFUSED
from parallel_core.system.machine import describe_machine
from parallel_core.system.subprocesses import lifeline, supervise

NOT_A_RESULT = "gave something else than the result that was asked for"
Chosen = Mapping[str, Mapping[str, Any]]
"""Values of parameters, by experiment."""
MAX_FAILURES = 2
"""A cell is given up after so many failed processes."""
MAKE_UP_ROUNDS = 2
"""How many rounds follow for the cells whose processes failed or gave invalid results."""
LATE, TOO_LATE = 0.1, 0.15
"""By what fraction of the time the last round may end late, and a process of it that takes longer
than expected.
"""
CLOSING_STARTS = 2.0
"""Analysis and report take so many times the start of a process."""
SOUNDING_SHARE, SHORTEST_SOUNDING = 0.25, 5.0
"""The share of the time in which every cell is timed once, and the fewest seconds of a process that
does it.
"""
LONGER_THAN_EXPECTED, PATIENCE, SHORTEST_DEADLINE = 3, 0.2, 30.0
"""Where time is limited, a process is killed when it has taken so many times the expected time, but
not before this share of the time, nor before so many seconds.
"""


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
    """About how long they will take, and what follows; None before the first one has ended, unless
    time is limited.
    """
    fits: bool = True
    """Whether that is in time: the first round is run in any case."""


@dataclass(frozen=True)
class Ran:
    """What a process gave for its cells: what was measured, and which one failed. What it did not
    reach is missing.
    """

    measured: Mapping[Cell, Measured]
    failures: Mapping[Cell, FailedRun] = field(default_factory=dict)
    start: float = 0.0
    """The seconds that belong to no cell: to start, to import the framework and to end."""


@dataclass(frozen=True)
class Schedule:
    """What was run so far. What was measured, what was chosen and what comes next follow from it
    and from the time.
    """

    plan: Plan
    done: tuple[tuple[NextRun, Ran], ...] = ()
    sounded: float = 0.0
    """The seconds of the comparison after which every cell had been timed once."""

    @cached_property
    def _counted(self) -> list[tuple[int, Ran]]:
        """The processes that count, with their rounds: all but the soundings."""
        return [(run.round, ran) for run, ran in self.done if run.round != SOUNDING]

    @cached_property
    def cells(self) -> dict[Cell, CellResults]:
        """The results and failures of all cells."""
        return {
            cell: CellResults(
                cell,
                tuple(
                    ran.measured[cell].result for _, ran in self._counted if cell in ran.measured
                ),
                tuple(ran.failures[cell] for _, ran in self._counted if cell in ran.failures),
            )
            for cell in self.plan.cells
        }

    @cached_property
    def fit(self) -> Fit | None:
        """The sizes that fit into the time, and what is expected; None before the soundings, and
        without a limit.
        """
        soundings = [ran for run, ran in self.done if run.round == SOUNDING]
        if len(soundings) < len(self.plan.sides):
            return None
        known = {
            cell: sounding_of(one, ran.start)
            for ran in soundings
            for cell, one in ran.measured.items()
        }
        results = [one.result for ran in soundings for one in ran.measured.values()]
        # Cells on CPUs would take far longer than was foreseen.
        on_gpus = bool(results) and all(
            one.startswith("gpu") for each in results for one in each.backend["devices"]
        )
        return fit(self.plan, known, self._time_left(self.sounded), GPU_SIDES if on_gpus else 1)

    def chosen(self, turn: int) -> dict[str, dict[str, Any]]:
        """Return the parameters of a round's processes by experiment: those given, else fitted,
        else chosen first.
        """
        if turn == SOUNDING:
            return {
                experiment.name: smallest(experiment, self.plan.mode)
                for experiment in self.plan.experiments
            }
        first = {
            cell.experiment: {
                name: results.results[0].parameters[name] for name in self.plan.to_calibrate(cell)
            }
            for cell, results in self.cells.items()
            if results.results
        }
        fitted = self.fit.options if self.fit else {}
        names = [experiment.name for experiment in self.plan.experiments]
        return {
            one: {**first.get(one, {}), **fitted.get(one, {}), **self.plan.sizes.get(one, {})}
            for one in names
        }

    def next_run(self, elapsed: float) -> NextRun | None:
        """Return the next process, after so many seconds of the comparison; None if there is
        none.
        """
        turn, rounds = SOUNDING, self.plan.rounds or USUAL_ROUNDS
        if self.done:
            turn, rounds = self.done[-1][0].round, self.done[-1][0].rounds
        while turn <= rounds + MAKE_UP_ROUNDS:
            due = self._processes(turn, rounds)
            # The first round is run in any case.
            if (
                due
                and turn > 1
                and self._expected(due[0], turn) > self._time_left(elapsed, TOO_LATE)
            ):
                return None
            if SOUNDING < turn <= rounds:
                rounds = self._rounds_in_time(turn, due, elapsed)
            if due:
                later = [
                    (one, cells)
                    for one in range(turn + 1, rounds + 1)
                    for cells in self._processes(one, rounds)
                ]
                left = [*((turn, cells) for cells in due), *later]
                seconds = sum(self._expected(cells, one) for one, cells in left) + self._closing
                if not self.fit and not self._taken:
                    seconds = self.plan.seconds - elapsed
                fits = elapsed + seconds <= (1 + LATE) * self.plan.seconds
                return NextRun(
                    due[0],
                    turn,
                    rounds,
                    len(left),
                    seconds if math.isfinite(seconds) else None,
                    fits,
                )
            turn += 1
        return None

    def deadline(self, run: NextRun, elapsed: float) -> float:
        """Return the seconds after which a process is killed, if it starts after so many of the
        comparison.
        """
        seconds, most = self.plan.seconds, self.plan.deadline
        if run.round == SOUNDING:
            # One that hangs leaves time for the other cells, of which each may take twice its
            # share.
            share = min(1.0, 2 / len(self._processes(SOUNDING, run.rounds)))
            return min(most, max(SHORTEST_SOUNDING, share * (SOUNDING_SHARE * seconds - elapsed)))
        expected = LONGER_THAN_EXPECTED * self._expected(run.cells, run.round)
        deadline = min(most, max(PATIENCE * seconds, SHORTEST_DEADLINE, expected))
        return deadline if run.round == 1 else min(deadline, self._time_left(elapsed, TOO_LATE))

    def _processes(self, turn: int, rounds: int) -> list[tuple[Cell, ...]]:
        """List the cells of each process of a round that remains, if none of them fails.

        In a regular round these are all, and later those whose failed and invalid runs are to be
        made up for.
        """
        if turn == SOUNDING:
            return (
                list(self.plan.sides[len(self.done) :]) if math.isfinite(self.plan.seconds) else []
            )
        tried = {
            cell
            for one, ran in self._counted
            if one == turn
            for cell in (*ran.measured, *ran.failures)
        }

        def is_due(cell: Cell) -> bool:
            valid, failures = self.cells[cell].valid, self.cells[cell].failures
            given_up = len(failures) >= MAX_FAILURES or any(failure.refused for failure in failures)
            return cell not in tried and not given_up and (turn <= rounds or len(valid) < rounds)

        return list(filter(None, (tuple(filter(is_due, group)) for group in self.plan.groups)))

    def _expected(self, cells: Sequence[Cell], turn: int) -> float:
        """Estimate how long a process takes: as long as before, else as foreseen and as the rest
        took so far.
        """
        starts = [(run.cells[0].side, ran.start) for run, ran in self.done if ran.measured]
        own = [start for side, start in starts if side == cells[0].side]
        in_all, traced = (
            mean(own or [start for _, start in starts] or [0.0]),
            self.plan.is_traced(turn),
        )
        for cell in cells:
            # Without a limit tracing, of which nothing is foreseen, may be neglected.
            taken = [
                seconds
                for one, was, seconds in self._taken
                if one == cell and (was == traced or not self.fit)
            ]
            in_all += mean(taken) if taken else self._slowness * self._foreseen(cell, traced)
        return in_all

    @cached_property
    def _taken(self) -> list[tuple[Cell, bool, float]]:
        """The cells that were measured, whether they were traced, and the seconds that they
        took.
        """
        counted = [(self.plan.is_traced(turn), ran) for turn, ran in self._counted]
        return [
            (cell, traced, one.seconds)
            for traced, ran in counted
            for cell, one in ran.measured.items()
        ]

    @cached_property
    def _slowness(self) -> float:
        """The time taken over the time foreseen: at first 1, then more and more as they took so
        far.
        """
        doubt = self.fit.round_seconds() / 4 if self.fit else 0.0
        foreseen = sum(self._foreseen(cell, traced) for cell, traced, _ in self._taken)
        return (
            (sum(seconds for _, _, seconds in self._taken) + doubt) / (foreseen + doubt)
            if self._taken
            else 1.0
        )

    def _foreseen(self, cell: Cell, traced: bool) -> float:
        """Return how long a cell should take; without soundings all are taken to be alike."""
        return self.fit.cell_seconds(cell, traced) if self.fit else 1.0

    def _time_left(self, elapsed: float, late: float = 0.0) -> float:
        """Return in how many seconds the last process has to end, if it may end late by a share of
        the time.
        """
        return (1 + late) * self.plan.seconds - elapsed - self._closing

    @property
    def _closing(self) -> float:
        """The seconds that follow the last process."""
        # Only the first ones count, so that what was fitted into the time does not change.
        first = self.done[: len(self.plan.sides)]
        return CLOSING_STARTS * mean([ran.start for _, ran in first if ran.measured] or [1.0])

    def _rounds_in_time(self, turn: int, due: Sequence[tuple[Cell, ...]], elapsed: float) -> int:
        """Return how many rounds there will be, if these processes of this one remain, as far as
        can be foreseen.
        """
        left = self._time_left(elapsed, LATE) - sum(self._expected(cells, turn) for cells in due)
        a_round = sum(
            self._expected(cells, turn + 1) for cells in self._processes(turn + 1, turn + 1)
        )
        further = max(0.0, left) / a_round if a_round else 0.0
        return max(turn, int(min(turn + further, self.plan.rounds or MOST_ROUNDS)))


async def run_cells(plan: Plan, run: NextRun, chosen: Chosen, deadline: float) -> Ran:
    """Run cells in a process, killed after so many seconds; return at least the outcome of the
    first one.
    """
    began = monotonic()
    try:
        with lifeline() as stdin:
            command = plan.command(run.cells, chosen, run.round)
            ended_as = await supervise(command, deadline, plan.cores, stdin)
    except (FileNotFoundError, PermissionError) as error:
        reason = f"{plan.interpreters[run.cells[0].backend]} cannot be started: {error.strerror}"
        return Ran({}, {run.cells[0]: FailedRun(run.round, reason, refused=True)})
    ended = monotonic()
    pairs = zip(run.cells, measured_in(ended_as.output), strict=False)
    measured = dict(takewhile(lambda pair: _is_of(plan, pair[0], pair[1].result), pairs))
    if len(measured) == len(run.cells):
        return Ran(measured, {}, ended - began - sum(one.seconds for one in measured.values()))
    # The next one was running when the process ended.
    reason = NOT_A_RESULT if ended_as.status == 0 else ended_as.reason(deadline)
    failure = FailedRun(run.round, reason, refused=ended_as.status == REFUSED)
    start = next((one.began - began for one in measured.values()), 0.0)
    return Ran(measured, {run.cells[len(measured)]: failure}, start)


def _is_of(plan: Plan, cell: Cell, result: Result) -> bool:
    """Return whether a result is a cell's, with all parameters that were to be chosen."""
    return cell.matches(result) and all(
        name in result.parameters for name in plan.to_calibrate(cell)
    )


async def run_comparison(
    plan: Plan,
    command: str,
    on_run: Callable[[NextRun], object],
    keep: Callable[[Comparison], object],
    run_process: Callable[[Plan, NextRun, Chosen, float], Awaitable[Ran]] = run_cells,
    clock: Callable[[], float] = monotonic,
) -> Comparison:
    """Run the plan and return the results.

    `command` is the command line that asked for it. `on_run` is called before every process, and
    `keep` after every process that counts with all results so far, so that nothing is lost if the
    next one is interrupted. A cell that fails keeps its reason; its other rounds and the other
    cells go on.
    """
    began = clock()
    schedule = Schedule(plan)
    comparison = Comparison(
        rounds=plan.rounds or 0,
        quick=plan.mode == "quick",
        command=command,
        utc=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine=describe_machine(),
        cells=tuple(schedule.cells.values()),
        options={
            "devices": plan.devices,
            "device_kind": plan.device_kind,
            "threads": plan.threads,
            "cores": sorted(plan.cores),
            "seconds": plan.seconds if math.isfinite(plan.seconds) else None,
            "shared": plan.shared,
            "deadline_seconds": plan.deadline,
            "interpreters": dict(plan.interpreters),
        },
    )
    while (run := schedule.next_run(clock() - began)) is not None:
        on_run(run)
        deadline = schedule.deadline(run, clock() - began)
        ran = await run_process(plan, run, schedule.chosen(run.round), deadline)
        elapsed, counts = clock() - began, run.round != SOUNDING
        schedule = Schedule(
            plan, (*schedule.done, (run, ran)), schedule.sounded if counts else elapsed
        )
        if counts:
            rounds, cells = (
                plan.rounds or min(run.round, run.rounds),
                tuple(schedule.cells.values()),
            )
            comparison = replace(comparison, rounds=rounds, cells=cells, seconds=elapsed)
            keep(comparison)
    return comparison
