"""What queues waited for, and their lengths: against the definitions, and against Holistic Trace Analysis."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.trace_analysis.device_figures.queues import KERNEL_DELAY, queue_idleness, queue_lengths
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


@pytest.mark.parametrize("name", traces.LINKED)
def test_a_queue_is_as_long_as_counting_says(name: str) -> None:
    launched = traces.launches(name)
    for found in queue_lengths(case_of_trace(name)):
        linked = [
            (launched[one.correlation], one.start)
            for one in traces.operations(name)
            if found.queue == f"stream {one.args['stream']}" and one.correlation in launched
        ]
        changes = sorted([(since, 0, 1) for since, _ in linked] + [(start, 1, -1) for _, start in linked])
        lengths, lasted, length = [], Fraction(0), 0
        for (time, _, change), following in zip(changes, [*changes[1:], changes[-1]], strict=True):
            length += change
            lengths.append(length)
            lasted += length * (following[0] - time)
        assert found.operations == len(linked)
        assert found.longest == max(lengths)
        assert found.mean_length_at_changes == float(Fraction(sum(lengths), len(lengths)))
        assert found.mean_length == float(lasted / (changes[-1][0] - changes[0][0]))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("two_streams", {"stream 7": (182, 3.346154, 18), "stream 20": (14, 0.642857, 2)}),
        ("ddp", {"stream 7": (1642, 0.530451, 4), "stream 40": (42, 0.5, 1)}),
    ],
)
def test_hta_counts_the_same_lengths(name: str, expected: dict[str, tuple[int, float, int]]) -> None:
    # HTA 0.5.0, get_queue_length_summary: count, mean and maximum.
    found = {
        one.queue: (2 * one.operations, round(one.mean_length_at_changes, 6), one.longest)
        for one in queue_lengths(case_of_trace(name))
    }
    assert found == expected


def test_queues_without_links_have_no_length() -> None:
    assert queue_lengths(made_case(*queue_of([(0, 1)]))) == ()


def test_what_starts_as_it_is_launched_was_in_the_queue() -> None:
    (found,) = queue_lengths(made_case(queue_of([(3, 4)])[0]._replace(launched=3 * 10**9)))
    assert (found.longest, found.mean_length, found.mean_length_at_changes) == (1, 0, 0.5)
