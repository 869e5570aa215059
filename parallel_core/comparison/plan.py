"""What is to be compared, and the commands of the processes that do it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product, starmap
from pathlib import Path
from typing import Any

from backends.host import available_cores, core_numbers
from backends.registry.variants import framework_of, variants_of_compared
from parallel_core.comparison.cells import OWN_ENGINE, Cell
from parallel_core.comparison.storage import trace_path
from parallel_core.experiments import EXPERIMENTS, Experiment, Mode
from parallel_core.experiments.runner.counting import REPETITIONS
from parallel_core.measurement.fresh_process import measuring_command

FIRST = 1
"""The number of the first round, in which order is counted and cells are profiled: nobody knows
which will be the last.
"""


@dataclass(frozen=True)
class Plan:
    """What is to be compared, and how."""

    experiments: tuple[Experiment, ...]
    backends: tuple[str, ...]
    engines: tuple[str, ...]
    """One may be OWN_ENGINE."""
    interpreters: Mapping[str, str]
    """The Python that runs each backend."""
    rounds: int = 5
    """How many processes each cell has; fewer if time is up."""
    mode: Mode = "full"
    devices: int = 2
    device_kind: str = "auto"
    threads: int | None = None
    deadline: float = 600.0
    """Seconds that a process may take."""
    seconds: float = math.inf
    """How long all of it may take."""
    shared: bool = False
    """Whether all experiments on a backend and engine share a process in a round: where time is
    short, importing the frameworks would take longer than measuring.
    """
    controls_once: bool = False
    """Whether cells without queues run in the first round only: their counts are known then, and
    the time is for those that queues could make faster.
    """
    on_gpus: bool = False
    """Whether devices may be GPUs: the sizes that --quick has are too small for them."""
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Parameters by experiment, if they are given; first processes choose the rest."""
    traces_in: Path | None = None
    """The comparison's folder if the cells are to be profiled too."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells, in the order of a round; an experiment's cells are neighbours in time."""
        names = (experiment.name for experiment in self.experiments)
        return tuple(starmap(Cell, product(names, self.backends, self.engines)))

    def groups_in(self, turn: int) -> tuple[tuple[Cell, ...], ...]:
        """Return the cells that share a process in a round, in the order of the processes."""
        groups = self.sides if self.shared else tuple((cell,) for cell in self.cells)
        if turn == FIRST or not self.controls_once:
            return groups
        return tuple(group for group in groups if group[0].engine != "sync")

    @property
    def sides(self) -> tuple[tuple[Cell, ...], ...]:
        """The cells of each backend and engine."""
        sides = dict.fromkeys(cell.side for cell in self.cells)
        return tuple(tuple(cell for cell in self.cells if cell.side == side) for side in sides)

    @property
    def cores(self) -> set[int]:
        """The cores that every process is kept to; empty if none can be chosen."""
        counts = [max(self.devices, experiment.devices) for experiment in self.experiments]
        wanted = max(
            devices * (self.threads or max(1, available_cores() // devices)) for devices in counts
        )
        return set(core_numbers()[:wanted])

    def to_calibrate(self, cell: Cell) -> tuple[str, ...]:
        """Return the parameters of a cell that a process chooses: those that no option fixes."""
        usual = self._usual_options(cell.experiment)
        return tuple(name for name in EXPERIMENTS[cell.experiment].calibrated if name not in usual)

    def is_traced(self, turn: int) -> bool:
        """Return whether the cells are profiled in a round."""
        return self.traces_in is not None and turn == FIRST

    def command(
        self,
        cells: Sequence[Cell],
        chosen: Mapping[str, Mapping[str, Any]],
        turn: int,
        ended_on: int | None = None,
    ) -> list[str]:
        """Return the command that runs cells of a backend and engine in one process, and in one
        round traces them.

        `chosen` are values of parameters, by experiment, and take the place of those that a
        comparison usually takes. The process ends its turns on a descriptor, if there is one.
        """
        runs = (
            (cell.experiment, self._options(cell, chosen.get(cell.experiment, {}), turn))
            for cell in cells
        )
        return measuring_command(self.interpreters[cells[0].backend], runs, ended_on)

    def _usual_options(self, name: str) -> dict[str, Any]:
        """Return the options with which an experiment is compared."""
        options = dict(EXPERIMENTS[name].options.get(self.mode, {}))
        if self.on_gpus:
            options.pop("size", None)
        return options

    def _options(self, cell: Cell, chosen: Mapping[str, Any], turn: int) -> dict[str, Any]:
        experiment = EXPERIMENTS[cell.experiment]
        return {
            "backend": framework_of(cell.backend),
            "variant": variants_of_compared(
                cell.backend, cell.engine, "gpu" if self.on_gpus else "cpu"
            ),
            "engine": None if cell.engine == OWN_ENGINE else cell.engine,
            "devices": max(self.devices, experiment.devices),
            "device-kind": self.device_kind,
            "threads": self.threads,
            **self._usual_options(cell.experiment),
            **chosen,
            # Order is the same in every round: it is counted in one.
            "count": REPETITIONS if turn == FIRST else 0,
            "sizes-chosen": "yes",
            "trace-if-possible": trace_path(self.traces_in, cell)
            if self.traces_in and self.is_traced(turn)
            else None,
        }
