"""What is to be compared, and what the processes that do it are asked for."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product, starmap
from pathlib import Path
from typing import Any

from backends.devices import DeviceKind
from backends.host import available_cores, core_numbers
from backends.registry.variants import framework_of, variants_of_compared
from parallel_core.compare.results import Cell
from parallel_core.compare.storage import trace_path
from parallel_core.experiments import EXPERIMENTS, Experiment, Mode
from parallel_core.experiments.runner.counting import REPETITIONS
from parallel_core.measurement.request import Request

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

    def to_calibrate(self, name: str) -> tuple[str, ...]:
        """Return the parameters of an experiment that a process chooses: those that no option
        fixes.
        """
        usual = self._usual_options(name)
        return tuple(size for size in EXPERIMENTS[name].calibrated if size not in usual)

    def request(self, cell: Cell, chosen: Mapping[str, Any], turn: int) -> Request:
        """Return what a cell's process is asked for in a round; in one round it is traced.

        `chosen` are values of parameters, which take the place of those that a comparison usually
        takes.
        """
        experiment = EXPERIMENTS[cell.experiment]
        kind: DeviceKind = "gpu" if self.on_gpus else "cpu"
        options: dict[str, Any] = {
            "backend": framework_of(cell.backend),
            "engine": cell.engine or None,
            "devices": max(self.devices, experiment.devices),
            "device_kind": self.device_kind,
            "threads": self.threads,
            "variant": variants_of_compared(cell.backend, cell.engine, kind),
            # Order is the same in every round: it is counted in one.
            "count": REPETITIONS if turn == FIRST else 0,
            "sizes_chosen": True,
        }
        if self.traces_in is not None and turn == FIRST:
            options["trace"] = trace_path(self.traces_in, cell)
        return Request.of(
            cell.experiment, {**options, **self._usual_options(cell.experiment), **chosen}
        )

    def _usual_options(self, name: str) -> dict[str, Any]:
        """Return the options with which an experiment is compared."""
        options = dict(EXPERIMENTS[name].options.get(self.mode, {}))
        if self.on_gpus:
            options.pop("size", None)
        return options
