"""What changed between two comparisons: every case of every cell that both hold, new over old."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parallel_core.comparison.cells import Cell, Comparison, Measured
from parallel_core.comparison.summary import judge
from parallel_core.measurement.confidence_intervals import Interval, Verdict, ratio_interval, verdict
from parallel_core.measurement.result import Result

__all__ = ["Change", "Difference", "difference"]

HOW_OFTEN = ("rounds", "epochs")
"""Parameters that say how often something is timed, not what."""


@dataclass(frozen=True)
class Change:
    """A case's new time over its old one: below 1 it became faster."""

    cell: Cell
    case: str
    ratio: Interval
    verdict: Verdict


@dataclass(frozen=True)
class Difference:
    """All changes, what could not be compared and why, and what differs in machine and versions."""

    changes: tuple[Change, ...]
    left_out: tuple[str, ...]
    broken: tuple[str, ...]
    """The cells among those left out that were measured before and, though tried, are not now."""
    surroundings: tuple[str, ...]

    def slower_by_more_than(self, percent: float) -> tuple[Change, ...]:
        """Return the changes whose whole interval lies above this many percent."""
        limit = 1 + percent / 100
        return tuple(change for change in self.changes if change.verdict == "slower" and change.ratio.low > limit)

    def as_json(self) -> dict[str, Any]:
        """Return the object that `diff --json` writes."""
        return {
            "changes": [
                {
                    "experiment": change.cell.experiment,
                    "backend": change.cell.backend,
                    "engine": change.cell.engine,
                    "case": change.case,
                    "ratio": change.ratio.estimate,
                    "low": change.ratio.low,
                    "high": change.ratio.high if math.isfinite(change.ratio.high) else None,
                    "verdict": change.verdict,
                }
                for change in self.changes
            ],
            "left_out": list(self.left_out),
            "broken": list(self.broken),
            "surroundings": list(self.surroundings),
        }


def difference(old: Comparison, new: Comparison) -> Difference:
    """Hold a newer comparison against an older one, by the same intervals and verdicts as cells of one comparison.

    The two were not interleaved: a machine that was busier at one time shows as a difference that no interval holds.
    """
    before = {measured.cell: measured for measured in old.cells}
    changes: list[Change] = []
    left_out: list[str] = []
    broken: list[str] = []
    for measured in new.cells:
        was = before.get(measured.cell)
        reason = why_not(was, measured)
        if reason:
            left_out.append(f"{measured.cell}: {reason}")
            if was is not None and judge(was)[0] == "measured" != judge(measured)[0]:
                broken.append(left_out[-1])
        else:
            changes += changes_of(before[measured.cell], measured)
    now = {measured.cell for measured in new.cells}
    left_out += [f"{cell}: only in the old comparison" for cell in before if cell not in now]
    return Difference(tuple(changes), tuple(left_out), tuple(broken), surroundings(old, new))


def changes_of(old: Measured, new: Measured) -> list[Change]:
    """Compare the cases that a cell had and has."""
    found = []
    for case in new.case_names:
        theirs, mine = old.medians(case), new.medians(case)
        if theirs:
            ratio = ratio_interval(mine, theirs)
            found.append(Change(new.cell, case, ratio, verdict(ratio, min(len(mine), len(theirs)))))
    return found


def why_not(old: Measured | None, new: Measured) -> str:
    """Say why a cell cannot be compared with what it was; empty where it can."""
    if old is None:
        return "only in the new comparison"
    for when, measured in (("old", old), ("new", new)):
        state, reason = judge(measured)
        if state != "measured":
            return f"{state} in the {when} comparison ({reason})"
    was, now = work(old.valid[0]), work(new.valid[0])
    unequal = [
        f"{name} was {was.get(name)} and is {now.get(name)}"
        for name in {**was, **now}
        if was.get(name) != now.get(name)
    ]
    if unequal:
        return f"not the same work: {', '.join(unequal)} (compare --like OLD does the work of OLD)"
    return ""


def work(result: Result) -> Mapping[str, Any]:
    """Return what decides how much work a case is, and on what it is done."""
    parameters = {name: value for name, value in result.parameters.items() if name not in HOW_OFTEN}
    data = {} if result.data is None else {"data": "synthetic" if result.data.startswith("synthetic") else "real"}
    backend = result.backend
    return {
        **parameters,
        **data,
        "devices": backend["devices"],
        "threads": backend["threads_per_device"],
        "variants": ", ".join(backend.get("variants", ())) or "none",
    }


def surroundings(old: Comparison, new: Comparison) -> tuple[str, ...]:
    """Say what differs in the machines and in the frameworks' versions."""
    told = [
        f"{name}: {old.machine.get(name)} → {new.machine.get(name)}"
        for name in ("processor", "cores", "memory_bytes", "system")
        if old.machine.get(name) != new.machine.get(name)
    ]
    was, now = versions(old), versions(new)
    return (*told, *(f"{name}: {was[name]} → {now[name]}" for name in was if name in now and was[name] != now[name]))


def versions(comparison: Comparison) -> dict[str, str]:
    """Return the versions that results were made with; each framework may have an interpreter of its own."""
    found: dict[str, str] = {}
    for measured in comparison.cells:
        name = measured.cell.backend
        for result in measured.valid:
            found[name] = result.backend["version"]
            found |= {f"{name}'s {what}": result.environment[what] for what in ("python", "numpy", "parallel_core")}
    return found
