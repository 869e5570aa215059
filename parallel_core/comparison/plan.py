"""What is to be compared, and the commands of the processes that do it."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backends.host import available_cores, core_numbers
from parallel_core.comparison.cells import OWN_ENGINE, Cell
from parallel_core.comparison.storage import trace_path
from parallel_core.experiments import Experiment, Mode
from parallel_core.experiments.runner.parameters import Parameter

__all__ = ["Plan", "options_of"]

TRACED = 1
"""The number of the round in which cells are profiled: the first, since nobody knows which will be the last."""


@dataclass(frozen=True)
class Plan:
    """What is to be compared, and how."""

    experiments: tuple[Experiment, ...]
    backends: tuple[str, ...]
    engines: tuple[str, ...]
    """One may be OWN_ENGINE."""
    interpreters: Mapping[str, str]
    """The Python that runs each backend."""
    rounds: int | None = 5
    """How many processes each cell has; None if time decides."""
    mode: Mode = "full"
    devices: int = 2
    device_kind: str = "auto"
    threads: int | None = None
    deadline: float = 600.0
    """Seconds that a process may take."""
    seconds: float | None = None
    """How long all of it may take; None if that does not matter."""
    shared: bool = False
    """Whether all experiments on a backend and engine share a process in a round: where time is short, importing the
    frameworks would take longer than measuring."""
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Parameters by experiment, if they are given; the others are chosen by first processes."""
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

    @property
    def groups(self) -> tuple[tuple[Cell, ...], ...]:
        """The cells that share a process in a round, in the order of the processes."""
        return self.sides if self.shared else tuple((cell,) for cell in self.cells)

    @property
    def sides(self) -> tuple[tuple[Cell, ...], ...]:
        """The cells of each backend and engine."""
        return tuple(
            tuple(cell for cell in self.cells if (cell.backend, cell.engine) == (backend, engine))
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
        """Return the parameters of a cell that a process chooses: those that no option fixes."""
        experiment = self.experiment(cell)
        return tuple(name for name in experiment.calibrated if name not in experiment.options.get(self.mode, {}))

    def trace(self, cell: Cell, turn: int) -> Path | None:
        """Return the file to which a cell's process writes its trace; None except in one round."""
        return trace_path(self.traces_in, cell) if self.traces_in is not None and turn == TRACED else None

    def command(self, cell: Cell, chosen: Mapping[str, Any], trace: Path | None = None) -> list[str]:
        """Return the command that runs a cell once, writes its result to standard output, and a trace if asked.

        `chosen` are values of parameters, and take the place of those that a comparison usually takes.
        """
        # -P: the current folder may hold another checkout than the installed one.
        return [self.interpreters[cell.backend], "-P", "-m", "parallel_core", "run", *self._words(cell, chosen, trace)]

    def command_of_several(
        self, cells: Sequence[Cell], chosen: Mapping[str, Mapping[str, Any]], turn: int
    ) -> list[str]:
        """Return the command that runs cells of a backend and engine in one process; see `command`.

        `chosen` is by experiment.
        """
        runs = [
            shlex.join(self._words(cell, chosen.get(cell.experiment, {}), self.trace(cell, turn))) for cell in cells
        ]
        return [self.interpreters[cells[0].backend], "-P", "-m", "parallel_core", "several", *runs]

    def _words(self, cell: Cell, chosen: Mapping[str, Any], trace: Path | None) -> Iterator[str]:
        options = {
            "backend": cell.backend,
            "engine": None if cell.engine == OWN_ENGINE else cell.engine,
            "devices": self.devices_of(self.experiment(cell)),
            "device-kind": self.device_kind,
            "threads": self.threads,
            **self.experiment(cell).options.get(self.mode, {}),
            **chosen,
            "trace-if-possible": trace,
            "json": "-",
        }
        yield cell.experiment
        for name, value in options.items():
            if value is not None:
                yield from (f"--{name}", str(value))
        if self.experiment(cell).calibrated:
            # What is kept for single runs does not fit a comparison's time, and the other way round.
            yield from ("--work", "own")


def options_of(experiment: Experiment) -> Mapping[str, Parameter]:
    """Return the parameters of an experiment by the names of their options."""
    parameters = (one for own in experiment.parameters for one in (own.fields.values() if own.fields else (own,)))
    return {parameter.option: parameter for parameter in parameters}
