"""Which operations belong to which step, and when the devices kept to each.

An operation belongs to the step in which it was launched; without a known launch, to that in which
it began. Where a profiler knows no launches and the devices are behind the host, as MXNet's, what
began in a step is of an earlier one. There operations of one name on one device are counted: if
each comes as often as there are steps, or a multiple of it, they are dealt out in their order.
"""

from collections.abc import Sequence

import numpy as np

from backends.profiling.timeline import KINDS, Window
from parallel_core.traces.case_spans import CaseSpans, groups_of

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
    spans = case.spans
    step_of = np.full(len(spans), NO_STEP)
    # A number for each device, name and kind.
    names = spans.name_of[operations].astype(np.int64)
    device_and_name = case.device_of[operations] * len(spans.names) + names
    device_name_and_kind = device_and_name * len(KINDS) + spans.kinds[operations]
    for alike in groups_of(device_name_and_kind):
        times_in_step, remainder = divmod(len(alike), steps)
        if remainder:
            return None
        # Spans are in the order of their start.
        step_of[operations[alike]] = np.repeat(np.arange(steps), times_in_step)
    return step_of


def ended_before(case: CaseSpans, times: np.ndarray) -> list[int]:
    """Return when all operations had ended that were launched before each of some times.

    It is 0 if none was.
    """
    by_launch = case.in_order_of_launch(case.operations)
    # When the first n operations had ended, from n = 0 on.
    ended = np.maximum.accumulate(np.append(0, case.spans.ends[by_launch]))
    launched_before = np.searchsorted(case.since[by_launch], times)
    return ended[launched_before].tolist()


def times_on_devices(
    case: CaseSpans, windows: Sequence[Window], intervals: Sequence[np.ndarray]
) -> list[tuple[int, int]]:
    """Return from when to when the devices kept to each step.

    `intervals` has the starts and ends of each step's operations. Devices may be behind the host: a
    step begins when what was launched before has ended, also if a side queue, such as one that
    fetches its data, has begun with it.
    """
    ended_earlier = ended_before(case, np.array([window.start for window in windows]))
    begins: list[int] = []
    ends: list[int] = []
    # A step that was cut out begins later than it was marked if devices were behind.
    begin = case.begun
    # When all operations of the steps so far had ended.
    all_ended = 0
    for number, window in enumerate(windows):
        begin = max(begin, window.start, all_ended, ended_earlier[number])
        last_end = int(intervals[number][:, 1].max(initial=0))
        all_ended = max(all_ended, last_end)
        begins.append(begin)
        ends.append(max(window.end, begin, all_ended))
    # A step ends at the latest where the next one begins.
    for number, next_begin in enumerate(begins[1:]):
        ends[number] = min(ends[number], next_begin)
    return list(zip(begins, ends, strict=True))
