"""Run every cell in fresh processes, in interleaved rounds (A B C D, A B C D, …), and go on when one fails."""

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from time import monotonic
from typing import Any

from backends.host import available_cores, core_numbers
from parallel_core.comparison.cells import Cell, CellResults, Comparison, FailedRun
from parallel_core.comparison.storage import trace_path
from parallel_core.experiments import Experiment, Mode
from parallel_core.measurement.result import Result
from parallel_core.system.machine import describe_machine
from parallel_core.system.subprocesses import supervise

__all__ = ["CALIBRATION", "NextRun", "Plan", "expected_seconds", "is_due", "run_comparison", "run_once", "runs_left"]

CALIBRATION = 0
"""The number of the uncounted round in which one process per experiment chooses the sizes for all."""
REFUSED = 2
"""The exit status of a run whose request cannot be met, for example because a framework is missing."""
MAX_FAILURES = 2
"""A cell is given up after so many failed processes."""
MAKE_UP_ROUNDS = 2
"""How many rounds follow for the cells whose processes failed or gave invalid results."""


@dataclass(frozen=True)
class Plan:
    """What is to be compared, and how."""

    experiments: tuple[Experiment, ...]
    backends: tuple[str, ...]
    engines: tuple[str, ...]
    interpreters: Mapping[str, str]
    """The Python that runs each backend."""
    rounds: int = 5
    mode: Mode = "full"
    devices: int = 2
    device_kind: str = "auto"
    threads: int | None = None
    deadline: float = 600.0
    """Seconds that a process may take."""
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Calibrated parameters by experiment, if they are given; the others are chosen by a first process."""
    traces_in: Path | None = None
    """The comparison's folder if the cells are to be profiled too."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells, in the order of a round; an experiment's cells are neighbours in time."""
        return tuple(
            Cell(experiment.name, backend, engine)
            for experiment in self.experiments
            for backend in self.backends
            for engine in self.engines
        )

    def devices_of(self, experiment: Experiment) -> int:
        """Return the number of devices that an experiment gets."""
        return max(self.devices, experiment.devices)

    @property
    def cores(self) -> set[int]:
        """The cores that every process is kept to; empty if none can be chosen."""
        counts = map(self.devices_of, self.experiments)
        wanted = max(devices * (self.threads or max(1, available_cores() // devices)) for devices in counts)
        return set(core_numbers()[:wanted])

    def experiment(self, cell: Cell) -> Experiment:
        """Return a cell's experiment."""
        return next(experiment for experiment in self.experiments if experiment.name == cell.experiment)

    def to_calibrate(self, cell: Cell) -> tuple[str, ...]:
        """Return the parameters of a cell that a first process chooses: those that no option fixes."""
        experiment = self.experiment(cell)
        return tuple(name for name in experiment.calibrated if name not in experiment.options.get(self.mode, {}))

    def trace(self, cell: Cell, turn: int) -> Path | None:
        """Return the file to which a cell's process writes its trace; None except in the last regular round."""
        return trace_path(self.traces_in, cell) if self.traces_in is not None and turn == self.rounds else None

    def command(self, cell: Cell, calibrated: Mapping[str, Any], trace: Path | None = None) -> list[str]:
        """Return the command that runs a cell once, writes its result to standard output, and a trace if asked."""
        options = {
            "backend": cell.backend,
            "engine": cell.engine,
            "devices": self.devices_of(self.experiment(cell)),
            "device-kind": self.device_kind,
            "threads": self.threads,
            **self.experiment(cell).options.get(self.mode, {}),
            **calibrated,
            "trace-if-possible": trace,
            "json": "-",
        }
        given = {name: value for name, value in options.items() if value is not None}
        words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        # -P: the current folder may hold another checkout than the installed one.
        return [self.interpreters[cell.backend], "-P", "-m", "parallel_core", "run", cell.experiment, *words]


@dataclass(frozen=True)
class NextRun:
    """A process that is about to start, as a progress display shows it."""

    cell: Cell
    round: int
    left: int
    """How many runs remain, this one included."""
    seconds_left: float | None
    """About how long they will take, judging by the runs so far; None before the first one has ended."""


async def run_comparison(
    plan: Plan, command: str, on_run: Callable[[NextRun], object], keep: Callable[[Comparison], object]
) -> Comparison:
    """Run the plan and return the results.

    `command` is the command line that asked for it. `on_run` is called before every process, and `keep` after every
    process with all results so far, so that nothing is lost if the next one is interrupted. A cell that fails keeps
    its reason; its other rounds and the other cells go on.
    """
    started = monotonic()
    cells = {cell: CellResults(cell) for cell in plan.cells}
    calibrated = dict(plan.sizes)
    taken: list[tuple[Cell, float]] = []
    comparison = Comparison(
        rounds=plan.rounds,
        quick=plan.mode == "quick",
        command=command,
        utc=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine=describe_machine(),
        cells=tuple(cells.values()),
        options={
            "devices": plan.devices,
            "device_kind": plan.device_kind,
            "threads": plan.threads,
            "cores": sorted(plan.cores),
            "deadline_seconds": plan.deadline,
            "interpreters": dict(plan.interpreters),
        },
    )
    for turn in range(CALIBRATION, plan.rounds + MAKE_UP_ROUNDS + 1):
        for cell in plan.cells:
            if not is_due(plan, cells[cell], calibrated, turn):
                continue
            left = runs_left(plan, cells, calibrated, cell, turn)
            on_run(NextRun(cell, turn, len(left), expected_seconds(left, taken)))
            began = monotonic()
            outcome = await run_once(plan, cell, calibrated.get(cell.experiment, {}), turn)
            taken.append((cell, monotonic() - began))
            if isinstance(outcome, FailedRun):
                cells[cell] = replace(cells[cell], failures=(*cells[cell].failures, outcome))
            else:
                chosen = {name: outcome.parameters[name] for name in plan.to_calibrate(cell)}
                calibrated.setdefault(cell.experiment, chosen)
                if turn != CALIBRATION:
                    cells[cell] = replace(cells[cell], results=(*cells[cell].results, outcome))
            comparison = replace(comparison, cells=tuple(cells.values()), seconds=monotonic() - started)
            keep(comparison)
    return comparison


async def run_once(plan: Plan, cell: Cell, calibrated: Mapping[str, Any], turn: int) -> Result | FailedRun:
    """Run a cell's process once; return its result, which may have problems, or why it gave none."""
    try:
        outcome = await supervise(plan.command(cell, calibrated, plan.trace(cell, turn)), plan.deadline, plan.cores)
    except (FileNotFoundError, PermissionError) as error:
        return FailedRun(turn, f"{plan.interpreters[cell.backend]} cannot be started: {error.strerror}", refused=True)
    if outcome.status in (0, 1) and not outcome.timed_out:
        with suppress(ValueError):
            result = Result.from_json(json.loads(outcome.output))
            given = Cell(result.experiment, result.backend["name"], result.backend["engine"])
            if given == cell and all(name in result.parameters for name in plan.to_calibrate(cell)):
                return result
    if outcome.status == 0 and not outcome.timed_out:
        return FailedRun(turn, "gave something else than the result that was asked for", refused=False)
    return FailedRun(turn, outcome.reason(plan.deadline), refused=outcome.status == REFUSED)


def is_due(plan: Plan, results: CellResults, calibrated: Mapping[str, Any], turn: int) -> bool:
    """Tell whether a cell is run in a round: in every regular one, and later to replace invalid and failed runs."""
    if _given_up(results):
        return False
    if turn == CALIBRATION:
        return bool(plan.to_calibrate(results.cell)) and results.cell.experiment not in calibrated
    return turn <= plan.rounds or len(results.valid) < plan.rounds


def _given_up(results: CellResults) -> bool:
    return len(results.failures) >= MAX_FAILURES or any(failure.refused for failure in results.failures)


def runs_left(
    plan: Plan, cells: Mapping[Cell, CellResults], calibrated: Mapping[str, Any], now: Cell, turn: int
) -> list[Cell]:
    """List the cells of the remaining processes, the one of `now` included, if none of them fails."""
    rest = plan.cells[plan.cells.index(now) :]
    this_round = [cell for cell in rest if is_due(plan, cells[cell], calibrated, turn)]
    if turn == CALIBRATION:
        # One process calibrates for all cells of its experiment.
        this_round = list({cell.experiment: cell for cell in reversed(this_round)}.values())[::-1]
    later = [cell for cell in plan.cells if not _given_up(cells[cell])]
    return this_round + max(0, plan.rounds - turn) * later


def expected_seconds(left: Sequence[Cell], taken: Sequence[tuple[Cell, float]]) -> float | None:
    """Estimate how long some processes take from those of their cell, else of their experiment, else from all."""
    if not taken:
        return None

    def expected(cell: Cell) -> float:
        of_cell = [seconds for one, seconds in taken if one == cell]
        of_experiment = [seconds for one, seconds in taken if one.experiment == cell.experiment]
        return mean(of_cell or of_experiment or [seconds for _, seconds in taken])

    return sum(expected(cell) for cell in left)
