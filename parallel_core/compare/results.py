"""Cells of a comparison, each an experiment on a backend and engine, with their results."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import count
from statistics import median
from typing import Annotated, Any, Literal, NotRequired, Self, TypedDict

import msgspec

from backends import Engine
from backends.devices import DEVICE_NAME
from backends.installation.kernels import Kernels, Product
from backends.registry.variants import framework_of, is_as_shipped, title_of_compared
from parallel_core.measurement.result import Case, Counted, Result
from parallel_core.system.formatting import with_queues

SCHEMA = 1
OWN_ENGINE = ""
"""In place of an engine: the one that a backend takes by itself, which its results name."""
LARGEST = 1e18
"""No number in a file is larger, so that none overflows."""

Name = Annotated[str, msgspec.Meta(pattern=r"\A\w[\w.+ -]*\Z", max_length=100)]
"""Files are named by cells: no name that is read is a path."""
Count = Annotated[int, msgspec.Meta(ge=0)]
DeviceName = Annotated[str, msgspec.Meta(pattern=rf"\A{DEVICE_NAME.pattern}\Z")]


@dataclass(frozen=True)
class Cell:
    """One experiment on one backend and engine. `str(cell)` is `overlap on torch async`."""

    experiment: str
    backend: str
    """The backend's name, or that of a framework as shipped: `mxnet-as-shipped`."""
    engine: str

    @property
    def side(self) -> str:
        """The framework and engine, as a table's row names them: `torch async`."""
        return f"{self.backend} {self.engine}".rstrip()

    def matches(self, result: Result) -> bool:
        """Return whether a result is of this cell."""
        has_variants = bool(result.backend.get("variants"))
        if has_variants and not is_as_shipped(self.backend):
            return False
        measured = (result.experiment, result.backend["name"])
        if (self.experiment, framework_of(self.backend)) != measured:
            return False
        # An engine that a backend takes by itself may be any.
        return self.engine in (OWN_ENGINE, result.backend["engine"])

    def __str__(self) -> str:
        return f"{self.experiment} on {self.side}"


FailureCode = Literal["failed", "killed", "no-result", "not-a-result", "refused", "timed-out"]


@dataclass(frozen=True)
class FailedRun:
    """A process that gave no result, and why. One that was refused would be refused again in every
    round.
    """

    round: int
    reason: str
    refused: bool
    code: FailureCode | None = None
    """The reason, for programs; null if an older version wrote the comparison."""


class _SavedMachine(TypedDict):
    processor: str
    cores: Count
    core_numbers: list[Count]
    memory_bytes: Count
    system: str
    parallel_core: str
    commit: NotRequired[str]
    python: str
    numpy: str
    utc: str


# What the processes of one cell have in common.
MACHINE = ("processor", "cores", "system", "python")


class _SavedBackend(TypedDict):
    name: Name
    version: Annotated[str, msgspec.Meta(min_length=1)]
    engine: Engine
    devices: Annotated[list[DeviceName], msgspec.Meta(min_length=1)]
    threads_per_device: Count
    workers_per_device: NotRequired[Count]
    cores: list[list[Count]]
    scheduler: str
    settings: dict[str, Any]
    variants: NotRequired[list[str]]
    kernels: NotRequired[list[Kernels]]
    product: NotRequired[Product]


class _SavedCell(TypedDict):
    experiment: Name
    backend: Name
    engine: Engine | Literal[""]
    results: list[dict[str, Any]]
    failures: list[FailedRun]


class _Saved(TypedDict):
    """What a reader may rely on beside a comparison's own fields, so that nothing else looks
    again.
    """

    schema: Literal[1]
    machine: _SavedMachine
    cells: Annotated[list[_SavedCell], msgspec.Meta(min_length=1)]


@dataclass(frozen=True)
class CellResults:
    """The results and failures of a cell's processes, in the order of the rounds."""

    cell: Cell
    results: tuple[Result, ...] = ()
    failures: tuple[FailedRun, ...] = ()

    @property
    def title(self) -> str:
        """The framework and whose queues it uses: `PyTorch + our queues`.

        Whose they are only a result knows.
        """
        backend: Mapping[str, Any] = {"engine": self.cell.engine, "scheduler": ""}
        if self.results:
            backend = self.results[0].backend
        return with_queues(title_of_compared(self.cell.backend), backend)

    @property
    def name(self) -> str:
        """The experiment with that: `overlap on PyTorch + our queues`."""
        return f"{self.cell.experiment} on {self.title}"

    @property
    def engine(self) -> str:
        """The engine that ran; without a result, the one that was asked for."""
        if not self.results:
            return self.cell.engine
        return self.results[0].backend["engine"]

    @property
    def valid(self) -> tuple[Result, ...]:
        """The results without problems; only these are counted."""
        return tuple(result for result in self.results if not result.problems)

    @property
    def rounds(self) -> tuple[int, ...]:
        """The round of every valid process: each round gave a result, or a failure."""
        failed = {failure.round for failure in self.failures}
        with_result = (turn for turn in count(1) if turn not in failed)
        pairs = zip(with_result, self.results, strict=False)
        return tuple(turn for turn, result in pairs if not result.problems)

    @property
    def case_names(self) -> tuple[str, ...]:
        """The cases' names, in the experiment's order."""
        return tuple(case.name for case in self.valid[0].cases) if self.valid else ()

    def cases(self, name: str) -> tuple[Case, ...]:
        """Return one case of every valid process."""
        return tuple(case for result in self.valid for case in result.cases if case.name == name)

    def medians(self, case: str, which: str = "seconds") -> tuple[float, ...]:
        """Return the median of a case's seconds in every valid process.

        `which` is the field of the seconds. There are no medians if a process has no such seconds.
        """
        seconds_of_processes = [getattr(of_process, which) for of_process in self.cases(case)]
        if not all(seconds_of_processes):
            return ()
        return tuple(map(median, seconds_of_processes))

    def metric(self, name: str) -> tuple[float, ...]:
        """Return a metric of every valid process that has it as a number."""
        values = (result.metrics.get(name, math.nan) for result in self.valid)
        return tuple(value for value in values if math.isfinite(value))

    def counted(self, name: str) -> Counted | None:
        """Return a count of the first process that has it; its times may be invalid."""
        for result in self.results:
            if name in result.counts:
                return result.counts[name]
        return None

    def as_json(self) -> dict[str, Any]:
        """Return the object that `cells` of a comparison's JSON holds."""
        return {
            **asdict(self.cell),
            "results": [result.as_json() for result in self.results],
            "failures": [asdict(failure) for failure in self.failures],
        }

    @classmethod
    def from_json(cls, read: _SavedCell) -> Self:
        """Read what `as_json` returned; raises ValueError for what cannot be."""
        cell = Cell(read["experiment"], read["backend"], read["engine"])
        results = tuple(map(Result.from_json, read["results"]))
        for result in results:
            msgspec.convert(result.backend, _SavedBackend)
            msgspec.convert(result.environment, _SavedMachine)
            if not cell.matches(result):
                raise ValueError(f"{cell} holds a result of another cell")
            for position, task in enumerate(result.tasks):
                if any(not 0 <= earlier < position for earlier in task.after):
                    raise ValueError(f"{cell} holds a task that waits for a later one")
        cell_results = cls(cell, results, tuple(read["failures"]))
        # The processes of a cell are counted together, so they must be alike.
        case_names = {tuple(case.name for case in one.cases) for one in cell_results.valid}
        if len(case_names) > 1:
            raise ValueError(f"{cell} holds results with different cases")
        machines = {tuple(map(one.environment.get, MACHINE)) for one in cell_results.valid}
        if len(machines) > 1:
            raise ValueError(f"{cell} holds results with different machines")
        return cell_results


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A whole comparison: what was asked for, and the results of every cell."""

    rounds: Count
    quick: bool
    command: str
    utc: str
    seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """How long it took."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Devices, their kind, threads, deadline in seconds and interpreters, as asked for."""
    machine: Mapping[str, Any]
    cells: tuple[CellResults, ...]

    @property
    def experiments(self) -> tuple[str, ...]:
        """The experiments, in the order in which they were run."""
        return tuple(dict.fromkeys(results.cell.experiment for results in self.cells))

    def of(self, experiment: str) -> tuple[CellResults, ...]:
        """Return the results of an experiment's cells."""
        return tuple(results for results in self.cells if results.cell.experiment == experiment)

    def as_json(self) -> dict[str, Any]:
        """Return the object that `comparison.json` holds."""
        return {
            "schema": SCHEMA,
            **vars(self),
            "cells": [results.as_json() for results in self.cells],
        }

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> Self:
        """Read what `as_json` returned; raises ValueError for anything else."""
        _check_numbers(read)
        saved = msgspec.convert(read, _Saved)
        cells = tuple(map(CellResults.from_json, saved["cells"]))
        if len({results.cell for results in cells}) < len(cells):
            raise ValueError("a cell stands there twice")
        comparison = msgspec.convert({**read, "cells": ()}, cls)
        datetime.fromisoformat(comparison.utc)
        return replace(comparison, cells=cells)


def _check_numbers(read: Any) -> None:
    """Raise ValueError if a number in a JSON value is larger than LARGEST."""
    if isinstance(read, dict):
        read = list(read.values())
    if isinstance(read, list):
        for value in read:
            _check_numbers(value)
    elif isinstance(read, int | float) and abs(read) > LARGEST:
        raise ValueError("a number is larger than anything that is measured")


def with_engines_that_ran(comparison: Comparison) -> Comparison:
    """Return the comparison with the engines that backends took by themselves.

    Their results name them. A cell without a result keeps none.
    """
    cells = [
        replace(results, cell=replace(results.cell, engine=results.engine))
        for results in comparison.cells
    ]
    return replace(comparison, cells=tuple(cells))
