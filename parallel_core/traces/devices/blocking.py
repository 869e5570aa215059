"""When the host stood in a call that waits for a device."""

import numpy as np

from backends.profiling.timeline import HostCalls
from parallel_core.traces.case_spans import EARLIEST, CaseSpans, clip, union


def blocked_times(case: CaseSpans) -> np.ndarray:
    """Return when a thread of the host stood in a call that waited for a device, as an interval
    set.
    """
    in_spans, calls = case.covered(case.waits), case.host_calls
    if calls is None:
        return in_spans
    in_calls = calls.intervals(blocking_calls(case, calls))
    return clip(union(in_spans, in_calls), case.start, case.end)


def blocking_calls(case: CaseSpans, calls: HostCalls) -> np.ndarray:
    """Return the places of the calls that wait, and of those that last until their copy is done."""
    waits, copies = calls.with_role("wait"), calls.with_role("copy")
    launched = case.in_order_of_launch(case.operations & case.linked)
    launches, ends = case.spans.launched[launched], case.spans.ends[launched]
    # If a call launched nothing, the operation that is found has another launch.
    first = np.searchsorted(launches, calls.starts[copies])
    has_launched = np.append(launches, EARLIEST)[first] == calls.starts[copies]
    is_done_within = np.append(ends, EARLIEST)[first] <= calls.ends[copies]
    return np.sort(np.concatenate((waits, copies[has_launched & is_done_within])))
