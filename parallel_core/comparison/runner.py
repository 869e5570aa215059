"""Run a comparison: its cells in processes, in interleaved rounds (A B C D, A B C D, …), and go on when one fails."""

import datetime
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from itertools import takewhile
from time import monotonic
from typing import Any

from parallel_core.comparison.cells import Cell, Comparison, FailedRun
from parallel_core.comparison.plan import SOUNDING, Plan
from parallel_core.comparison.schedule import NextRun, Ran, Schedule
from parallel_core.measurement.fresh_process import measured_in
from parallel_core.measurement.result import Result
from parallel_core.system.errors import REFUSED
from parallel_core.system.machine import describe_machine
from parallel_core.system.subprocesses import supervise

__all__ = ["run_cells", "run_comparison"]

NOT_A_RESULT = "gave something else than the result that was asked for"
Chosen = Mapping[str, Mapping[str, Any]]
"""Values of parameters, by experiment."""


async def run_cells(plan: Plan, run: NextRun, chosen: Chosen, deadline: float) -> Ran:
    """Run cells in a process, killed after so many seconds; return at least the outcome of the first one."""
    began = monotonic()
    try:
        ended_as = await supervise(plan.command(run.cells, chosen, run.round), deadline, plan.cores)
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
    return cell.matches(result) and all(name in result.parameters for name in plan.to_calibrate(cell))


async def run_comparison(
    plan: Plan,
    command: str,
    on_run: Callable[[NextRun], object],
    keep: Callable[[Comparison], object],
    run_process: Callable[[Plan, NextRun, Chosen, float], Awaitable[Ran]] = run_cells,
    clock: Callable[[], float] = monotonic,
) -> Comparison:
    """Run the plan and return the results.

    `command` is the command line that asked for it. `on_run` is called before every process, and `keep` after every
    process that counts with all results so far, so that nothing is lost if the next one is interrupted. A cell that
    fails keeps its reason; its other rounds and the other cells go on.
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
        schedule = Schedule(plan, (*schedule.done, (run, ran)), schedule.sounded if counts else elapsed)
        if counts:
            rounds, cells = plan.rounds or min(run.round, run.rounds), tuple(schedule.cells.values())
            comparison = replace(comparison, rounds=rounds, cells=cells, seconds=elapsed)
            keep(comparison)
    return comparison
