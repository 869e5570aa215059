"""The length of queues: against counting on real traces, and against Holistic Trace Analysis."""

from fractions import Fraction

import pytest

from parallel_core.trace_analysis.device_figures.queues import queue_lengths
from tests.parallel_core.trace_analysis.synthetic import made_case, queue_of
from tests.parallel_core.trace_analysis.traces import counting as traces
from tests.parallel_core.trace_analysis.traces.counting import case_of_trace


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
def test_holistic_trace_analysis_says_the_same(name: str, expected: dict[str, tuple[int, float, int]]) -> None:
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
