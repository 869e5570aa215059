"""Run a comparison: the processes of a generation live together and take turns, one generation
follows the other (`Schedule`), and what fails stops no other.
"""

import datetime
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from time import monotonic
from typing import Any, TypeAlias

from parallel_core.comparison.cells import Cell, Comparison, FailedRun
from parallel_core.comparison.living_processes import Command, Living, live
from parallel_core.comparison.plan import Plan
from parallel_core.comparison.schedule import Generation, Lived, Process, Ran, Schedule
from parallel_core.measurement.fresh_process import measured_in, option_words
from parallel_core.measurement.result import Result
from parallel_core.system.errors import REFUSED
from parallel_core.system.machine import describe_machine

NOT_A_RESULT = "gave something else than the result that was asked for"
NO_RESULT = "ended by itself, with status 0, before it gave a result"
Chosen: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Values of parameters, by experiment."""
OnResult: TypeAlias = Callable[[tuple[Ran, ...]], object]
"""Is called with what the processes of a generation gave so far."""
OnProgress: TypeAlias = Callable[[Generation, int, Comparison], object]
"""Is called with a generation, how many results it has given, and all that was measured so far."""


async def run_together(
    plan: Plan,
    generation: Generation,
    chosen: Chosen,
    deadlines: Sequence[float],
    on_result: OnResult,
) -> tuple[Ran, ...]:
    """Run the processes of a generation, each killed when it has computed for so many seconds.

    Returns at least the outcome of the first cell of each. `on_result` is called with what they
    gave so far whenever there is another result.
    """
    names = [experiment.name for experiment in plan.experiments]
    commands = []
    for process, deadline in zip(generation.processes, deadlines, strict=True):
        words = partial(plan.command, process, chosen, generation.round)
        steps = [names.index(cell.experiment) for cell in process]
        commands.append(Command(words, steps, deadline))
    so_far: tuple[Ran, ...] = ()

    def gave(processes: Sequence[Living]) -> tuple[Ran, ...]:
        return tuple(
            _ran(plan, cells, process, generation.round)
            for cells, process in zip(generation.processes, processes, strict=True)
        )

    def tell(processes: Sequence[Living]) -> None:
        nonlocal so_far
        so_far = gave(processes)
        on_result(so_far)

    def options_of(step: int) -> str | None:
        """Return the options of an experiment that its first process chose here; None before."""
        to_choose = [cell for cell in plan.cells if cell.experiment == names[step]]
        parameters = [
            name
            for name in plan.to_calibrate(to_choose[0])
            if name not in chosen.get(names[step], {})
        ]
        if not parameters:
            return ""
        for ran in so_far:
            for cell, result in ran.measured.items():
                if cell.experiment == names[step]:
                    return option_words({name: result.parameters[name] for name in parameters})
        return None

    return gave(await live(commands, plan.cores, tell, options_of))


def _ran(plan: Plan, cells: Process, process: Living, turn: int) -> Ran:
    """Return what a process gave for its cells, until now or until it ended."""
    pairs = zip(cells, measured_in(process.output), strict=False)
    measured = dict(takewhile(lambda pair: _is_of(plan, *pair), pairs))
    failures: dict[Cell, FailedRun] = {}
    outcome = process.outcome
    if outcome is not None and len(measured) < len(cells):
        # The next one was running when the process ended.
        reason = outcome.reason(process.command.deadline)
        if outcome.status == 0:
            printed = [line for line in process.output.splitlines() if line.strip()]
            reason = NOT_A_RESULT if len(printed) > len(measured) else NO_RESULT
        failure = FailedRun(turn, reason, refused=outcome.status == REFUSED)
        failures = {cells[len(measured)]: failure}
    return Ran(measured, failures, process.loading, process.seconds)


def _is_of(plan: Plan, cell: Cell, result: Result) -> bool:
    """Return whether a result is a cell's, with all parameters that were to be chosen."""
    return cell.matches(result) and all(
        name in result.parameters for name in plan.to_calibrate(cell)
    )


async def run_comparison(
    plan: Plan,
    command: str,
    on_progress: OnProgress,
    keep: Callable[[Comparison], object],
    run: Callable[
        [Plan, Generation, Chosen, Sequence[float], OnResult], Awaitable[tuple[Ran, ...]]
    ] = run_together,
    clock: Callable[[], float] = monotonic,
) -> Comparison:
    """Run the plan and return the results.

    `command` is the command line that asked for it. `on_progress` is called when a generation
    begins and after each of its results. `keep` is called after every
    result with all results so far, so that nothing is lost if the next one is interrupted. A cell
    that fails keeps its reason; its other rounds and the other cells go on.
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
            "controls_once": plan.controls_once,
            "rounds": plan.rounds,
            "deadline_seconds": plan.deadline,
            "interpreters": dict(plan.interpreters),
        },
    )

    def record(before: Schedule, generation: Generation, ran: tuple[Ran, ...]) -> Schedule:
        """Keep everything that was measured, and return the schedule after a generation, or in
        its course.
        """
        nonlocal comparison
        after = replace(before, done=(*before.done, Lived(generation, ran)))
        comparison = replace(
            comparison,
            rounds=plan.rounds if math.isinf(plan.seconds) else generation.round,
            cells=tuple(after.cells.values()),
            seconds=clock() - began,
        )
        keep(comparison)
        on_progress(generation, sum(len(of_process.measured) for of_process in ran), comparison)
        return after

    while (generation := schedule.next_generation(clock() - began)) is not None:
        on_progress(generation, 0, comparison)
        deadlines = [
            schedule.deadline(process, generation.round, clock() - began)
            for process in generation.processes
        ]
        in_its_course = partial(record, schedule, generation)
        ran = await run(plan, generation, schedule.chosen, deadlines, in_its_course)
        schedule = record(schedule, generation, ran)
    return comparison
