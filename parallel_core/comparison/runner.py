"""Run a comparison: its cells in processes, in interleaved rounds (A B C D, A B C D, …), and go on
when one fails.

Every cell is run once in each round. Where time is limited, a round begins if it fits, judging by
how long its processes took before; the first one is run in any case. Which process is next, and how
long the rest will take, a `Schedule` says, which runs nothing.
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
from parallel_core.comparison.plan import FIRST, Plan
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
LATE = 0.1
"""By what fraction of the time the last round may end late."""
CLOSING_STARTS = 2.0
"""Analysis and report take so many times the start of a process."""
SHARE_OF_ONE, LONGER_THAN_BEFORE, SHORTEST_DEADLINE = 0.5, 3, 30.0
"""Where time is limited, a process is killed after this share of it, or if one of its cells' took
less before, after so many times that, but not before so many seconds.
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
    """About how long they will take, and what follows; None before the first one has ended."""


@dataclass(frozen=True)
class Ran:
    """What a process gave for its cells: what was measured, and which one failed. What it did not
    reach is missing.
    """

    measured: Mapping[Cell, Measured]
    failures: Mapping[Cell, FailedRun] = field(default_factory=dict)
    start: float = 0.0
    """The seconds that belong to no cell: to start, to import the framework and to end."""
    seconds: float = 0.0
    """All that the process took."""


@dataclass(frozen=True)
class Schedule:
    """What was run so far. What was measured, what was chosen and what comes next follow from it
    and from the time.
    """

    plan: Plan
    done: tuple[tuple[NextRun, Ran], ...] = ()

    @cached_property
    def cells(self) -> dict[Cell, CellResults]:
        """The results and failures of all cells."""
        return {
            cell: CellResults(
                cell,
                tuple(ran.measured[cell].result for _, ran in self.done if cell in ran.measured),
                tuple(ran.failures[cell] for _, ran in self.done if cell in ran.failures),
            )
            for cell in self.plan.cells
        }

    @property
    def chosen(self) -> dict[str, dict[str, Any]]:
        """The parameters of the next process by experiment: those that the first process of each
        experiment chose, unless the plan gives them.
        """
        chosen: dict[str, dict[str, Any]] = {one.name: {} for one in self.plan.experiments}
        for cell, results in self.cells.items():
            if results.results and not chosen[cell.experiment]:
                parameters = results.results[0].parameters
                names = self.plan.to_calibrate(cell)
                chosen[cell.experiment] = {name: parameters[name] for name in names}
        return {name: {**chosen[name], **self.plan.sizes.get(name, {})} for name in chosen}

    def next_run(self, elapsed: float) -> NextRun | None:
        """Return the next process, after so many seconds of the comparison; None if there is
        none.
        """
        turn = self.done[-1][0].round if self.done else FIRST
        due = self._processes(turn)
        if not due:
            turn += 1
            due = self._processes(turn)
            if not due or turn > self.plan.rounds or not self._fits(due, elapsed):
                return None
        seconds = self._expected(due)
        later = self._processes(turn + 1)
        rounds = turn
        while rounds < self.plan.rounds and later and self._fits(later, elapsed + seconds):
            rounds += 1
            seconds += self._expected(later)
        left = len(due) + (rounds - turn) * len(later)
        return NextRun(due[0], turn, rounds, left, seconds + self._closing if self.done else None)

    def deadline(self, run: NextRun, elapsed: float) -> float:
        """Return the seconds after which a process is killed that starts after so many of the
        comparison.
        """
        if math.isinf(self.plan.seconds):
            return self.plan.deadline
        took = self._took(run.cells)
        longest = LONGER_THAN_BEFORE * max(took) if took else SHARE_OF_ONE * self.plan.seconds
        if run.round > FIRST:
            longest = min(longest, self._time_left(elapsed))
        return min(self.plan.deadline, max(SHORTEST_DEADLINE, longest))

    def _processes(self, turn: int) -> list[tuple[Cell, ...]]:
        """List the cells of each process of a round that remains, if none of them fails."""
        tried = {
            cell
            for run, ran in self.done
            if run.round == turn
            for cell in (*ran.measured, *ran.failures)
        }
        due = []
        for group in self.plan.groups:
            cells = tuple(c for c in group if c not in tried and not self._is_given_up(c))
            if cells:
                due.append(cells)
        return due

    def _is_given_up(self, cell: Cell) -> bool:
        """Return whether a cell is not tried again: it failed twice, or was refused."""
        failures = self.cells[cell].failures
        return len(failures) >= MAX_FAILURES or any(failure.refused for failure in failures)

    def _took(self, cells: tuple[Cell, ...]) -> list[float]:
        """Return how long the processes with these cells took, in seconds."""
        return [ran.seconds for run, ran in self.done if run.cells == cells and not ran.failures]

    def _expected(self, processes: Sequence[tuple[Cell, ...]]) -> float:
        """Return how long some processes are expected to take: each as long as the last one with
        its cells, else as all did on average.
        """
        average = mean([ran.seconds for _, ran in self.done] or [0.0])
        return sum([average, *self._took(cells)][-1] for cells in processes)

    def _fits(self, processes: Sequence[tuple[Cell, ...]], elapsed: float) -> bool:
        """Return whether some processes end in time if they start after so many seconds."""
        return self._expected(processes) <= self._time_left(elapsed)

    def _time_left(self, elapsed: float) -> float:
        """Return in how many seconds the last process has to end."""
        return (1 + LATE) * self.plan.seconds - elapsed - self._closing

    @property
    def _closing(self) -> float:
        """The seconds that follow the last process."""
        return CLOSING_STARTS * mean([ran.start for _, ran in self.done if ran.measured] or [1.0])


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
    seconds = monotonic() - began
    pairs = zip(run.cells, measured_in(ended_as.output), strict=False)
    measured = dict(takewhile(lambda pair: _is_of(plan, pair[0], pair[1].result), pairs))
    if len(measured) == len(run.cells):
        start = seconds - sum(one.seconds for one in measured.values())
        return Ran(measured, {}, start, seconds)
    # The next one was running when the process ended.
    reason = NOT_A_RESULT if ended_as.status == 0 else ended_as.reason(deadline)
    failure = FailedRun(run.round, reason, refused=ended_as.status == REFUSED)
    start = next((one.began - began for one in measured.values()), 0.0)
    return Ran(measured, {run.cells[len(measured)]: failure}, start, seconds)


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
    `keep` after every process with all results so far, so that nothing is lost if the
    next one is interrupted. A cell that fails keeps its reason; its other rounds and the other
    cells go on.
    """
    began = clock()
    schedule = Schedule(plan)
    comparison = Comparison(
        rounds=plan.rounds,
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
        ran = await run_process(plan, run, schedule.chosen, deadline)
        schedule = replace(schedule, done=(*schedule.done, (run, ran)))
        rounds = plan.rounds if math.isinf(plan.seconds) else run.round
        cells = tuple(schedule.cells.values())
        comparison = replace(comparison, rounds=rounds, cells=cells, seconds=clock() - began)
        keep(comparison)
    return comparison
