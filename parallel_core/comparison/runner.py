"""Run a comparison: its cells in processes, in interleaved rounds (A B C D, A B C D, …), and go on when one fails."""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import mean
from time import monotonic

from parallel_core.comparison.cells import Cell, CellResults, Comparison, FailedRun
from parallel_core.comparison.plan import Plan
from parallel_core.comparison.processes import Run, run_cells
from parallel_core.comparison.schedule import CALIBRATION, LATE, NextRun, Schedule
from parallel_core.comparison.time_budget import (
    SOUNDING_SHARE,
    USUAL_ROUNDS,
    Sounding,
    fit,
    smallest,
    sounding_of,
)
from parallel_core.system.machine import describe_machine

__all__ = ["run_comparison"]

CLOSING_STARTS = 2.0
"""How many times as long as a process takes to start, analysing and writing the report take."""
SHORTEST_SOUNDING = 5.0


async def run_comparison(
    plan: Plan,
    command: str,
    on_run: Callable[[NextRun], object],
    keep: Callable[[Comparison], object],
    run_process: Run = run_cells,
    clock: Callable[[], float] = monotonic,
) -> Comparison:
    """Run the plan and return the results.

    `command` is the command line that asked for it. `on_run` is called before every process, and `keep` after every
    process with all results so far, so that nothing is lost if the next one is interrupted. A cell that fails keeps
    its reason; its other rounds and the other cells go on. If the plan sets a time, every cell is first timed once.
    """
    started = clock()

    def elapsed() -> float:
        return clock() - started

    schedule = Schedule(plan, {cell: CellResults(cell) for cell in plan.cells}, plan.sizes)
    if plan.seconds is not None:
        soundings = await _sound(plan, plan.seconds, on_run, run_process, elapsed)
        schedule = _fitted(schedule, plan.seconds, soundings, elapsed())
    comparison = _nothing_yet(plan, command)
    while (run := schedule.next_run(elapsed())) is not None:
        on_run(run)
        deadline = schedule.deadline(run, elapsed())
        ran = await run_process(plan, run.cells, schedule.chosen, run.round, deadline)
        schedule = schedule.after(run, ran)
        comparison = replace(
            comparison,
            rounds=plan.rounds or schedule.rounds,
            cells=tuple(schedule.cells.values()),
            seconds=elapsed(),
        )
        keep(comparison)
    return comparison


async def _sound(
    plan: Plan, seconds: float, on_run: Callable[[NextRun], object], run_process: Run, elapsed: Callable[[], float]
) -> dict[Cell, Sounding]:
    """Time every cell once, a process for each backend and engine, within their share of the seconds.

    A cell that fails, or that its process does not reach in time, is left out: the first round will say why.
    """
    options = {experiment.name: smallest(experiment, plan.mode) for experiment in plan.experiments}
    soundings: dict[Cell, Sounding] = {}
    rounds = plan.rounds or USUAL_ROUNDS
    for index, cells in enumerate(plan.sides):
        sides_left = len(plan.sides) - index
        on_run(NextRun(cells, CALIBRATION, rounds, sides_left + rounds * len(plan.groups), seconds - elapsed()))
        # One that hangs leaves time for the others, of which each may take twice its share.
        share = min(1.0, 2 / sides_left) * (SOUNDING_SHARE * seconds - elapsed())
        ran = await run_process(plan, cells, options, CALIBRATION, min(max(SHORTEST_SOUNDING, share), plan.deadline))
        soundings |= {
            cell: sounding_of(outcome, ran.start, ran.seconds[cell])
            for cell, outcome in ran.outcomes.items()
            if not isinstance(outcome, FailedRun)
        }
    return soundings


def _fitted(schedule: Schedule, seconds: float, soundings: Mapping[Cell, Sounding], elapsed: float) -> Schedule:
    """Choose rounds and sizes for the seconds that are left."""
    plan = schedule.plan
    closing = CLOSING_STARTS * mean([one.start for one in soundings.values()] or [1.0])
    fitted = fit(plan, soundings, seconds - elapsed - closing, LATE * seconds)
    options = fitted.options(plan)
    chosen = {name: {**options[name], **plan.sizes.get(name, {})} for name in options}
    return replace(schedule, chosen=chosen, fit=fitted, closing=closing)


def _nothing_yet(plan: Plan, command: str) -> Comparison:
    return Comparison(
        rounds=plan.rounds or 0,
        quick=plan.mode == "quick",
        command=command,
        utc=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine=describe_machine(),
        cells=tuple(CellResults(cell) for cell in plan.cells),
        options={
            "devices": plan.devices,
            "device_kind": plan.device_kind,
            "threads": plan.threads,
            "cores": sorted(plan.cores),
            "seconds": plan.seconds,
            "shared": plan.shared,
            "deadline_seconds": plan.deadline,
            "interpreters": dict(plan.interpreters),
        },
    )
