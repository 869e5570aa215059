"""The operations of a case by name: which kernels take the most time."""

from dataclasses import dataclass

import numpy as np

from backends.profiling import SpanKind, in_seconds
from parallel_core.trace_analysis.case_spans import KINDS, CaseSpans

__all__ = ["OperationFigures", "operations_by_name"]


@dataclass(frozen=True)
class OperationFigures:
    """All operations of one name and kind, on all devices."""

    name: str
    kind: SpanKind
    operations: int
    seconds: float
    """The sum of their durations, also where they ran at the same time."""
    mean_seconds: float
    longest_seconds: float
    share: float
    """Of the sum over all names."""


def operations_by_name(case: CaseSpans) -> tuple[OperationFigures, ...]:
    """Add up the operations of a case by name, those that took the most time first; by name where they took as long."""
    names: dict[tuple[str, int], int] = {}
    places = np.flatnonzero(case.operations)
    kinds = case.kinds[places].tolist()
    named = zip(places.tolist(), kinds, strict=True)
    name_of = np.fromiter(
        (names.setdefault((case.spans[place].name, kind), len(names)) for place, kind in named), np.intp, len(places)
    )
    lengths = case.ends[places] - case.starts[places]
    counts = np.bincount(name_of, minlength=len(names))
    sums, longest = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
    # Sums of integers are exact, those of weights in `bincount` are not.
    np.add.at(sums, name_of, lengths)
    np.maximum.at(longest, name_of, lengths)
    whole = int(sums.sum())
    rows = zip(names, counts.tolist(), sums.tolist(), longest.tolist(), strict=True)
    ordered = sorted(rows, key=lambda row: (-row[2], row[0]))
    return tuple(
        OperationFigures(
            name, KINDS[kind], count, in_seconds(taken), in_seconds(taken) / count, in_seconds(most), taken / whole
        )
        for (name, kind), count, taken, most in ordered
        if taken
    )
