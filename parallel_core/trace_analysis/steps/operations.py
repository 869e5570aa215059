"""Which operations belong to which step, and when the devices kept to each.

An operation belongs to the step in which it was launched; without a known launch, to that in which
it began. Where a profiler knows no launches and the devices are behind the host, as MXNet's, what
began in a step is of an earlier one. There operations of one name on one device are counted: if
each comes as often as there are steps, or a multiple of it, they are dealt out in their order.
"""

from collections.abc import Sequence

import numpy as np

from backends.profiling.timeline import KINDS, Window
from parallel_core.trace_analysis.case_spans import CaseSpans, groups_of

NO_STEP = -1


def steps_by_launch(case: CaseSpans, windows: Sequence[Window]) -> np.ndarray:
    """Return for each span the number of the step that launched it, or NO_STEP."""
    begins = np.array([window.start for window in windows])
    ends = np.array([window.end for window in windows])
    since = case.since
    step_of = np.searchsorted(begins, since, side="right") - 1
    step_of[(step_of >= 0) & (since >= ends[step_of])] = NO_STEP
    return step_of


def steps_by_count(case: CaseSpans, steps: int) -> np.ndarray | None:
    """Return for each span the number of its step, the host's NO_STEP, by dealing out what repeats.

    None if a launch is known, or an operation does not come equally often in each step.
    """
    operations = np.flatnonzero(case.operations)
    if case.linked.any() or len(operations) == 0:
        return None
    spans, step_of = case.spans, np.full(len(case.spans), NO_STEP)
    names = spans.name_of[operations].astype(np.int64)
    alike = (case.device_of[operations] * len(spans.names) + names) * len(KINDS)
    for group in groups_of(alike + spans.kinds[operations]):
        if len(group) % steps:
            return None
        # Spans are in the order of their start.
        step_of[operations[group]] = np.repeat(np.arange(steps), len(group) // steps)
    return step_of


def ended_before(case: CaseSpans, times: np.ndarray) -> list[int]:
    """Return when all operations had ended that were launched before each of some times."""
    since, ends = case.since[case.operations], case.spans.ends[case.operations]
    order = np.argsort(since, kind="stable")
    ended = np.maximum.accumulate(np.concatenate(([0], ends[order])))
    return [int(end) for end in ended[np.searchsorted(since[order], times)]]


def times_on_devices(
    case: CaseSpans, windows: Sequence[Window], times: Sequence[np.ndarray]
) -> list[tuple[int, int]]:
    """Return from when to when the devices kept to each step, whose operations ran at some times.

    They may be behind the host: a step begins when what was launched before has ended, also if a
    side queue, such as one that fetches its data, has begun with it.
    """
    before = ended_before(case, np.array([window.start for window in windows]))
    begins: list[int] = []
    ends: list[int] = []
    ended = 0
    for window, ended_earlier, own in zip(windows, before, times, strict=True):
        begins.append(max([window.start, ended, ended_earlier, *begins[-1:]]))
        ended = max(ended, int(own[:, 1].max(initial=0)))
        ends.append(max(window.end, begins[-1], ended))
    return [
        (begin, min(end, after))
        for begin, end, after in zip(begins, ends, [*begins[1:], ends[-1]], strict=True)
    ]
