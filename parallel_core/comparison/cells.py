"""What is compared: cells, each one experiment on one backend and engine, and the results of their processes."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from statistics import median
from typing import Annotated, Any, Literal, NotRequired, Self, TypeAlias, TypedDict

import msgspec

from backends import Engine
from backends.devices import DEVICE_NAME
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.task_graph import Kind

__all__ = ["OWN_ENGINE", "Cell", "CellResults", "Comparison", "FailedRun", "with_engines_that_ran"]

SCHEMA = 1
OWN_ENGINE = ""
"""In place of an engine: the one that a backend takes by itself, which its results name."""

Name = Annotated[str, msgspec.Meta(pattern=r"\A\w[\w.+ -]*\Z", max_length=100)]
"""Files are named by cells: no name that is read is a path."""


Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Number = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Times = Annotated[list[Annotated[float, msgspec.Meta(ge=1e-12, le=1e9)]], msgspec.Meta(min_length=1)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Plain: TypeAlias = str | bool | int | Number | None
DeviceName = Annotated[str, msgspec.Meta(pattern=rf"\A{DEVICE_NAME.pattern}\Z")]


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


class _SavedKernels(TypedDict):
    library: str
    version: str | None
    instruction_set: str | None
    threads: Count


class _SavedProduct(TypedDict):
    size: Count
    gflop_per_s: Annotated[float, msgspec.Meta(ge=1e-9, le=1e9)]


class _SavedBackend(TypedDict):
    name: Name
    version: Text
    engine: Engine
    devices: Annotated[list[DeviceName], msgspec.Meta(min_length=1)]
    threads_per_device: Count
    workers_per_device: NotRequired[Count]
    cores: list[list[Count]]
    scheduler: str
    settings: dict[str, Plain]
    variants: NotRequired[list[str]]
    kernels: NotRequired[list[_SavedKernels]]
    product: NotRequired[_SavedProduct]


class _SavedCase(TypedDict):
    name: Text
    seconds: Times
    dispatch_seconds: Times
    warmup_seconds: NotRequired[list[Seconds]]
    parts: NotRequired[list[str]]
    bare_seconds: NotRequired[list[Annotated[float, msgspec.Meta(ge=1e-12, le=1e9)]]]
    operations_seconds: NotRequired[list[Number]]
    overhead_seconds: NotRequired[list[Seconds]]
    transfer_seconds: NotRequired[list[Seconds]]
    repeats: NotRequired[Annotated[int, msgspec.Meta(ge=1, le=2**53)]]
    share: NotRequired[Annotated[float, msgspec.Meta(gt=0, le=1)]]


class _SavedAnswer(TypedDict):
    sentences: list[str]
    would_change: str


class _SavedTask(TypedDict):
    name: str
    device: str
    kind: Kind
    after: list[Count]
    seconds: Seconds
    bytes: Count


class _SavedWatch(TypedDict):
    watched_seconds: Seconds
    cores: Seconds
    others_share: Seconds | None
    stolen_share: Seconds | None
    waiting_share: Seconds | None
    slowest_mhz: Seconds | None
    fastest_mhz: Seconds | None
    repeated_rounds: NotRequired[Count]


class _SavedResult(TypedDict):
    schema: int
    experiment: Name
    backend: _SavedBackend
    parameters: dict[str, Plain | list[Plain]]
    cases: list[_SavedCase]
    metrics: dict[str, Number | None]
    checks: dict[str, Number | None]
    explanation: str
    answer: NotRequired[_SavedAnswer | None]
    notes: list[str]
    problems: list[str]
    disturbances: NotRequired[list[str]]
    data: str | None
    series: dict[str, list[Number | None]]
    tasks: NotRequired[list[_SavedTask]]
    bands: NotRequired[dict[str, str | None]]
    sizes: NotRequired[str]
    chosen_by: NotRequired[dict[str, str]]
    metric_intervals: NotRequired[dict[str, Annotated[list[Number | None], msgspec.Meta(min_length=2, max_length=2)]]]
    environment: _SavedMachine
    machine_watch: NotRequired[_SavedWatch | None]


class _SavedFailure(TypedDict):
    round: Count
    reason: str
    refused: bool


class _SavedCell(TypedDict):
    experiment: Name
    backend: Name
    engine: Engine | Literal[""]
    results: list[_SavedResult]
    failures: list[_SavedFailure]


class _SavedOptions(TypedDict, total=False):
    devices: Count
    device_kind: str
    threads: Count | None
    cores: list[Count]
    seconds: Seconds | None
    shared: bool
    deadline_seconds: Seconds
    interpreters: dict[str, str]


class _Saved(TypedDict):
    """The whole file: what a reader of it may rely on, so that nothing else looks again."""

    schema: Literal[1]
    rounds: Count
    quick: bool
    command: str
    utc: str
    seconds: Seconds
    options: _SavedOptions
    machine: _SavedMachine
    cells: Annotated[list[_SavedCell], msgspec.Meta(min_length=1)]


@dataclass(frozen=True)
class Cell:
    """One experiment on one backend and engine. `str(cell)` is `overlap on torch async`."""

    experiment: str
    backend: str
    engine: str

    @property
    def side(self) -> str:
        """The framework and engine, as a table's row names them: `torch async`."""
        return f"{self.backend} {self.engine}".rstrip()

    def __str__(self) -> str:
        return f"{self.experiment} on {self.side}"


@dataclass(frozen=True)
class FailedRun:
    """A process that gave no result, and why. One that was refused would be refused again in every round."""

    round: int
    reason: str
    refused: bool


@dataclass(frozen=True)
class CellResults:
    """The results and failures of a cell's processes, in the order of the rounds."""

    cell: Cell
    results: tuple[Result, ...] = ()
    failures: tuple[FailedRun, ...] = ()

    @property
    def valid(self) -> tuple[Result, ...]:
        """The results without problems; only these are counted."""
        return tuple(result for result in self.results if not result.problems)

    @property
    def case_names(self) -> tuple[str, ...]:
        """The cases' names, in the experiment's order."""
        return tuple(case.name for case in self.valid[0].cases) if self.valid else ()

    def cases(self, name: str) -> tuple[Case, ...]:
        """Return one case of every valid process."""
        return tuple(case for result in self.valid for case in result.cases if case.name == name)

    def medians(self, case: str) -> tuple[float, ...]:
        """Return the median time of a case in every valid process, in seconds."""
        return tuple(one.median for one in self.cases(case))

    def bare_medians(self, case: str) -> tuple[float, ...]:
        """Return the median bare time of a case in every valid process; nothing if one of them has none."""
        bare = tuple(one.bare_seconds for one in self.cases(case))
        return tuple(map(median, bare)) if all(bare) else ()

    def metric(self, name: str) -> tuple[float, ...]:
        """Return a metric of every valid process that has it as a number."""
        values = (result.metrics.get(name, math.nan) for result in self.valid)
        return tuple(value for value in values if math.isfinite(value))

    def as_json(self) -> dict[str, Any]:
        """Return the object that `cells` of a comparison's JSON holds."""
        return {
            **asdict(self.cell),
            "results": [result.as_json() for result in self.results],
            "failures": [asdict(failure) for failure in self.failures],
        }

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> Self:
        """Read what `as_json` returned, if it has the form of `_SavedCell`; raises ValueError for what cannot be."""
        cell = Cell(read["experiment"], read["backend"], read["engine"])
        results = tuple(Result.from_json(result) for result in read["results"])
        for result in results:
            engine = OWN_ENGINE if cell.engine == OWN_ENGINE else result.backend["engine"]
            if Cell(result.experiment, result.backend["name"], engine) != cell:
                raise ValueError(f"{cell} holds a result of another cell")
            if any(place >= own for own, task in enumerate(result.tasks) for place in task.after):
                raise ValueError(f"{cell} holds a task that waits for a later one")
        return cls(cell, results, tuple(FailedRun(**failure) for failure in read["failures"]))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A whole comparison: what was asked for, and the results of every cell."""

    rounds: int
    quick: bool
    command: str
    utc: str
    seconds: float = 0.0
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
        return {"schema": SCHEMA, **vars(self), "cells": [results.as_json() for results in self.cells]}

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> Self:
        """Read what `as_json` returned; raises ValueError for anything else."""
        saved = msgspec.convert(read, _Saved)
        datetime.fromisoformat(saved["utc"])
        cells = tuple(map(CellResults.from_json, saved["cells"]))
        if len({results.cell for results in cells}) < len(cells):
            raise ValueError("a cell stands there twice")
        return cls(
            rounds=saved["rounds"],
            quick=saved["quick"],
            command=saved["command"],
            utc=saved["utc"],
            machine=saved["machine"],
            cells=cells,
            seconds=saved["seconds"],
            options=saved["options"],
        )


def with_engines_that_ran(comparison: Comparison) -> Comparison:
    """Return the comparison with the engines that backends took by themselves named as their results name them.

    A cell without a result keeps none.
    """

    def named(results: CellResults) -> CellResults:
        if results.cell.engine != OWN_ENGINE or not results.results:
            return results
        return replace(results, cell=replace(results.cell, engine=str(results.results[0].backend["engine"])))

    return replace(comparison, cells=tuple(map(named, comparison.cells)))
