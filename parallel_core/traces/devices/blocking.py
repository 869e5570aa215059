"""When the host stood in a call that waits for a device."""

import numpy as np

from parallel_core.traces.case_spans import EARLIEST, CaseSpans, clip, union


def blocked_times(case: CaseSpans) -> np.ndarray:
    """Return when a thread of the host stood in a call that waited for a device, as an interval
    set: in a call that waits, or in one that lasts until its copy is done.
    """
    in_spans, calls = case.covered(case.waits), case.host_calls
    if calls is None:
        return in_spans
    waits, copies = calls.with_role("wait"), calls.with_role("copy")
    launched = case.in_order_of_launch(case.operations & case.linked)
    launches, ends = case.spans.launched[launched], case.spans.ends[launched]
    # If a call launched nothing, the operation that is found has another launch.
    first = np.searchsorted(launches, calls.starts[copies])
    has_launched = np.append(launches, EARLIEST)[first] == calls.starts[copies]
    is_done_within = np.append(ends, EARLIEST)[first] <= calls.ends[copies]
    blocking = np.sort(np.concatenate((waits, copies[has_launched & is_done_within])))
    return clip(union(in_spans, calls.intervals(blocking)), case.start, case.end)
