"""The figures of a timeline: what they are for timelines whose figures are known, and what always
holds.

The time of each device, its operations by name, and what its queues waited for and held are those
by the definitions, and as Holistic Trace Analysis counts real traces.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import HOST_DEVICE, Span, Timeline, Window
from parallel_core.trace_analysis.case_spans import ALL
from parallel_core.trace_analysis.devices import (
    device_figures,
    operations_by_name,
    queue_idleness,
    queue_lengths,
)
from parallel_core.trace_analysis.figures import CaseFigures, figures_of, timeline_figures
from tests.backends.profiling.events import ns
from tests.parallel_core.trace_analysis.synthetic import (
    FIRST,
    GPU,
    SECOND,
    Program,
    made_case,
    overlap_figures,
    overlap_timeline,
    queue_of,
    sorted_by_start,
)
from tests.parallel_core.trace_analysis.traces import case_of_trace

DURATIONS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=15)
"""Pauses and durations of one queue's spans."""


def made_of(*spans: Span, cases: tuple[Window, ...] = ()) -> CaseFigures:
    (found,) = timeline_figures(Timeline("made up", sorted_by_start(spans), cases))
    return found


def on_host(*calls: tuple[str, float, float]) -> list[Span]:
    return [
        Span(name, "host", HOST_DEVICE, "Python", ns(start), ns(end)) for name, start, end in calls
    ]


def spaced(steps: list[tuple[int, int]]) -> list[tuple[float, float]]:
    """Lay spans behind each other on a queue, with pauses between them."""
    times, now = [], 0
    for pause, length in steps:
        times.append((float(now + pause), float(now + pause + length)))
        now += pause + length
    return times


def test_a_case_begins_with_its_first_launch_and_ends_with_its_last_span() -> None:
    timeline = overlap_timeline(products=10, product=1e-3)
    wide = Window("wide", timeline.cases[0].start, timeline.cases[0].end + 500_000)
    (found,) = timeline_figures(replace(timeline, cases=(wide,)))
    assert found.seconds == pytest.approx(10 * 1e-3 + 20e-6 + 5e-6)
    # A launch that has no span of its own begins the case too.
    late = Span("matmul", "compute", FIRST, "compute", ns(5), ns(6), launched=ns(2))
    assert made_of(late).seconds == 4
    assert made_of(late, cases=(Window("next", ns(4), ns(7)),)).seconds == 1


def test_the_host_is_not_busy_while_it_waits() -> None:
    program = (
        Program()
        .call(0, 9, "aten::item", "operator")
        .call(2, 7, "synchronize", "wait for a device")
    )
    case = program.run(1, 6, "add", 0).case_by_time
    (nested,) = (
        row
        for row in figures_of(replace(case, host_calls=program.host_calls)).queues
        if row.queue == "Python"
    )
    assert (nested.busy_seconds, nested.waiting_seconds) == (4e-9, 5e-9)
    *_, host = overlap_figures(products=10, product=1e-3, copy=1e-3)[-1].queues
    assert host.device == HOST_DEVICE
    assert host.busy_seconds == pytest.approx(20 * 20e-6)
    assert host.busy_seconds + host.waiting_seconds == pytest.approx(11e-3 + 20e-6 + 5e-6)


def test_where_the_engine_queues_launches_wait_and_control_returns_early() -> None:
    queued, eager = overlap_figures()[0], overlap_figures(synchronous=True)[0]
    waits = queued.waits
    assert waits is not None
    assert (waits.operations, waits.longest_seconds) == (
        50,
        pytest.approx(49 * (4e-3 - 20e-6) + 20e-6),
    )
    assert waits.median_seconds < waits.percentile_90_seconds < waits.longest_seconds
    assert eager.waits is not None
    assert eager.waits.longest_seconds == pytest.approx(20e-6)
    assert overlap_figures(linked=False)[0].waits is None
    assert queued.control_returned_seconds == pytest.approx(50 * 20e-6)
    assert eager.dispatch_fraction == pytest.approx(1, abs=1e-3)
    assert made_of(*queue_of([(0, 1)])).dispatch_fraction is None


def test_waits_before_the_last_one_keep_control_from_returning() -> None:
    *calls, last = on_host(
        ("launch", 0, 1), ("wait", 1, 4), ("launch", 4, 5), ("wait", 5, 8), ("waitall", 8, 10)
    )
    # A second row of waits does not count as launching.
    found = made_of(*calls, last, last._replace(name="WaitForVar", queue="waits"))
    assert (found.control_returned_seconds, found.dispatch_fraction) == (8, 0.8)


def test_the_wait_for_idle_devices_after_a_timing_is_no_part_of_it() -> None:
    calls = on_host(("launch", 0, 1), ("launch", 1, 2), ("waitall", 2, 9), ("waitall", 10, 12))
    found = made_of(*calls, cases=(Window("a case", 0, ns(20)),))
    assert (found.control_returned_seconds, found.seconds) == (2, 9)


def test_a_timeline_without_cases_is_one_and_a_case_without_spans_has_none() -> None:
    assert made_of(*queue_of([(0, 1)])).case == ALL
    assert made_of().seconds == 0
    found = made_of(*queue_of([(0, 1)]), cases=(Window("later", ns(5), ns(6)),))
    assert (found.case, found.seconds, found.queues, found.idle_share) == ("later", 0, (), 0)


@given(DURATIONS, DURATIONS)
def test_figures_are_what_counting_seconds_gives(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    computing, copying = spaced(one), spaced(other)
    found = made_of(*queue_of(computing), *queue_of(copying, "copy", SECOND))
    a, b = (
        {second for start, end in times for second in range(int(start), int(end))}
        for times in (computing, copying)
    )
    assert found.compute_seconds == len(a)
    assert found.communication_seconds == len(b)
    assert found.hidden_seconds == len(a & b)
    assert found.working_seconds == len(a | b)
    assert found.hidden_share == (len(a & b) / len(b) if b else None)
    assert found.hidden_of_shorter == (len(a & b) / min(len(a), len(b)) if a and b else None)
    assert found.idle_share == (
        pytest.approx(1 - len(a | b) / found.seconds) if found.seconds else 0
    )
    assert found.queues_at_once == (
        pytest.approx((len(a) + len(b)) / len(a | b)) if a | b else None
    )


@given(DURATIONS)
def test_busy_time_and_gaps_make_up_a_queue(steps: list[tuple[int, int]]) -> None:
    times = [(start, end) for start, end in spaced(steps) if end > start]
    for queue in made_of(*queue_of(times)).queues:
        lengths = np.diff(np.array(times).ravel())[1::2]
        assert queue.busy_seconds + queue.gap_seconds == times[-1][1] - times[0][0]
        assert queue.busy_share == queue.busy_seconds / (times[-1][1] - times[0][0])
        assert (queue.gaps, queue.longest_gap_seconds) == (
            np.count_nonzero(lengths),
            lengths.max(initial=0),
        )


def test_collectives_count_alone_and_device_by_device() -> None:
    # A copy is no collective, and computation elsewhere hides nothing.
    spans = (
        *queue_of([(0, 4)], "exchange"),
        *queue_of([(3, 6)], "copy", queue="copy"),
        *queue_of([(0, 9)], device=SECOND),
    )
    found = made_of(
        *spans, *queue_of([(1, 2)], queue="compute 2"), *queue_of([(0, 9)], "host", HOST_DEVICE)
    )
    assert (
        found.collective_seconds,
        found.hidden_collective_seconds,
        found.hidden_collective_share,
    ) == (4, 1, 0.25)
    assert [(one.device, one.hidden_collective_share) for one in found.devices] == [
        (FIRST, 0.25),
        (SECOND, None),
    ]
    # At once they count once. The exchange lies under its device's computation for a second, and
    # all of the copy under the other device's.
    assert (found.communication_seconds, found.hidden_share) == (6, 4 / 6)
    assert (found.parts.exchange_seconds, found.parts.hidden_exchange_share) == (4, 0.25)
    assert (found.parts.copy_seconds, found.parts.hidden_copy_share) == (3, 1)
    # Three queues of the first device work for 4, 3 and 1 seconds.
    assert (found.queues_at_once, found.devices_at_once) == ((4 + 3 + 1 + 9) / 9, (6 + 9) / 9)


def test_what_a_device_computes_hides_no_other_device_s_exchange() -> None:
    """While one exchanges, the other computes; together they would seem to hide everything."""
    first, second = (
        (
            *queue_of([(start, start + 4)], "exchange", device, "nccl"),
            *queue_of([(4 - start, 8 - start)], device=device),
        )
        for start, device in ((0, FIRST), (4, SECOND))
    )
    found = made_of(*first, *second)
    # Of each device, and not of both added up.
    assert (found.parts.exchange_seconds, found.parts.hidden_exchange_seconds) == (4, 0)
    assert found.hidden_share == found.hidden_collective_share == 0
    assert (found.parts.compute_seconds, found.parts.exposed_exchange_seconds) == (8, 0)


def test_a_device_that_never_computes_exchanges_for_the_others() -> None:
    """As MXNet's local key-value store does: it sums on a device of its own."""
    found = made_of(*queue_of([(0, 4)], "exchange", FIRST), *queue_of([(3, 9)], device=SECOND))
    assert found.parts.hidden_exchange_share == 0.25


def test_a_copy_within_a_device_is_its_work_and_no_transfer() -> None:
    def copy(name: str, start: int, end: int) -> Span:
        return Span(name, "copy", GPU, "stream 7", ns(start), ns(end), operator=name)

    found = made_of(
        Span("gemm", "compute", GPU, "stream 13", ns(0), ns(3), operator="gemm"),
        copy("Memcpy DtoD (Device -> Device)", 0, 5),
        copy("Memcpy HtoD (Pinned -> Device)", 5, 7),
        copy("Memcpy PtoP (Device -> Device)", 8, 10),
    )
    assert (found.parts.copy_seconds, found.parts.hidden_copy_seconds) == (4, 0)
    assert (found.parts.compute_seconds, found.parts.exposed_copy_seconds) == (5, 4)
    # Holistic Trace Analysis counts kernels only.
    assert found.devices[0].compute_seconds == 3


def test_a_cpu_s_copies_are_work_in_all_figures() -> None:
    found = made_of(
        *queue_of([(0, 3)], "copy", "cpu"), *queue_of([(2, 4)], "exchange", "cpu", "gloo")
    )
    assert found.compute_seconds == found.parts.compute_seconds == 3
    assert found.hidden_share == found.parts.hidden_exchange_share == 0.5
    assert found.parts.hidden_copy_share is None


def test_holistic_trace_analysis_says_the_same_but_for_its_rounding() -> None:
    (found,) = device_figures(case_of_trace("ddp"))
    # As counted from the file, nanosecond by nanosecond.
    assert (found.operations, found.seconds, found.idle_seconds) == (842, 0.650741473, 0.583905775)
    assert (found.compute_seconds, found.non_compute_seconds) == (0.020733021, 0.046102677)
    assert (found.collective_seconds, found.hidden_collective_seconds) == (0.046876493, 0.001410705)
    # HTA 0.5.0 with all steps, in microseconds that it rounds down, a start and a duration each.
    at_most = 2e-6 * found.operations
    assert found.idle_seconds == pytest.approx(584_696e-6, abs=at_most)
    assert found.compute_seconds == pytest.approx(20_214e-6, abs=at_most)
    assert found.hidden_collective_share == pytest.approx(0.0290, abs=0.003)


def test_copies_and_fills_are_neither_computation_nor_collectives() -> None:
    fill = queue_of([(4, 6)])[0]._replace(operator="Memset (Device)")
    (found,) = device_figures(made_case(*queue_of([(0, 2)]), *queue_of([(2, 4)], "copy"), fill))
    assert (found.compute_seconds, found.non_compute_seconds, found.idle_seconds) == (2, 4, 0)
    assert (found.collective_seconds, found.hidden_collective_share) == (0, None)


def test_one_name_of_two_kinds_is_two_rows_and_the_longest_come_first() -> None:
    spans = [*queue_of([(0, 1), (1, 3)]), *queue_of([(3, 9)], "copy")]
    found = operations_by_name(made_case(*(span._replace(name="same") for span in spans)))
    assert [
        (one.kind, one.operations, one.seconds, one.mean_seconds, one.longest_seconds)
        for one in found
    ] == [
        ("copy", 1, 6, 6, 6),
        ("compute", 2, 3, 1.5, 2),
    ]
    assert [one.share for one in found] == [6 / 9, 3 / 9]
    assert operations_by_name(made_case()) == ()


def test_each_gap_is_of_its_kind_since_all_before_it_had_ended() -> None:
    program = (
        Program()
        .run(0, 10, "a", 0)
        .run(2, 4, "b", 1)
        .run(13, 20, "kernel", 10)
        .run(50, 60, "other", 19)
    )
    program.run(64, 70, "host", 62).run(74, 76, "unknown").run(76, 80, "none", 76)
    (found,) = queue_idleness(program.case, kernel_delay=4)
    seconds = (
        found.host_wait_seconds,
        found.kernel_wait_seconds,
        found.other_wait_seconds,
        found.idle_seconds,
    )
    assert seconds == (4e-9, 3e-9, 34e-9, 41e-9)
    assert (found.host_waits, found.kernel_waits, found.other_waits) == (1, 1, 2)


def test_holistic_trace_analysis_says_the_same_of_whole_microseconds() -> None:
    # HTA 0.5.0, get_idle_time_breakdown(consecutive_kernel_delay=30), in microseconds as the trace
    # has them.
    one, other = queue_idleness(case_of_trace("two_streams"))
    assert (one.host_wait_seconds, one.kernel_wait_seconds, one.other_wait_seconds) == (
        12.855007,
        104e-6,
        0,
    )
    assert (other.host_wait_seconds, other.kernel_wait_seconds, other.other_wait_seconds) == (
        12.011718,
        3e-6,
        0,
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("two_streams", {"stream 7": (182, 3.346154, 18), "stream 20": (14, 0.642857, 2)}),
        ("ddp", {"stream 7": (1642, 0.530451, 4), "stream 40": (42, 0.5, 1)}),
    ],
)
def test_hta_counts_the_same_lengths(
    name: str, expected: dict[str, tuple[int, float, int]]
) -> None:
    # HTA 0.5.0, get_queue_length_summary: count, mean and maximum.
    found = {
        one.queue: (2 * one.operations, round(one.mean_length_at_changes, 6), one.longest)
        for one in queue_lengths(case_of_trace(name))
    }
    assert found == expected


def test_a_length_lasts_from_launch_to_start() -> None:
    program = (
        Program().run(4, 5, "a", 0).run(8, 9, "b", 2).run(9, 10, "no launch").run(12, 13, "c", 12)
    )
    (found,) = queue_lengths(program.case)
    # One from 0 to 2, two to 4, one to 8, none to 12, when one is launched and starts.
    assert (found.operations, found.longest, found.mean_length) == (3, 2, 10 / 12)
    assert found.mean_length_at_changes == (1 + 2 + 1 + 0 + 1 + 0) / 6
    assert queue_lengths(made_case(*queue_of([(0, 1)]))) == ()
