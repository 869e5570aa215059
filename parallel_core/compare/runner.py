"""Run a comparison: the processes of a generation live together and take turns, one generation
follows the other (`Schedule`), and what fails stops no other.
"""

import datetime
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic

from parallel_core.compare.living_processes import Command, Living, live
from parallel_core.compare.plan import Plan
from parallel_core.compare.results import (
    Cell,
    CellResults,
    Comparison,
    FailedRun,
    FailureCode,
)
from parallel_core.compare.schedule import Generation, Process, Ran, Schedule
from parallel_core.measurement.fresh_process import measured_in, worker_command
from parallel_core.measurement.result import Result
from parallel_core.system.errors import REFUSED
from parallel_core.system.machine import describe_machine

REASONS: Mapping[FailureCode, str] = {
    "not-a-result": "gave something else than the result that was asked for",
    "no-result": "ended by itself, with status 0, before it gave a result",
}
"""Why a process failed that ended with status 0."""
OnResult = Callable[[Schedule], object]
"""Is called with the schedule after what the processes of a generation gave so far."""
OnProgress = Callable[[Generation, int, Comparison], object]
"""Is called with a generation, how many results it has given, and all that was measured so far."""


async def run_together(
    schedule: Schedule, generation: Generation, deadlines: Sequence[float], on_result: OnResult
) -> Schedule:
    """Run the next generation of a schedule, and return the schedule after it.

    Each of its processes is killed when it has computed for so many seconds. They give at least the
    outcome of the first cell of each. `on_result` is called whenever there is another result.
    """
    together = _Together(schedule, generation, on_result)
    commands = [together.command(number, deadline) for number, deadline in enumerate(deadlines)]
    processes = await live(
        commands, schedule.plan.cores, together.ask, together.keep, together.are_sizes_known
    )
    return together.after(processes)


class _Together:
    """A generation whose processes are alive: what each is asked for, and the schedule after what
    they gave.

    An experiment has the number of its place in the plan.
    """

    def __init__(self, before: Schedule, generation: Generation, on_result: OnResult) -> None:
        self._plan, self._generation, self._on_result = before.plan, generation, on_result
        self._names = [experiment.name for experiment in before.plan.experiments]
        self._before = self._so_far = before

    def command(self, number: int, deadline: float) -> Command:
        """Return the command of a process."""
        cells = self._generation.processes[number]
        python = self._plan.interpreters[cells[0].backend]
        steps = [self._names.index(cell.experiment) for cell in cells]
        return Command(partial(worker_command, python), self.ask(number, steps[0]), steps, deadline)

    def ask(self, number: int, step: int) -> str:
        """Return the line that asks a process for an experiment, with the sizes that are known."""
        name = self._names[step]
        (cell,) = (cell for cell in self._generation.processes[number] if cell.experiment == name)
        sizes = self._so_far.chosen[name]
        return self._plan.request(cell, sizes, self._generation.round).as_line()

    def are_sizes_known(self, step: int) -> bool:
        """Return whether an experiment's sizes are known; its first process may choose some."""
        name = self._names[step]
        return self._so_far.chosen[name].keys() >= set(self._plan.to_calibrate(name))

    def keep(self, processes: Sequence[Living]) -> None:
        """Keep what the processes gave so far, and tell of it."""
        self._so_far = self.after(processes)
        self._on_result(self._so_far)

    def after(self, processes: Sequence[Living]) -> Schedule:
        """Return the schedule after what the processes gave, until now or until they ended."""
        ran = tuple(
            _ran(self._plan, cells, process, self._generation.round)
            for cells, process in zip(self._generation.processes, processes, strict=True)
        )
        return self._before.after(self._generation, ran)


def _ran(plan: Plan, cells: Process, process: Living, turn: int) -> Ran:
    """Return what a process gave for its cells, until now or until it ended.

    Results count up to the first one that is not its cell's, or lacks a parameter that was to be
    chosen.
    """
    measured: dict[Cell, Result] = {}
    for cell, result in zip(cells, measured_in(process.output), strict=False):
        lacks_sizes = set(plan.to_calibrate(cell.experiment)) - result.parameters.keys()
        if lacks_sizes or not cell.matches(result):
            break
        measured[cell] = result
    failures: dict[Cell, FailedRun] = {}
    outcome = process.outcome
    if outcome is not None and len(measured) < len(cells):
        # The next one was running when the process ended.
        reason = outcome.reason(process.command.deadline)
        refused = outcome.status == REFUSED
        code: FailureCode = "refused" if refused else outcome.code
        if outcome.status == 0:
            printed = [line for line in process.output.splitlines() if line.strip()]
            code = "not-a-result" if len(printed) > len(measured) else "no-result"
            reason = REASONS[code]
        failures = {cells[len(measured)]: FailedRun(turn, reason, refused, code)}
    return Ran(measured, failures, process.loading, process.seconds)


async def run_comparison(
    plan: Plan,
    command: str,
    on_progress: OnProgress,
    keep: Callable[[Comparison], object],
    run: Callable[
        [Schedule, Generation, Sequence[float], OnResult], Awaitable[Schedule]
    ] = run_together,
    clock: Callable[[], float] = monotonic,
) -> Comparison:
    """Run the plan and return the results.

    `command` is the command line that asked for it. `on_progress` is called when a generation
    begins and after each of its results. `keep` is called after every result with all results so
    far, so that nothing is lost if the next one is interrupted. A cell that fails keeps its reason;
    its other rounds and the other cells go on.
    """
    began = clock()
    nothing_measured = _planned(plan, command)

    def record(so_far: Schedule) -> Comparison:
        """Keep everything that was measured until now, and return it."""
        latest = so_far.done[-1]
        comparison = replace(
            nothing_measured,
            rounds=plan.rounds if math.isinf(plan.seconds) else latest.generation.round,
            cells=tuple(so_far.cells.values()),
            seconds=clock() - began,
        )
        keep(comparison)
        results = sum(len(of_process.measured) for of_process in latest.ran)
        on_progress(latest.generation, results, comparison)
        return comparison

    schedule, comparison = Schedule(plan), nothing_measured
    while (generation := schedule.next_generation(clock() - began)) is not None:
        on_progress(generation, 0, comparison)
        deadlines = [
            schedule.deadline(process, generation.round, clock() - began)
            for process in generation.processes
        ]
        schedule = await run(schedule, generation, deadlines, record)
        comparison = record(schedule)
    return comparison


def _planned(plan: Plan, command: str) -> Comparison:
    """Return the comparison before anything is measured."""
    return Comparison(
        rounds=plan.rounds,
        quick=plan.mode == "quick",
        command=command,
        utc=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine=describe_machine(),
        cells=tuple(map(CellResults, plan.cells)),
        options={
            "devices": plan.devices,
            "device_kind": plan.device_kind,
            "threads": plan.threads,
            "cores": sorted(plan.cores),
            "seconds": plan.seconds if math.isfinite(plan.seconds) else None,
            "shared": plan.shared,
            "controls_once": plan.controls_once,
            "rounds": plan.rounds,
            "deadline_seconds": plan.deadline,
            "interpreters": dict(plan.interpreters),
        },
    )
