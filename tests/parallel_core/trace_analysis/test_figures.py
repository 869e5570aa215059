"""The figures of a timeline: what they are for timelines whose figures are known, and what always holds."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import HOST_DEVICE, Span, Timeline, Window
from parallel_core.trace_analysis.case_spans import ALL
from parallel_core.trace_analysis.figures import CaseFigures, figures_of, timeline_figures
from tests.backends.profiling.events import ns
from tests.parallel_core.trace_analysis.synthetic import (
    FIRST,
    SECOND,
    Program,
    overlap_figures,
    overlap_timeline,
    queue_of,
    sorted_by_start,
)

DURATIONS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=15)
"""Pauses and durations of one queue's spans."""


def made_of(*spans: Span) -> CaseFigures:
    (found,) = timeline_figures(Timeline("made up", sorted_by_start(spans)))
    return found


def spaced(steps: list[tuple[int, int]]) -> list[tuple[float, float]]:
    """Lay spans behind each other on a queue, with pauses between them."""
    times, now = [], 0
    for pause, length in steps:
        times.append((float(now + pause), float(now + pause + length)))
        now += pause + length
    return times


def test_without_communication_or_operations_there_is_no_share() -> None:
    found = overlap_figures()[0]
    assert (found.communication_seconds, found.hidden_share, found.hidden_of_shorter) == (0, None, None)
    host = made_of(Span("launch", "host", HOST_DEVICE, "Python", 0, ns(1)))
    assert (host.queues_at_once, host.devices_at_once, host.waits) == (None, None, None)
    assert host.critical_path.parts == ()


def test_a_case_begins_with_its_first_launch_and_ends_with_its_last_span() -> None:
    timeline = overlap_timeline(products=10, product=1e-3)
    wide = Window("wide", timeline.cases[0].start, timeline.cases[0].end + 500_000)
    (found,) = timeline_figures(replace(timeline, cases=(wide,)))
    assert found.seconds == pytest.approx(10 * 1e-3 + 20e-6 + 5e-6)


def test_a_launch_that_has_no_span_of_its_own_begins_the_case_too() -> None:
    late = Span("matmul", "compute", FIRST, "compute", ns(5), ns(6), launched=ns(2))
    assert made_of(late).seconds == 4
    (found,) = timeline_figures(Timeline("made up", (late,), (Window("next", ns(4), ns(7)),)))
    assert found.seconds == 1


def test_the_host_is_not_busy_while_it_waits() -> None:
    program = Program().call(0, 9, "aten::item", "operator").call(2, 7, "synchronize", "wait for a device")
    case = program.run(1, 6, "add", 0).case_by_time
    (nested,) = (
        row for row in figures_of(replace(case, host_calls=program.host_calls)).queues if row.queue == "Python"
    )
    assert (nested.busy_seconds, nested.waiting_seconds) == (4e-9, 5e-9)
    *_, host = overlap_figures(products=10, product=1e-3, copy=1e-3)[-1].queues
    assert host.device == HOST_DEVICE
    assert host.busy_seconds == pytest.approx(20 * 20e-6)
    assert host.busy_seconds + host.waiting_seconds == pytest.approx(11e-3 + 20e-6 + 5e-6)


def test_launches_that_wait_in_a_queue_are_told_apart_from_those_that_do_not() -> None:
    waits = overlap_figures()[0].waits
    assert waits is not None
    assert (waits.operations, waits.longest_seconds) == (50, pytest.approx(49 * (4e-3 - 20e-6) + 20e-6))
    assert waits.median_seconds < waits.percentile_90_seconds < waits.longest_seconds
    eager = overlap_figures(synchronous=True)[0].waits
    assert eager is not None
    assert eager.longest_seconds == pytest.approx(20e-6)
    assert overlap_figures(linked=False)[0].waits is None


def test_control_returns_early_where_the_engine_queues_and_late_where_it_does_not() -> None:
    queued, eager = overlap_figures()[0], overlap_figures(synchronous=True)[0]
    assert queued.control_returned_seconds == pytest.approx(50 * 20e-6)
    assert eager.dispatch_fraction == pytest.approx(1, abs=1e-3)
    assert made_of(*queue_of([(0, 1)])).dispatch_fraction is None


def test_waits_before_the_last_one_keep_control_from_returning() -> None:
    launches = queue_of([(0, 1), (4, 5)], "host", HOST_DEVICE, "Python")
    waits = [Span("wait", "host", HOST_DEVICE, "Python", ns(start), ns(end)) for start, end in ((1, 4), (5, 8))]
    last = Span("waitall", "host", HOST_DEVICE, "Python", ns(8), ns(10))
    # A second row of waits does not count as launching.
    found = made_of(*launches, *waits, last, last._replace(name="WaitForVar", queue="waits"))
    assert (found.control_returned_seconds, found.dispatch_fraction) == (8, 0.8)


def test_the_wait_for_idle_devices_after_a_timing_is_no_part_of_it() -> None:
    launches = queue_of([(0, 1), (1, 2)], "host", HOST_DEVICE, "Python")
    waits = [Span("waitall", "host", HOST_DEVICE, "Python", ns(start), ns(end)) for start, end in ((2, 9), (10, 12))]
    timeline = Timeline("made up", sorted_by_start([*launches, *waits]), (Window("a case", 0, ns(20)),))
    (found,) = timeline_figures(timeline)
    assert (found.control_returned_seconds, found.seconds) == (2, 9)


def test_a_timeline_without_cases_is_one_and_a_case_without_spans_has_none() -> None:
    assert made_of(*queue_of([(0, 1)])).case == ALL
    assert made_of().seconds == 0
    (found,) = timeline_figures(Timeline("made up", queue_of([(0, 1)]), (Window("later", ns(5), ns(6)),)))
    assert (found.case, found.seconds, found.queues, found.idle_share) == ("later", 0, (), 0)


def test_figures_are_plain_json() -> None:
    for found in (made_of(), overlap_figures()[-1], overlap_figures(linked=False)[0]):
        assert json.loads(json.dumps(asdict(found), allow_nan=False))["hidden_share"] == found.hidden_share


@given(DURATIONS, DURATIONS)
def test_figures_are_what_counting_seconds_gives(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    computing, copying = spaced(one), spaced(other)
    found = made_of(*queue_of(computing), *queue_of(copying, "copy", SECOND))
    a, b = (
        {second for start, end in times for second in range(int(start), int(end))} for times in (computing, copying)
    )
    assert found.compute_seconds == len(a)
    assert found.communication_seconds == len(b)
    assert found.hidden_seconds == len(a & b)
    assert found.working_seconds == len(a | b)
    assert found.hidden_share == (len(a & b) / len(b) if b else None)
    assert found.hidden_of_shorter == (len(a & b) / min(len(a), len(b)) if a and b else None)
    assert found.idle_share == (pytest.approx(1 - len(a | b) / found.seconds) if found.seconds else 0)
    assert found.queues_at_once == (pytest.approx((len(a) + len(b)) / len(a | b)) if a | b else None)


@given(DURATIONS)
def test_busy_time_and_gaps_make_up_a_queue(steps: list[tuple[int, int]]) -> None:
    times = [(start, end) for start, end in spaced(steps) if end > start]
    for queue in made_of(*queue_of(times)).queues:
        lengths = np.diff(np.array(times).ravel())[1::2]
        assert queue.busy_seconds + queue.gap_seconds == times[-1][1] - times[0][0]
        assert queue.busy_share == queue.busy_seconds / (times[-1][1] - times[0][0])
        assert (queue.gaps, queue.longest_gap_seconds) == (np.count_nonzero(lengths), lengths.max(initial=0))


def test_collectives_count_alone_and_device_by_device() -> None:
    # A copy is no collective, and computation elsewhere hides nothing.
    spans = (
        *queue_of([(0, 4)], "exchange"),
        *queue_of([(3, 6)], "copy", queue="copy"),
        *queue_of([(0, 9)], device=SECOND),
    )
    found = made_of(*spans, *queue_of([(1, 2)], queue="compute 2"))
    assert (found.collective_seconds, found.hidden_collective_seconds, found.hidden_collective_share) == (4, 1, 0.25)
    # At once they count once.
    assert (found.communication_seconds, found.hidden_share) == (6, 1)
    # Three queues of the first device work for 4, 3 and 1 seconds.
    assert (found.queues_at_once, found.devices_at_once) == ((4 + 3 + 1 + 9) / 9, (6 + 9) / 9)


def test_a_cpu_s_copies_are_work_in_all_figures() -> None:
    found = made_of(*queue_of([(0, 3)], "copy", "cpu"), *queue_of([(2, 4)], "exchange", "cpu", "gloo"))
    assert found.compute_seconds == found.parts.compute_seconds == 3
    assert found.hidden_share == found.parts.hidden_exchange_share == 0.5
    assert found.parts.hidden_copy_share is None
