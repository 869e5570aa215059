"""What queues waited for: against the definition, gap by gap, and against Holistic Trace Analysis."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.trace_analysis.device_figures.queues import KERNEL_DELAY, queue_idleness
from tests.parallel_core.trace_analysis.synthetic import FIRST, made_case, queue_of
from tests.parallel_core.trace_analysis.traces import counting as traces
from tests.parallel_core.trace_analysis.traces.counting import case_of_trace


@pytest.mark.parametrize("name", traces.LINKED)
@pytest.mark.parametrize("threshold", [30, KERNEL_DELAY])
def test_each_gap_of_a_real_trace_is_of_its_kind(name: str, threshold: int) -> None:
    launched = traces.launches(name)
    for found in queue_idleness(case_of_trace(name), threshold):
        expected: dict[str, list[int]] = {"host": [], "kernel": [], "other": []}
        ended = None
        for one in traces.operations(name):
            if found.queue != f"stream {one.args['stream']}":
                continue
            gap = 0 if ended is None else one.start - ended
            if ended is not None and gap > 0:
                host = launched.get(one.correlation, ended) > ended
                expected["host" if host else "kernel" if gap < threshold else "other"].append(gap)
            ended = one.end if ended is None else max(ended, one.end)
        seconds = found.host_wait_seconds, found.kernel_wait_seconds, found.other_wait_seconds
        assert seconds == tuple(sum(gaps) / 1e9 for gaps in expected.values())
        assert (found.host_waits, found.kernel_waits, found.other_waits) == tuple(map(len, expected.values()))
        assert found.idle_seconds == sum(map(sum, expected.values())) / 1e9


def test_holistic_trace_analysis_says_the_same_of_whole_microseconds() -> None:
    # HTA 0.5.0, get_idle_time_breakdown(consecutive_kernel_delay=30), in microseconds as the trace has them.
    one, other = queue_idleness(case_of_trace("two_streams"))
    assert (one.host_wait_seconds, one.kernel_wait_seconds, one.other_wait_seconds) == (12.855007, 104e-6, 0)
    assert (other.host_wait_seconds, other.kernel_wait_seconds, other.other_wait_seconds) == (12.011718, 3e-6, 0)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.none() | st.integers(0, 20)), max_size=12))
def test_the_kinds_add_up(steps: list[tuple[int, int, int | None]]) -> None:
    spans, now = [], 0
    for pause, length, launched in steps:
        begun = None if launched is None else min(launched, now + pause)
        spans.append(queue_of([(now + pause, now + pause + length)])[0]._replace(launched=begun and begun * 10**9))
        now += pause + length
    for found in queue_idleness(made_case(*spans)):
        assert found.device == FIRST
        kinds = found.host_wait_seconds + found.kernel_wait_seconds + found.other_wait_seconds
        assert found.idle_seconds == kinds == sum(pause for pause, _, _ in steps[1:])
