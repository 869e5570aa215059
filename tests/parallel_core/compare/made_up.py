"""Synthetic comparisons, for tests of what is concluded from them."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from parallel_core.compare.plan import Plan
from parallel_core.compare.results import Cell, CellResults, Comparison, FailedRun
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.result import Case, Counted, Note, Result
from parallel_core.system.machine import describe_machine

MACHINE = describe_machine()
TOGETHER = EXPERIMENTS["parallel"].case
TIMES = {"mxnet async": 1.0, "mxnet sync": 2.0, "torch async": 0.9, "torch sync": 1.8}
ONE = (1.0, 1.002, 0.998, 1.001, 0.999)
"""A second, in five processes."""
NASTY = "<script>alert('</script>')</script> & more"

PLAN = Plan(
    experiments=(EXPERIMENTS["parallel"], EXPERIMENTS["overlap"]),
    backends=("mxnet", "torch"),
    engines=("async",),
    interpreters={"mxnet": sys.executable, "torch": "/opt/python"},
    rounds=2,
    device_kind="cpu",
)


def result(cell: Cell, seconds: Mapping[str, float], **changes: Any) -> Result:
    """Return a process's result: each case took its time, give or take a thousandth."""
    # The case of both devices contains all others.
    parts = {TOGETHER: tuple(name for name in seconds if name != TOGETHER)}
    cases = []
    for name, usual in seconds.items():
        rounds = (usual, usual * 1.001, usual * 0.999)
        cases.append(Case(name, rounds, (usual / 10,) * 3, (usual * 2,), parts.get(name, ())))
    plain = Result(
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
        cases=tuple(cases),
        metrics={EXPERIMENTS[cell.experiment].main.name: 1 / next(iter(seconds.values()))},
        checks={"max_relative_error": 0.0},
        explanation="It was measured.",
        environment=MACHINE,
    )
    return replace(plain, **changes)


def measured(cell: Cell, times: Sequence[float], case: str | None = None) -> CellResults:
    """Return a cell's results, with one time for each process."""
    name = case or EXPERIMENTS[cell.experiment].case
    return CellResults(cell, tuple(result(cell, {name: seconds}) for seconds in times))


def with_parts(cell: CellResults, shares: Mapping[str, float]) -> CellResults:
    """Give all cases of a cell parts of their times, which are shares of them: bare, operations,
    overhead, transfer.
    """

    def divided(case: Case) -> Case:
        parts = {
            f"{part}_seconds": tuple(share * seconds for seconds in case.seconds)
            for part, share in shares.items()
        }
        return replace(case, **parts)

    results = (replace(result, cases=tuple(map(divided, result.cases))) for result in cell.results)
    return replace(cell, results=tuple(results))


def with_figures(cell: CellResults, figures: Iterable[float]) -> CellResults:
    """Return a cell's results with these values of its experiment's main metric."""
    name = EXPERIMENTS[cell.cell.experiment].main.name
    results = (
        replace(result, metrics={name: value})
        for result, value in zip(cell.results, figures, strict=False)
    )
    return replace(cell, results=tuple(results))


def failed(cell: Cell, reason: str = "torch is not installed") -> CellResults:
    """Return the results of a cell whose framework is missing."""
    return CellResults(cell, failures=(FailedRun(1, reason, refused=True),))


def times(factor: float) -> tuple[float, ...]:
    """Return so many seconds, in five processes."""
    return tuple(factor * seconds for seconds in ONE)


def changed(results: CellResults, **changes: Any) -> CellResults:
    changed_results = (replace(result, **changes) for result in results.results)
    return replace(results, results=tuple(changed_results))


def on_other_backend(results: CellResults, **changes: Any) -> CellResults:
    return changed(results, backend={**results.results[0].backend, **changes})


def comparison(*cells: CellResults) -> Comparison:
    return Comparison(
        rounds=5,
        quick=False,
        command="parallel-core compare",
        utc="2026-11-21T08:00:00+00:00",
        machine=MACHINE,
        cells=cells,
        seconds=60.0,
    )


def parallel(backend: str, engine: str = "async") -> Cell:
    return Cell("parallel", backend, engine)


DETAILS: Mapping[str, Mapping[str, Any]] = {
    "parallel": {},
    "data-parallel": {
        "series": {
            "loss": tuple(2.3 - step / 100 for step in range(60)),
            "test_accuracy": (0.1, 0.5),
        },
        "data": NASTY,
    },
    "async": {
        "metrics": {"dispatch_fraction": 0.01, "t1_seconds": 1e-5},
        "cases": result(
            Cell("async", "torch", "async"), {"increments, waiting once": 0.1, "10 products": 0.2}
        ).cases,
    },
    "allreduce": {
        "series": {
            "bytes": (4096.0, 2.0**22),
            "algbw_gb_per_s plain copy": (0.2, 20.0),
            "algbw_gb_per_s star": (0.1, 2.0),
            "algbw_gb_per_s native": (0.15, 15.0),
            "share_of_copy_bound star": (0.5, 0.1),
            "share_of_copy_bound native": (0.75, 0.75),
        }
    },
}
"""What results of some experiments hold beside a time."""


def every_chart() -> Comparison:
    """Return a comparison with every kind of chart, on both frameworks and engines, and a missing
    framework.
    """
    cells = []
    for experiment, details in DETAILS.items():
        for side, seconds in TIMES.items():
            cell = Cell(experiment, *side.split())
            in_processes = (seconds, seconds * 1.01, seconds * 0.99)
            cells.append(changed(measured(cell, in_processes), **details))
    return comparison(*cells, failed(Cell("parallel", "numpy", "sync"), NASTY))


BESIDE = EXPERIMENTS["parallel"].counts[0]
"""A count of what began beside another device's work."""


def counted(backend: str, engine: str, seen: int, problems: tuple[Note, ...] = ()) -> CellResults:
    """Return a cell of which the first process counted, and each process has some problems."""
    cell = measured(parallel(backend, engine), times(1.0))
    first, *others = (
        replace(result, problems=problems, disturbances=problems) for result in cell.results
    )
    first = replace(first, counts={BESIDE.name: Counted(seen, 25, "a profiler", (seen,))})
    return replace(cell, results=(first, *others))
