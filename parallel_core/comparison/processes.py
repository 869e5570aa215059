"""The processes of a comparison, each of which runs one cell, or several of a backend and engine."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeAlias

from parallel_core.comparison.cells import OWN_ENGINE, Cell, FailedRun
from parallel_core.comparison.plan import Plan
from parallel_core.errors import DISTURBED
from parallel_core.measurement.result import Result
from parallel_core.system.subprocesses import Outcome, supervise

__all__ = ["Ran", "Run", "run_cells", "run_once"]

REFUSED = 2
"""The exit status of a run whose request cannot be met, for example because a framework is missing."""
NOT_A_RESULT = "gave something else than the result that was asked for"


@dataclass(frozen=True)
class Ran:
    """What a process gave for its cells, and how long it took. Cells that it did not reach are missing."""

    outcomes: Mapping[Cell, Result | FailedRun]
    seconds: Mapping[Cell, float]
    start: float = 0.0
    """The seconds that belong to no cell: to start, to import the framework and to end."""


Run: TypeAlias = Callable[[Plan, Sequence[Cell], Mapping[str, Mapping[str, Any]], int, float], Awaitable[Ran]]
"""A function of the plan, the cells of one backend and engine, the values of parameters by experiment, the round, and
the seconds after which the process is killed."""


async def run_cells(
    plan: Plan, cells: Sequence[Cell], chosen: Mapping[str, Mapping[str, Any]], turn: int, deadline: float
) -> Ran:
    """Run cells of one backend and engine in a process; return at least the outcome of the first one."""
    began = monotonic()
    if plan.seconds is None and not plan.shared:
        (cell,) = cells
        outcome = await run_once(plan, cell, chosen.get(cell.experiment, {}), turn, deadline)
        return Ran({cell: outcome}, {cell: monotonic() - began})
    try:
        ended_as = await supervise(plan.command_of_several(cells, chosen, turn), deadline, plan.cores)
    except (FileNotFoundError, PermissionError) as error:
        return Ran({cells[0]: _not_started(plan, cells[0], turn, error)}, {cells[0]: monotonic() - began})
    ended = monotonic()
    runs = _runs(plan, cells, ended_as.output)
    outcomes: dict[Cell, Result | FailedRun] = {cell: run.result for cell, run in runs.items()}
    seconds = {cell: run.ended - run.began for cell, run in runs.items()}
    timed = list(runs.values())
    start = timed[0].began - began if timed else 0.0
    if len(runs) == len(cells):
        start += ended - timed[-1].ended
    else:
        # The next one was running when the process ended.
        failed = cells[len(runs)]
        outcomes[failed] = _failure(ended_as, turn, deadline)
        seconds[failed] = ended - (timed[-1].ended if timed else began)
    return Ran(outcomes, seconds, start)


async def run_once(
    plan: Plan, cell: Cell, chosen: Mapping[str, Any], turn: int, deadline: float | None = None
) -> Result | FailedRun:
    """Run a cell's process once; return its result, which may have problems, or why it gave none."""
    deadline = plan.deadline if deadline is None else deadline
    try:
        outcome = await supervise(plan.command(cell, chosen, plan.trace(cell, turn)), deadline, plan.cores)
    except (FileNotFoundError, PermissionError) as error:
        return _not_started(plan, cell, turn, error)
    if outcome.status in (0, 1, DISTURBED) and not outcome.timed_out:
        with suppress(ValueError):
            return _result(plan, cell, json.loads(outcome.output))
    return _failure(outcome, turn, deadline)


def _not_started(plan: Plan, cell: Cell, turn: int, error: OSError) -> FailedRun:
    return FailedRun(turn, f"{plan.interpreters[cell.backend]} cannot be started: {error.strerror}", refused=True)


def _failure(outcome: Outcome, turn: int, deadline: float) -> FailedRun:
    if outcome.status == 0 and not outcome.timed_out:
        return FailedRun(turn, NOT_A_RESULT, refused=False)
    return FailedRun(turn, outcome.reason(deadline), refused=outcome.status == REFUSED)


def _result(plan: Plan, cell: Cell, read: Any) -> Result:
    """Read a cell's result; raises ValueError if it is another's, or lacks a parameter that was to be chosen."""
    result = Result.from_json(read)
    engine = OWN_ENGINE if cell.engine == OWN_ENGINE else result.backend["engine"]
    given = Cell(result.experiment, result.backend["name"], engine)
    if given != cell or not all(name in result.parameters for name in plan.to_calibrate(cell)):
        raise ValueError(NOT_A_RESULT)
    return result


@dataclass(frozen=True)
class _OneOfSeveral:
    """What a line of `parallel-core several` says."""

    result: Result
    began: float
    ended: float


def _runs(plan: Plan, cells: Sequence[Cell], output: str) -> dict[Cell, _OneOfSeveral]:
    """Read the lines of `parallel-core several`, one a cell, up to one that a killed process left unfinished."""
    runs: dict[Cell, _OneOfSeveral] = {}
    with suppress(ValueError, TypeError, KeyError):
        for cell, line in zip(cells, output.splitlines(), strict=False):
            read = json.loads(line)
            result = _result(plan, cell, read["result"])
            runs[cell] = _OneOfSeveral(result, float(read["began"]), float(read["ended"]))
    return runs
