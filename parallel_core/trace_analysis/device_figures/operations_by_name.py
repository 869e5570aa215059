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
    own = case.operations
    lengths = (case.ends - case.starts)[own]
    named = case.spans.name_of[own].astype(np.int64) * len(KINDS) + case.kinds[own]
    groups, group_of, counts = np.unique(named, return_inverse=True, return_counts=True)
    sums, longest = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
    # Sums of integers are exact, those of weights in `bincount` are not.
    np.add.at(sums, group_of, lengths)
    np.maximum.at(longest, group_of, lengths)
    whole = int(sums.sum())
    names = [case.spans.names[group // len(KINDS)] for group in groups.tolist()]
    kinds = [KINDS[group % len(KINDS)] for group in groups.tolist()]
    rows = zip(names, kinds, counts.tolist(), sums.tolist(), longest.tolist(), strict=True)
    ordered = sorted(rows, key=lambda row: (-row[3], row[0]))
    return tuple(
        OperationFigures(
            name, kind, count, in_seconds(taken), in_seconds(taken) / count, in_seconds(most), taken / whole
        )
        for name, kind, count, taken, most in ordered
        if taken
    )
