"""What changed between two comparisons: every case of every cell that both hold, new over old."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from parallel_core.compare.analysis import interval_of
from parallel_core.compare.assessed import CellState, assess
from parallel_core.compare.results import Cell, CellResults, Comparison
from parallel_core.compare.time_differences import TimeDifference, loudness_of, time_difference
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.metrics import Band
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Result
from parallel_core.system.formatting import library_in_words

REPETITIONS = ("rounds", "epochs", "budget")
"""Parameters that say how often something is timed, not what."""


@dataclass(frozen=True)
class NewMeaning:
    """A cell whose figure means something else than before; None where too few processes or noise
    leave it open.
    """

    cell: Cell
    metric: str
    old: Band | None
    new: Band | None


@dataclass(frozen=True)
class Difference:
    """All changes, the cells that could not be compared and why, and what differs in machine and
    versions.
    """

    changes: tuple[TimeDifference, ...]
    """Of each case, with the new one's seconds over the old one's: below a ratio of 1 it became
    faster.
    """
    meanings: tuple[NewMeaning, ...]
    left_out: tuple[str, ...]
    broken: tuple[str, ...]
    """The cells among those left out that were measured before and, although tried, are not now."""
    environment_changes: tuple[str, ...]

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
            "changes": [
                {
                    **asdict(change.cell),
                    "case": change.case,
                    "ratio": change.ratio.estimate,
                    "low": change.ratio.low,
                    "high": change.ratio.high if math.isfinite(change.ratio.high) else None,
                    "verdict": change.verdict,
                    "seconds": _finite(change.seconds),
                    "parts": {part: _finite(one) for part, one in change.parts.items()},
                    "reasons": change.reasons,
                }
                for change in self.changes
            ],
            "bands": [
                {
                    **asdict(meaning.cell),
                    "metric": meaning.metric,
                    "old": meaning.old and meaning.old.code,
                    "new": meaning.new and meaning.new.code,
                }
                for meaning in self.meanings
            ],
            "left_out": list(self.left_out),
            "broken": list(self.broken),
            "surroundings": list(self.environment_changes),
        }


def _finite(interval: Interval) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in vars(interval).items()}


def compare_with_old(old: Comparison, new: Comparison) -> Difference:
    """Compare each cell with the same one of an older comparison, by the intervals and verdicts of
    `compare`.

    The two were not interleaved: if the machine was busier during one of them, that appears as a
    difference, and no interval covers it.
    """
    before, after = (
        {one.cell: (one, *assess(one)) for one in comparison.cells} for comparison in (old, new)
    )
    noises = loudness_of(
        results
        for cells in (before, after)
        for results, state, _ in cells.values()
        if state == "measured"
    )
    changes: list[TimeDifference] = []
    meanings: list[NewMeaning] = []
    left_out: list[str] = []
    broken: list[str] = []
    for cell, now in after.items():
        reason = _why_not_comparable(before.get(cell), now)
        if not reason:
            old_results, new_results = before[cell][0], now[0]
            was, is_now = _meaning(old_results), _meaning(new_results)
            if was != is_now:
                meanings.append(
                    NewMeaning(cell, EXPERIMENTS[cell.experiment].main.name, was, is_now)
                )
            changes += [
                time_difference(new_results, old_results, case, noises=noises)
                for case in new_results.case_names
                if old_results.medians(case)
            ]
            continue
        left_out.append(f"{cell}: {reason}")
        if cell in before and before[cell][1] == "measured" != now[1]:
            broken.append(left_out[-1])
    left_out += [f"{cell}: only in the old comparison" for cell in before if cell not in after]
    return Difference(
        tuple(changes),
        tuple(meanings),
        tuple(left_out),
        tuple(broken),
        _environment_changes(old, new),
    )


def _meaning(results: CellResults) -> Band | None:
    main = EXPERIMENTS[results.cell.experiment].main
    values = results.metric(main.name)
    return main.place(interval_of(values), results.valid[0]) if values else None


Assessed = tuple[CellResults, CellState, str]
"""A cell's results, whether they can be believed, and why not."""


def _why_not_comparable(old: Assessed | None, new: Assessed) -> str:
    """Say why a cell cannot be compared with its old results; empty if it can."""
    if old is None:
        return "only in the new comparison"
    for name, (_, state, reason) in (("old", old), ("new", new)):
        if state != "measured":
            return f"{state} in the {name} comparison ({reason})"
    before, after = _work(old[0].valid[0]), _work(new[0].valid[0])
    unequal = [
        f"{name} was {before.get(name)} and is {after.get(name)}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]
    return (
        f"not the same work: {', '.join(unequal)} (compare --like OLD does the work of OLD)"
        if unequal
        else ""
    )


def _work(result: Result) -> Mapping[str, Any]:
    """Return what decides how much work a case is, and on which devices it is done."""
    backend, data = result.backend, result.data
    return {
        **{name: value for name, value in result.parameters.items() if name not in REPETITIONS},
        **(
            {}
            if data is None
            else {"data": "synthetic" if data.startswith("synthetic") else "real"}
        ),
        "devices": backend["devices"],
        "threads": backend["threads_per_device"],
        "variants": ", ".join(backend.get("variants", ())) or "none",
    }


def _environment_changes(old: Comparison, new: Comparison) -> tuple[str, ...]:
    before, after = (
        {name: one.machine.get(name) for name in ("processor", "cores", "memory_bytes", "system")}
        | _versions(one)
        for one in (old, new)
    )
    changed = [name for name in before if name in after and before[name] != after[name]]
    return tuple(f"{name}: {before[name]} → {after[name]}" for name in changed)


def _versions(comparison: Comparison) -> dict[str, str]:
    """Return the versions that results were made with; each framework may have a separate
    interpreter.
    """
    by_name: dict[str, str] = {}
    for results in comparison.cells:
        backend = results.cell.backend
        for result in results.valid:
            by_name[backend] = result.backend["version"]
            if "kernels" in result.backend:
                by_name[f"{backend}'s kernels"] = "; ".join(
                    map(library_in_words, result.backend["kernels"])
                )
            for name in ("python", "numpy", "parallel_core"):
                by_name[f"{backend}'s {name}"] = result.environment[name]
    return by_name
