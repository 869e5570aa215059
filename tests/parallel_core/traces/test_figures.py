"""The figures of a timeline: what they are for timelines whose figures are known, and what always
holds.

The time of each device, its operations by name, and what its queues waited for are those by the
definitions, and as Holistic Trace Analysis counts real traces.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import HOST_DEVICE, Span, Timeline, Window
from parallel_core.traces.case_spans import ALL
from parallel_core.traces.cases import CaseFigures, timeline_figures
from parallel_core.traces.devices import OperationFigures, operations_by_name, queues
from tests.backends.profiling.events import ns
from tests.parallel_core.traces.stored import case_of_trace
from tests.parallel_core.traces.synthetic import (
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

DURATIONS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=15)
"""Pauses and durations of one queue's spans."""


def figures_of_spans(*spans: Span, cases: tuple[Window, ...] = ()) -> CaseFigures:
    """Return the figures of the only case of a timeline."""
    (figures,) = timeline_figures(Timeline("made up", sorted_by_start(spans), cases))
    return figures


def on_host(**calls: Sequence[tuple[float, float]]) -> list[Span]:
    """Return calls of the host by name, each by its start and end in seconds."""
    spans: list[Span] = []
    for name, times in calls.items():
        spans += [span._replace(name=name) for span in queue_of(times, "host", HOST_DEVICE)]
    return spans


def spaced(pauses_and_lengths: list[tuple[int, int]]) -> list[tuple[float, float]]:
    """Return the starts and ends of spans that follow each other, each after its pause."""
    times = []
    end = 0
    for pause, length in pauses_and_lengths:
        start = end + pause
        end = start + length
        times.append((float(start), float(end)))
    return times


def seconds_in(times: list[tuple[float, float]]) -> set[int]:
    """Return the seconds that spans cover, each by its start."""
    covered: set[int] = set()
    for start, end in times:
        covered.update(range(int(start), int(end)))
    return covered


def test_a_case_begins_with_its_first_launch_and_ends_with_its_last_span() -> None:
    timeline = overlap_timeline(products=10, product=1e-3)
    wide = Window("wide", timeline.cases[0].start, timeline.cases[0].end + 500_000)
    (figures,) = timeline_figures(replace(timeline, cases=(wide,)))
    # Ten products, the launch of the first and the end of the wait.
    assert figures.seconds == pytest.approx(10 * 1e-3 + 20e-6 + 5e-6)
    # A launch that has no span of its own begins the case too.
    late = Span("matmul", "compute", FIRST, "compute", ns(5), ns(6), launched=ns(2))
    assert figures_of_spans(late).seconds == 4
    assert figures_of_spans(late, cases=(Window("next", ns(4), ns(7)),)).seconds == 1


def test_the_host_is_not_busy_while_it_waits() -> None:
    program = Program()
    program.call(0, 9, "aten::item", "operator")
    program.call(2, 7, "synchronize", "wait")
    program.run(1, 6, "add", 0)
    case = replace(program.case_by_time, host_calls=program.host_calls)
    nested = CaseFigures(case).queues[-1]
    assert nested.busy_seconds == 4e-9
    assert nested.waiting_seconds == 5e-9

    host = overlap_figures(products=10, product=1e-3, copy=1e-3)[-1].queues[-1]
    assert host.device == HOST_DEVICE
    assert host.busy_seconds == pytest.approx(20 * 20e-6)
    assert host.busy_seconds + host.waiting_seconds == pytest.approx(11e-3 + 20e-6 + 5e-6)


def test_where_the_engine_queues_launches_wait_and_control_returns_early() -> None:
    queued, eager = overlap_figures()[0], overlap_figures(synchronous=True)[0]
    waits = queued.waits
    assert waits is not None
    assert waits.operations == 50
    # The last of 50 products is launched after 49 launches, and starts after 49 products.
    assert waits.longest_seconds == pytest.approx(49 * (4e-3 - 20e-6) + 20e-6)
    assert waits.median_seconds < waits.percentile_90_seconds < waits.longest_seconds
    assert eager.waits is not None
    assert eager.waits.longest_seconds == pytest.approx(20e-6)
    assert overlap_figures(linked=False)[0].waits is None
    assert queued.control_returned_seconds == pytest.approx(50 * 20e-6)
    assert eager.dispatch_fraction == pytest.approx(1, abs=1e-3)
    assert figures_of_spans(*queue_of([(0, 1)])).dispatch_fraction is None


def test_waits_before_the_last_one_keep_control_from_returning() -> None:
    calls = on_host(launch=[(0, 1), (4, 5)], wait=[(1, 4), (5, 8)], waitall=[(8, 10)])
    # A second row of waits does not count as launching.
    second_row = calls[-1]._replace(name="WaitForVar", queue="waits")
    figures = figures_of_spans(*calls, second_row)
    assert figures.control_returned_seconds == 8
    assert figures.dispatch_fraction == 0.8


def test_the_wait_for_idle_devices_after_a_timing_is_no_part_of_it() -> None:
    calls = on_host(launch=[(0, 1), (1, 2)], waitall=[(2, 9), (10, 12)])
    figures = figures_of_spans(*calls, cases=(Window("a case", 0, ns(20)),))
    assert figures.control_returned_seconds == 2
    assert figures.seconds == 9


def test_a_timeline_without_cases_is_one_and_a_case_without_spans_has_none() -> None:
    assert figures_of_spans(*queue_of([(0, 1)])).case == ALL
    assert figures_of_spans().seconds == 0
    assert figures_of_spans().operations == ()

    empty = figures_of_spans(*queue_of([(0, 1)]), cases=(Window("later", ns(5), ns(6)),))
    assert empty.case == "later"
    assert empty.seconds == 0
    assert empty.queues == ()
    assert empty.idle_share == 0


@given(DURATIONS, DURATIONS)
def test_figures_are_what_counting_seconds_gives(
    computations: list[tuple[int, int]], copies: list[tuple[int, int]]
) -> None:
    computing_times, copying_times = spaced(computations), spaced(copies)
    computing, copying = seconds_in(computing_times), seconds_in(copying_times)
    both, either = computing & copying, computing | copying

    figures = figures_of_spans(*queue_of(computing_times), *queue_of(copying_times, "copy", SECOND))

    assert figures.compute_seconds == len(computing)
    assert figures.communication_seconds == len(copying)
    assert figures.hidden_seconds == len(both)
    # A share of nothing is not known.
    hidden_share = hidden_of_shorter = queues_at_once = None
    idle_share = 0.0
    if copying:
        hidden_share = len(both) / len(copying)
    if computing and copying:
        hidden_of_shorter = len(both) / min(len(computing), len(copying))
    if either:
        queues_at_once = pytest.approx((len(computing) + len(copying)) / len(either))
    if figures.seconds:
        idle_share = pytest.approx(1 - len(either) / figures.seconds)
    assert figures.hidden_share == hidden_share
    assert figures.hidden_of_shorter == hidden_of_shorter
    assert figures.queues_at_once == queues_at_once
    assert figures.idle_share == idle_share


@given(DURATIONS)
def test_busy_time_and_gaps_make_up_a_queue(operations: list[tuple[int, int]]) -> None:
    times = [(start, end) for start, end in spaced(operations) if end > start]
    gaps = [start - end for (_, end), (start, _) in itertools.pairwise(times)]
    queues = figures_of_spans(*queue_of(times)).queues
    assert len(queues) == bool(times)
    for queue in queues:
        seconds = times[-1][1] - times[0][0]
        assert queue.busy_seconds + queue.gap_seconds == seconds
        assert queue.busy_share == queue.busy_seconds / seconds
        assert queue.gaps == sum(gap > 0 for gap in gaps)
        assert queue.longest_gap_seconds == max(gaps, default=0)


def test_collectives_count_alone_and_device_by_device() -> None:
    # A copy is no collective, and computation elsewhere hides nothing.
    figures = figures_of_spans(
        *queue_of([(0, 4)], "exchange"),
        *queue_of([(3, 6)], "copy", queue="copy"),
        *queue_of([(1, 2)], queue="compute 2"),
        *queue_of([(0, 9)], device=SECOND),
        *queue_of([(0, 9)], "host", HOST_DEVICE),
    )
    # At once they count once. The exchange lies under its device's computation for a second, and
    # all of the copy under the other device's.
    assert figures.communication_seconds == 6
    assert figures.hidden_share == 4 / 6
    assert figures.parts.exchange_seconds == 4
    assert figures.parts.hidden_exchange_share == 0.25
    assert figures.parts.copy_seconds == 3
    assert figures.parts.hidden_copy_share == 1
    # Three queues of the first device work for 4, 3 and 1 seconds.
    assert figures.queues_at_once == (4 + 3 + 1 + 9) / 9
    assert figures.devices_at_once == (6 + 9) / 9


def test_what_a_device_computes_hides_no_other_device_s_exchange() -> None:
    """While one exchanges, the other computes; together they would seem to hide everything."""
    figures = figures_of_spans(
        *queue_of([(0, 4)], "exchange", FIRST, "nccl"),
        *queue_of([(4, 8)], device=FIRST),
        *queue_of([(0, 4)], device=SECOND),
        *queue_of([(4, 8)], "exchange", SECOND, "nccl"),
    )
    # Of each device, and not of both added up.
    assert figures.parts.exchange_seconds == 4
    assert figures.parts.hidden_exchange_seconds == 0
    assert figures.hidden_share == 0
    assert figures.parts.compute_seconds == 8
    assert figures.parts.exposed_exchange_seconds == 0


def test_a_device_that_never_computes_exchanges_for_the_others() -> None:
    """As MXNet's local key-value store does: it sums on a device of its own."""
    spans = (*queue_of([(0, 4)], "exchange", FIRST), *queue_of([(3, 9)], device=SECOND))
    assert figures_of_spans(*spans).parts.hidden_exchange_share == 0.25


def test_a_copy_within_a_device_is_its_work_and_no_transfer() -> None:
    def copy(name: str, start: int, end: int) -> Span:
        return Span(name, "copy", GPU, "stream 7", ns(start), ns(end), operator=name)

    figures = figures_of_spans(
        Span("gemm", "compute", GPU, "stream 13", ns(0), ns(3), operator="gemm"),
        copy("Memcpy DtoD (Device -> Device)", 0, 5),
        copy("Memcpy HtoD (Pinned -> Device)", 5, 7),
        copy("Memcpy PtoP (Device -> Device)", 8, 10),
    )
    assert figures.parts.copy_seconds == 4
    assert figures.parts.hidden_copy_seconds == 0
    assert figures.parts.exposed_copy_seconds == 4
    # The copy within the device lasts longer than the multiplication beside it.
    assert figures.parts.compute_seconds == 5


def test_a_cpu_s_copies_are_work_in_all_figures() -> None:
    figures = figures_of_spans(
        *queue_of([(0, 3)], "copy", "cpu"), *queue_of([(2, 4)], "exchange", "cpu", "gloo")
    )
    assert figures.compute_seconds == 3
    assert figures.parts.compute_seconds == 3
    assert figures.hidden_share == 0.5
    assert figures.parts.hidden_exchange_share == 0.5
    assert figures.parts.hidden_copy_share is None


def test_holistic_trace_analysis_says_the_same_but_for_its_rounding() -> None:
    parts = CaseFigures(case_of_trace("ddp")).parts
    # As counted from the file, nanosecond by nanosecond.
    assert parts.exchange_seconds == 0.046876493
    assert parts.hidden_exchange_share == 0.001410705 / 0.046876493
    # HTA 0.5.0 with all steps, in microseconds that it rounds down.
    assert parts.hidden_exchange_share == pytest.approx(0.0290, abs=0.003)


def test_filling_memory_hides_no_exchange() -> None:
    exchange = queue_of([(0, 4)], "exchange", queue="nccl")
    (fill,) = queue_of([(2, 4)])
    parts = figures_of_spans(
        *queue_of([(0, 1)]), fill._replace(operator="Memset (Device)"), *exchange
    ).parts
    assert parts.exchange_seconds == 4
    assert parts.hidden_exchange_seconds == 1


def test_one_name_of_two_kinds_is_two_rows_and_the_longest_come_first() -> None:
    spans = [*queue_of([(0, 1), (1, 3)]), *queue_of([(3, 9)], "copy")]
    same_name = [span._replace(name="same") for span in spans]

    assert operations_by_name(made_case(*same_name)) == (
        OperationFigures("same", "copy", 1, 6, 6, 6, 6 / 9),
        OperationFigures("same", "compute", 2, 3, 1.5, 2, 3 / 9),
    )


def test_each_gap_is_of_its_kind_since_all_before_it_had_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queues, "KERNEL_DELAY", 4)
    program = Program()
    program.run(0, 10, "a", 0)
    program.run(2, 4, "b", 1)
    program.run(13, 20, "kernel", 10)
    program.run(50, 60, "other", 19)
    program.run(64, 70, "host", 62)
    program.run(74, 76, "unknown")
    program.run(76, 80, "none", 76)

    (queue,) = queues.queue_idleness(program.case)

    # "host" was launched when the queue was empty, "kernel" in time, and begins within the delay.
    assert waits_of(queue) == (4e-9, 3e-9, (30 + 4) * 1e-9)
    assert queue.idle_seconds == 41e-9


def waits_of(queue: queues.QueueIdleness) -> tuple[float, float, float]:
    """Return for how long a queue waited for the host, for its device, and for others."""
    return (queue.host_wait_seconds, queue.kernel_wait_seconds, queue.other_wait_seconds)


def test_holistic_trace_analysis_says_the_same_of_whole_microseconds() -> None:
    # HTA 0.5.0, get_idle_time_breakdown(consecutive_kernel_delay=30), in microseconds as the trace
    # has them.
    first, second = queues.queue_idleness(case_of_trace("two_streams"))
    assert waits_of(first) == (12.855007, 104e-6, 0)
    assert waits_of(second) == (12.011718, 3e-6, 0)
