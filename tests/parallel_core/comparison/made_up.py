"""Comparisons made up from numbers, for tests of what is concluded from them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from parallel_core.comparison.cells import Cell, Comparison, Failure, Measured
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.result import Case, Result
from parallel_core.system.machine import describe_machine

MACHINE = describe_machine()
TOGETHER = EXPERIMENTS["parallel"].case


def result(cell: Cell, seconds: Mapping[str, float], **changes: Any) -> Result:
    """Make what a process gave: each case took its time, give or take a thousandth."""
    made = Result(
        experiment=cell.experiment,
        backend={
            "name": cell.backend,
            "version": "1.0",
            "engine": cell.engine,
            "devices": ["cpu:1", "cpu:2"],
            "threads_per_device": 1,
            "cores": [[0], [1]],
            "scheduler": "none",
            "settings": {},
        },
        parameters={"size": 100, "rounds": 3},
        cases=tuple(
            Case(name, (taken, taken * 1.001, taken * 0.999), (taken / 10,) * 3, (taken * 2,), parts)
            for (name, taken), parts in zip(seconds.items(), parts_of(tuple(seconds)), strict=True)
        ),
        metrics={EXPERIMENTS[cell.experiment].metric: 1 / next(iter(seconds.values()))},
        checks={"max_relative_error": 0.0},
        explanation="It was measured.",
        environment=MACHINE,
    )
    return replace(made, **changes)


def parts_of(names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Let the case of both devices contain all others."""
    return tuple(tuple(other for other in names if other != name) if name == TOGETHER else () for name in names)


def measured(cell: Cell, times: Sequence[float], case: str | None = None) -> Measured:
    """Make a cell's results from one time a process."""
    name = case or EXPERIMENTS[cell.experiment].case
    return Measured(cell, tuple(result(cell, {name: seconds}) for seconds in times))


def failed(cell: Cell, reason: str = "torch is not installed") -> Measured:
    """Make a cell whose framework is missing."""
    return Measured(cell, failures=(Failure(1, reason, refused=True),))


def comparison(*cells: Measured) -> Comparison:
    """Make a comparison of some cells."""
    return Comparison(5, False, "parallel-core compare", "2026-11-21T08:00:00+00:00", MACHINE, cells, 60.0)


def parallel(backend: str, engine: str = "async") -> Cell:
    """Name a cell of `parallel`."""
    return Cell("parallel", backend, engine)
