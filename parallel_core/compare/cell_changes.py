"""What changed between two comparisons: every case of every cell that both hold, new over old."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from parallel_core.compare.analysis import interval_of
from parallel_core.compare.assessed import AssessedCell, assess
from parallel_core.compare.results import CellResults, Comparison
from parallel_core.compare.time_differences import TimeDifference, time_change
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.metrics import Band
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Result
from parallel_core.system.formatting import library_in_words

REPETITIONS = ("rounds", "epochs", "budget")
"""Parameters that say how often something is timed, not what."""
MACHINE = ("processor", "cores", "memory_bytes", "system")
"""What is compared of machines."""


@dataclass(frozen=True)
class NewMeaning:
    """A figure that means something else than before; None where too few processes or noise leave
    its meaning open.
    """

    metric: str
    old: Band | None
    new: Band | None


@dataclass(frozen=True)
class CellChange:
    """What changed of a cell, or why that cannot be said."""

    results: CellResults
    """The cell's newest results, which say whose queues it uses."""
    times: tuple[TimeDifference, ...] = ()
    """Of each case, with the new one's seconds over the old one's: below a ratio of 1 it became
    faster.
    """
    meaning: NewMeaning | None = None
    """The new meaning of the main figure; None if it means the same as before."""
    left_out: str = ""
    """Why the cell could not be compared; empty if it was."""
    is_broken: bool = False
    """Whether it was measured before and, although tried, is not now."""

    @property
    def in_words(self) -> str:
        """Which cell could not be compared, and why."""
        return f"{self.results.name}: {self.left_out}"


@dataclass(frozen=True)
class Difference:
    """What changed of each cell, and what differs in machine and versions."""

    cells: tuple[CellChange, ...]
    """Those of the new comparison, then those that only the old one has."""
    environment_changes: tuple[str, ...]

    @property
    def changes(self) -> tuple[TimeDifference, ...]:
        """The changes of all cases."""
        return tuple(chain.from_iterable(change.times for change in self.cells))

    @property
    def left_out(self) -> tuple[str, ...]:
        """The cells that could not be compared, each with the reason."""
        return tuple(change.in_words for change in self.cells if change.left_out)

    @property
    def broken(self) -> tuple[str, ...]:
        """Those among them that were measured before and, although tried, are not now."""
        return tuple(change.in_words for change in self.cells if change.is_broken)

    def slower_by_more_than(self, percent: float) -> tuple[TimeDifference, ...]:
        """Return the changes whose whole interval lies above a slow-down of so many percent."""
        limit = 1 + percent / 100
        return tuple(
            change
            for change in self.changes
            if change.verdict == "slower" and change.ratio.low > limit
        )

    def as_json(self) -> dict[str, Any]:
        """Return the object that `diff --json` writes."""
        return {
            "changes": [_change_as_json(change) for change in self.changes],
            "bands": [
                {
                    **asdict(change.results.cell),
                    "metric": change.meaning.metric,
                    "old": change.meaning.old and change.meaning.old.code,
                    "new": change.meaning.new and change.meaning.new.code,
                }
                for change in self.cells
                if change.meaning is not None
            ],
            "left_out": list(self.left_out),
            "broken": list(self.broken),
            "surroundings": list(self.environment_changes),
        }


def _change_as_json(change: TimeDifference) -> dict[str, Any]:
    """Return the object of the change of a case."""
    return {
        **asdict(change.cell),
        "case": change.case,
        "ratio": change.ratio.estimate,
        "low": change.ratio.low,
        "high": change.ratio.high if math.isfinite(change.ratio.high) else None,
        "verdict": change.verdict,
        "seconds": _finite(change.seconds),
        "parts": {part: _finite(interval) for part, interval in change.parts.items()},
        "reasons": change.reasons,
    }


def _finite(interval: Interval) -> dict[str, float | None]:
    """Return an interval's fields, None for a bound that it does not have."""
    return {name: value if math.isfinite(value) else None for name, value in vars(interval).items()}


def compare_with_old(old: Comparison, new: Comparison) -> Difference:
    """Compare each cell with the same one of an older comparison.

    The two were not interleaved: if the machine was busier during one of them, that appears as a
    difference, and no interval covers it.
    """
    old_cells = {results.cell: assess(results) for results in old.cells}
    new_cells = {results.cell: assess(results) for results in new.cells}
    changes = [_change_of(old_cells.get(cell), now) for cell, now in new_cells.items()]
    for cell, before in old_cells.items():
        if cell not in new_cells:
            changes.append(CellChange(before.results, left_out="only in the old comparison"))
    # What differs in the machine and the versions, where both comparisons know theirs.
    earlier, later = _environment(old), _environment(new)
    environment_changes = tuple(
        f"{name}: {earlier[name]} → {later[name]}"
        for name in earlier
        if name in later and earlier[name] != later[name]
    )
    return Difference(tuple(changes), environment_changes)


def _change_of(before: AssessedCell | None, now: AssessedCell) -> CellChange:
    """Return what changed of a cell since an older comparison, which may not have it."""
    if before is None:
        return CellChange(now.results, left_out="only in the new comparison")
    newest = now.results if now.results.results else before.results
    reason = _why_not_comparable(before, now)
    if reason:
        is_broken = before.believed and not now.believed
        return CellChange(newest, left_out=reason, is_broken=is_broken)
    times = [
        time_change(now.results, before.results, case)
        for case in now.results.case_names
        if before.results.medians(case)
    ]
    old_band, new_band = _band_of(before.results), _band_of(now.results)
    meaning = None
    if old_band != new_band:
        meaning = NewMeaning(EXPERIMENTS[now.cell.experiment].main.name, old_band, new_band)
    return CellChange(newest, tuple(times), meaning)


def _band_of(results: CellResults) -> Band | None:
    """Return what a cell's main figure means; None if that is open, or there is no figure."""
    main = EXPERIMENTS[results.cell.experiment].main
    values = results.metric(main.name)
    return main.place(interval_of(values), results.valid[0]) if values else None


def _why_not_comparable(before: AssessedCell, now: AssessedCell) -> str:
    """Say why a cell cannot be compared with its old results; empty if it can."""
    for name, cell in (("old", before), ("new", now)):
        if not cell.believed:
            return f"{cell.state} in the {name} comparison ({cell.reason})"
    old_work, new_work = _work(before.results.valid[0]), _work(now.results.valid[0])
    unequal = [
        f"{name} was {old_work.get(name)} and is {new_work.get(name)}"
        for name in {**old_work, **new_work}
        if old_work.get(name) != new_work.get(name)
    ]
    if not unequal:
        return ""
    return f"not the same work: {', '.join(unequal)} (compare --like OLD does the work of OLD)"


def _work(result: Result) -> Mapping[str, Any]:
    """Return what decides how much work a case is, and on which devices it is done."""
    backend = result.backend
    work = {name: value for name, value in result.parameters.items() if name not in REPETITIONS}
    if result.data is not None:
        work["data"] = "synthetic" if result.data.startswith("synthetic") else "real"
    work["devices"] = backend["devices"]
    work["threads"] = backend["threads_per_device"]
    work["variants"] = ", ".join(backend.get("variants", ())) or "none"
    return work


def _environment(comparison: Comparison) -> dict[str, Any]:
    """Return what is known of a comparison's machine, and the versions that results were made with.

    Each framework may have a separate interpreter.
    """
    environment: dict[str, Any] = {name: comparison.machine.get(name) for name in MACHINE}
    for results in comparison.cells:
        backend = results.cell.backend
        for result in results.valid:
            environment[backend] = result.backend["version"]
            if "kernels" in result.backend:
                libraries = map(library_in_words, result.backend["kernels"])
                environment[f"{backend}'s kernels"] = "; ".join(libraries)
            for name in ("python", "numpy", "parallel_core"):
                environment[f"{backend}'s {name}"] = result.environment[name]
    return environment
