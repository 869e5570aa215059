"""All operations of a case by name, and which of them fill memory or copy within a device."""

from dataclasses import dataclass

import numpy as np

from backends.profiling.timeline import KINDS, SpanKind, in_seconds
from parallel_core.traces.case_spans import CaseSpans, groups_of
from parallel_core.traces.figures import Count, Seconds, Share

FILLS = r"^(Memset|hipMemset|__amd_rocclr_fill)"
"""How the names of operations begin that fill memory, in traces of CUDA and of HIP."""
WITHIN_A_DEVICE = r"^(Memcpy DtoD|Memcpy D2D|MemcpyD2D)"
"""How the names of copies begin that stay in one device's memory."""


@dataclass(frozen=True)
class OperationFigures:
    """All operations of one name and kind, on all devices."""

    name: str
    kind: SpanKind
    operations: Count
    seconds: Seconds
    """The sum of their durations, also where they ran at the same time."""
    mean_seconds: Seconds
    longest_seconds: Seconds
    share: Share
    """Of the sum over all names."""


def operations_by_name(case: CaseSpans) -> tuple[OperationFigures, ...]:
    """Add up the operations of a case by name, those that took the most time first; by name where
    they took as long.
    """
    spans, lengths = case.spans.select(case.operations), case.lengths[case.operations]
    time_of_all = int(lengths.sum())
    # A number for each name and kind.
    name_and_kind = spans.name_of.astype(np.int64) * len(KINDS) + spans.kinds
    rows = []
    for operations in groups_of(name_and_kind):
        first = spans[int(operations[0])]
        time = int(lengths[operations].sum())
        if time == 0:
            continue
        rows.append(
            OperationFigures(
                name=first.name,
                kind=first.kind,
                operations=len(operations),
                seconds=in_seconds(time),
                mean_seconds=in_seconds(time) / len(operations),
                longest_seconds=in_seconds(lengths[operations].max()),
                share=time / time_of_all,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.seconds, row.name)))
