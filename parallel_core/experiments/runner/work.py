"""Workloads, the cases that are timed of them, and what a case's time is made of."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parallel_core.measurement.result import Case, Timing

Launch = Callable[[], object]


@dataclass(frozen=True)
class Work:
    """A workload, and a unit that does the same with nothing queued between its operations."""

    launch: Callable[[], Any]
    unit: Callable[[], object] | None = None
    """None if that cannot be measured."""
    times: float = 1
    """The number of units that do what the launch does."""
    calls: "Work | None" = None
    """The same calls on one element each, and their unit; None if that cannot be measured."""
    transfers: bool = False
    """Whether it moves values and computes none."""


@dataclass(frozen=True)
class Timed:
    """A case that is to be timed: see `Trial.time`."""

    name: str
    launch: Callable[[], Any]
    take: Callable[[], Timing]
    counted_take: Callable[[], Timing]
    repeats: int
    parts: tuple[str, ...]
    bare: tuple[Work, ...]
    hides: str
    curve: str | None
    at: float


def labelled(pending: Iterable[Timed]) -> dict[Launch, str]:
    """Name what is timed beside the cases: units, and calls on one element.

    Each is named once, after the first case that it is of.
    """
    labels: dict[Launch, str] = {}
    for case in pending:
        for number, work in enumerate(case.bare, 1):
            name = case.name
            if len(case.bare) > 1:
                name += f" {number} of {len(case.bare)}"
            launches = {"as one unit": work.unit}
            if work.calls:
                launches["on one element"] = work.calls.launch
                launches["on one element, as one unit"] = work.calls.unit
            for description, launch in launches.items():
                if launch is not None:
                    labels.setdefault(launch, f"{name}, {description}")
    return labels


def account_of(
    case: Timed,
    timed: Case,
    seconds_of: Mapping[Launch, np.ndarray],
    cases: Mapping[str, Case],
) -> dict[str, Any]:
    """Return what a case's time is made of, as fields of the case, by round: see `Case`.

    `cases` are those that were timed, its parts among them.
    """
    units = {
        work: work.times * seconds_of[work.unit] for work in case.bare if work.unit is not None
    }
    if not units:
        return {}
    account = {"bare_seconds": np.max([*units.values()], axis=0)}
    calls = {work: work.calls for work in units if work.calls is not None}
    if len(calls) == len(case.bare):
        overhead = {work: of.times * seconds_of[of.launch] for work, of in calls.items()}
        operations = []
        for work, of in calls.items():
            if of.unit is not None and not work.transfers:
                operations.append(units[work] - of.times * seconds_of[of.unit])
        account["overhead_seconds"] = np.sum([*overhead.values()], axis=0)
        account["operations_seconds"] = np.zeros(len(timed.seconds))
        if operations:
            account["operations_seconds"] = np.max(operations, axis=0)
        if case.hides:
            issuing = [overhead[work] for work in overhead if work.transfers]
            account["transfer_seconds"] = _unhidden(case, timed, sum(issuing), cases)
    return {name: tuple(map(float, values / case.repeats)) for name, values in account.items()}


def _unhidden(
    case: Timed, timed: Case, issuing: np.ndarray | int, cases: Mapping[str, Case]
) -> np.ndarray:
    """Return what a case's transfer adds to the time of its other parts, by round.

    It is at most the transfer's time without `issuing` its copies.
    """
    other_parts = [cases[part].seconds for part in case.parts if part != case.hides]
    longest = np.max(other_parts, axis=0)
    most = np.maximum(np.subtract(cases[case.hides].seconds, issuing), 0)
    return case.repeats * np.clip(np.subtract(timed.seconds, longest), 0, most)
