"""What is compared: cells, each one experiment on one backend and engine, and the results of their processes."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Annotated, Any, Literal, Self, TypedDict

import msgspec

from backends import Engine
from parallel_core.measurement.result import MACHINE_KEYS, Case, Result

__all__ = ["OWN_ENGINE", "Cell", "CellResults", "Comparison", "FailedRun", "with_engines_that_ran"]

SCHEMA = 1
OWN_ENGINE = ""
"""In place of an engine: the one that a backend takes by itself, which its results name."""

Name = Annotated[str, msgspec.Meta(pattern=r"\A\w[\w.+ -]*\Z", max_length=100)]
"""Files are named by cells: no name that is read is a path."""


class _SavedCell(TypedDict):
    """A cell, as a comparison's JSON holds it."""

    experiment: Name
    backend: Name
    engine: Engine | Literal[""]
    results: list[dict[str, Any]]
    failures: list[dict[str, Any]]


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
        """Read what `as_json` returned; raises ValueError, KeyError or TypeError for anything else."""
        msgspec.convert(read, _SavedCell)
        return cls(
            Cell(read["experiment"], read["backend"], read["engine"]),
            tuple(Result.from_json(result) for result in read["results"]),
            tuple(FailedRun(**failure) for failure in read["failures"]),
        )


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
        try:
            if read["schema"] != SCHEMA:
                raise ValueError(f"a comparison of schema {read['schema']}; known here: {SCHEMA}")
            missing = [name for name in MACHINE_KEYS if name not in read["machine"]]
            if missing:
                raise ValueError(f"a comparison without {', '.join(missing)}")
            return cls(
                rounds=int(read["rounds"]),
                quick=bool(read["quick"]),
                command=str(read["command"]),
                utc=str(read["utc"]),
                machine=dict(read["machine"]),
                cells=tuple(CellResults.from_json(cell) for cell in read["cells"]),
                seconds=float(read["seconds"]),
                options=dict(read["options"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no comparison: {error}") from error


def with_engines_that_ran(comparison: Comparison) -> Comparison:
    """Return the comparison with the engines that backends took by themselves named as their results name them.

    A cell without a result keeps none.
    """

    def named(results: CellResults) -> CellResults:
        if results.cell.engine != OWN_ENGINE or not results.results:
            return results
        return replace(results, cell=replace(results.cell, engine=str(results.results[0].backend["engine"])))

    return replace(comparison, cells=tuple(map(named, comparison.cells)))
