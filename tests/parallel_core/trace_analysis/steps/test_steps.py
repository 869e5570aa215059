"""Cases as arrays of whole nanoseconds, arithmetic of intervals, held against sets of whole hours,
and figures by step.

Of a real trace, which steps are unlike the others, and what a step consists of.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.profiling import HOST_DEVICE, Span, Timeline, Window
from backends.profiling.timeline import UNKNOWN
from parallel_core.system.errors import RequestError
from parallel_core.trace_analysis.case_spans import (
    CaseSpans,
    cases_of,
    clip,
    gaps,
    intersection,
    total_length,
    union,
)
from parallel_core.trace_analysis.parts import PARTS, Parts, account_of, over_steps, share_of
from parallel_core.trace_analysis.steps.figures import (
    StepsFigures,
    annotations,
    launched_in,
    numbered_step,
    only_step,
    steps,
)
from tests.backends.profiling.events import ns
from tests.parallel_core.trace_analysis.synthetic import FIRST, GPU, SECOND, made_case, queue_of
from tests.parallel_core.trace_analysis.traces import case_of_trace

MS = 1_000_000
HOUR = st.integers(0, 10)
RAW = st.lists(st.tuples(HOUR, HOUR), max_size=12)
"""Starts and ends as they come: overlapping, touching, empty, some before they begin."""


def array(raw: list[tuple[int, int]]) -> np.ndarray:
    return np.array(raw, dtype=np.int64).reshape(-1, 2)


def hours(intervals: np.ndarray) -> set[int]:
    """List the hours that some intervals cover, by counting."""
    return {hour for start, end in intervals for hour in range(int(start), int(end))}


def is_set(intervals: np.ndarray) -> bool:
    """Tell whether these are sorted, not empty, and neither overlap nor touch."""
    bounds = intervals.ravel()
    return (
        intervals.shape == (len(bounds) // 2, 2)
        and intervals.dtype == np.int64
        and bool(np.all(np.diff(bounds) > 0))
    )


@settings(max_examples=40)
@given(RAW, RAW, HOUR, HOUR)
def test_arithmetic_of_intervals_is_that_of_sets_of_hours(
    one: list[tuple[int, int]], other: list[tuple[int, int]], start: int, end: int
) -> None:
    a, b = union(array(one)), union(array(other))
    either, both = union(a[::-1], b), intersection(a, b)
    inside, free = clip(a, start, end), gaps(a, start, end)
    assert all(map(is_set, (a, either, both, inside, free)))
    assert hours(a) == hours(array(one))
    assert total_length(a) == len(hours(a))
    assert hours(either) == hours(a) | hours(b)
    assert hours(both) == hours(a) & hours(b)
    assert hours(inside) == hours(a) & set(range(start, end))
    assert hours(free) == set(range(start, end)) - hours(a)


@pytest.mark.parametrize(
    ("offset", "length", "resolution"),
    [(7, 4_000_000, 1000), (7, 4100, 100), (7, 4110, 10), (7, 4111, 1), (0, 0, 1000)],
)
def test_the_resolution_is_what_all_times_are_whole_in_wherever_they_begin(
    offset: int, length: int, resolution: int
) -> None:
    spans = (
        Span("x", "compute", FIRST, "compute", at, at + length)
        for at in (offset, offset + 5_000_000)
    )
    assert made_case(*spans).resolution == resolution


def test_times_are_whole_numbers_also_in_traces_of_years() -> None:
    year = 31_536_000 * 10**9
    case = made_case(
        *(Span("x", "compute", FIRST, "compute", *at) for at in ((1, 2, 0), (year + 3, year + 4)))
    )
    assert (case.start, case.end, case.nanoseconds) == (0, year + 4, year + 4)
    assert {times.dtype for times in (case.spans.starts, case.spans.ends, case.spans.launched)} == {
        np.dtype(np.int64)
    }
    assert case.spans.launched.tolist() == [0, UNKNOWN]
    assert case.since.tolist() == [0, year + 3]


def test_queues_are_in_the_order_of_a_case_s_first_spans() -> None:
    spans = tuple(
        Span(name, "compute", FIRST, name, 10 * n, 10 * n + 5) for n, name in enumerate("abcbca")
    )
    (case,) = cases_of(Timeline("made up", spans, (Window("the second half", 30, 60),)))
    assert [queue for _, queue in case.spans.queues] == ["b", "c", "a"]
    assert case.spans == spans[3:]


def test_a_step_without_spans_is_as_long_as_it_was_marked() -> None:
    (case,) = cases_of(Timeline("made up", (), annotations=(Window("ProfilerStep#7", 70, 80),)))
    assert (case.start, case.end) == (70, 80)


HOST = queue_of([(0, 1)], "host", HOST_DEVICE)


def of(case: CaseSpans) -> StepsFigures:
    found = steps(case)
    assert found is not None
    return found


def annotated(*marked: tuple[str, float, float], spans: Sequence[Span] = HOST) -> CaseSpans:
    windows = tuple(Window(name, ns(start), ns(end)) for name, start, end in marked)
    return replace(made_case(*spans), annotations=windows)


def launched(at: float, *spans: Span) -> list[Span]:
    return [span._replace(launched=ns(at)) for span in spans]


def numbered(*lengths: float, apart: float) -> CaseSpans:
    return annotated(
        *((f"ProfilerStep#{n}", apart * n, apart * n + one) for n, one in enumerate(lengths))
    )


def test_the_steps_of_a_real_trace_are_as_counted_from_the_file() -> None:
    found = of(case_of_trace("ddp"))
    counted = (
        (
            "ProfilerStep#4",
            324,
            0.222442191,
            0.20618392,
            0.018756924,
            0.006934688,
            0.011989021,
            0.000442811,
        ),
        (
            "ProfilerStep#5",
            194,
            0.219726905,
            0.208348468,
            0.018449604,
            0.00626356,
            0.012300029,
            0.000207839,
        ),
        (
            "ProfilerStep#6",
            324,
            0.224936243,
            0.209042858,
            0.02962917,
            0.007534773,
            0.022587443,
            0.000760055,
        ),
    )
    names = ("seconds", "device_seconds", "busy_seconds", "compute_seconds", "collective_seconds")
    for one, (name, operations, *seconds) in zip(found.steps, counted, strict=True):
        assert (one.name, one.operations) == (name, operations)
        assert [getattr(one, name) for name in (*names, "hidden_collective_seconds")] == seconds
    for typical in found.typical:
        values = [getattr(step, typical.quantity) for step in found.steps]
        assert typical.median_seconds == median(values)
        assert typical.mad_seconds == pytest.approx(
            median(abs(value - median(values)) for value in values)
        )
    # NCCL waited for another rank in the last step.
    assert ("ProfilerStep#6", "collective_seconds") in [
        (one.step, one.quantity) for one in found.outliers
    ]
    assert {one.step for one in found.outliers} == {"ProfilerStep#6"}


def test_a_step_is_an_outlier_beyond_what_the_others_differ_by() -> None:
    def outliers(*lengths: float) -> list[tuple[str, float | None]]:
        found = of(numbered(*lengths, apart=100)).outliers
        return [(one.step, one.ratio) for one in found if one.quantity == "seconds"]

    assert outliers(10, 10, 10, 20) == [("ProfilerStep#3", 2)]
    assert outliers(8, 9, 10, 11, 12, 17) == []
    assert outliers(10, 10, 10, 10.1) == []
    assert outliers(10, 90) == []


def test_annotations_that_repeat_are_steps_if_there_are_no_others() -> None:
    marked = (
        ("load", 0, 1),
        ("iteration 1", 1, 5),
        ("forward", 2, 3),
        ("iteration 2", 5, 9),
        ("forward", 6, 7),
    )
    assert [one.name for one in of(annotated(*marked)).steps] == ["iteration 1", "iteration 2"]
    assert steps(annotated(("load", 0, 1))) is None
    assert steps(annotated(("nccl:all_reduce", 0, 1), ("nccl:all_reduce", 1, 2))) is None
    assert steps(annotated()) is None


def test_annotations_are_added_up_by_name_but_for_their_number() -> None:
    marked = (("step 1", 0, 4), ("step 2", 4, 6), ("forward", 0, 1))
    one, other = annotations(
        annotated(
            *marked, spans=launched(0, *queue_of([(1, 3)])) + launched(5, *queue_of([(5, 6)]))
        )
    )
    assert (one.name, one.annotations, one.seconds, one.mean_seconds) == ("step", 2, 6, 3)
    assert (one.operations, one.busy_seconds) == (2, 3)
    assert (other.name, other.operations, other.busy_seconds) == ("forward", 1, 2)


SPANS = (
    Span("launch", "host", HOST_DEVICE, "Python", 5, 9),
    Span("late", "compute", GPU, "stream 7", 120, 180, 60),
    Span("unlinked", "compute", GPU, "stream 7", 150, 160),
    Span("second", "compute", GPU, "stream 7", 200, 240, 100),
)


def in_steps(*names: str) -> Timeline:
    marked = tuple(Window(name, 100 * n, 100 * n + 100) for n, name in enumerate(names))
    return Timeline("torch", SPANS, annotations=marked)


@pytest.mark.parametrize(
    "names", [("ProfilerStep#7", "ProfilerStep#8"), ("epoch 1, step 7", "epoch 1, step 8")]
)
def test_an_operation_belongs_to_the_step_that_launched_it(names: tuple[str, str]) -> None:
    timeline = in_steps(*names)
    first, second = (numbered_step(timeline, number) for number in (7, 8))
    assert (first.name, second.name) == names
    launched_first = timeline.columns.select(launched_in(timeline.columns, first))
    launched_second = timeline.columns.select(launched_in(timeline.columns, second))
    assert [span.name for span in launched_first] == ["launch", "late"]
    assert [span.name for span in launched_second] == ["unlinked", "second"]


def test_a_step_is_cut_out_with_what_the_devices_had_still_to_do() -> None:
    timeline = in_steps("ProfilerStep#7", "ProfilerStep#8")
    first = only_step(timeline, numbered_step(timeline, 7))
    assert [span.name for span in first.spans] == ["launch", "late"]
    second = only_step(timeline, numbered_step(timeline, 8))
    assert [span.name for span in second.spans] == ["late", "unlinked", "second"]
    assert [one.name for one in second.annotations] == ["ProfilerStep#8"]
    assert len(second.notes) == len(first.notes) + 1


@pytest.mark.parametrize("behind", [0, 1, 2, 5])
def test_a_device_that_is_behind_does_not_wait_in_a_step_that_is_cut_out(behind: int) -> None:
    # Each step launches 5 ms of work, and the device begins it some steps later.
    starts = [(5 + 5 * (n + behind)) * MS for n in range(12)]
    spans = [
        Span("gemm", "compute", GPU, "stream 7", start, start + 5 * MS, 5 * n * MS)
        for n, start in enumerate(starts)
    ]
    marked = tuple(Window(f"ProfilerStep#{n}", 5 * n * MS, 5 * (n + 1) * MS) for n in range(12))
    timeline = Timeline("torch", spans, annotations=marked)
    (case,) = cases_of(only_step(timeline, numbered_step(timeline, 6)))
    assert case.start == marked[6].start
    assert case.end == starts[6] + 5 * MS
    found = steps(case)
    assert found is not None
    (step,) = found.steps
    assert step.operations == 1
    assert (step.parts.seconds, step.parts.compute_seconds) == (0.005, 0.005)
    assert found.account is not None


def test_a_side_queue_that_fetches_the_next_step_s_data_does_not_begin_it() -> None:
    computing = [
        Span("gemm", "compute", GPU, "stream 7", 100 * n, 100 * n + 100, 100 * n) for n in range(5)
    ]
    # Each step fetches at its beginning, sooner or later, while the device computes the one before.
    fetching = [
        Span("fetch", "copy", GPU, "stream 9", 100 * n - ahead, 100 * n - 10, 100 * n - 70)
        for n, ahead in enumerate((60, 20, 60, 20), 1)
    ]
    marked = tuple(Window(f"ProfilerStep#{n}", 100 * n - 75, 100 * n + 25) for n in range(5))
    spans = sorted((*computing, *fetching), key=lambda span: span.start)
    (case,) = cases_of(Timeline("torch", spans, annotations=marked))
    found = steps(case)
    assert found is not None
    assert [one.parts.seconds * 1e9 for one in found.steps[1:4]] == pytest.approx([100] * 3)


def test_a_step_that_is_not_there_is_refused() -> None:
    with pytest.raises(RequestError, match="no step 3, but 7 to 8"):
        numbered_step(in_steps("ProfilerStep#7", "ProfilerStep#8"), 3)
    for names in ((), ("forward",) * 2, ("gloo:all_reduce",) * 2):
        with pytest.raises(RequestError, match="no steps with numbers"):
            numbered_step(in_steps(*names), 3)


def test_steps_of_devices_that_are_behind_the_host_follow_each_other() -> None:
    spans = (
        *launched(0, *queue_of([(1, 3), (3, 5)])),
        *launched(1, *queue_of([(5, 9)]), *queue_of([(5, 7), (9, 10)], "exchange", SECOND)),
    )
    found = of(annotated(("ProfilerStep#0", 0, 1), ("ProfilerStep#1", 1, 2), spans=spans))
    assert [(one.seconds, one.parts.seconds) for one in found.steps] == [(1, 5), (1, 5)]
    first, second = (one.parts for one in found.steps)
    assert [getattr(first, part) for part in PARTS] == [4, 0, 0, 1]
    assert [getattr(second, part) for part in PARTS] == [4, 1, 0, 0]
    assert (second.exchange_seconds, second.hidden_exchange_share) == (3, pytest.approx(2 / 3))


def test_a_step_that_took_no_time_is_shown_and_not_accounted_for() -> None:
    found, empty = of(numbered(2, 0, 2, apart=2)), of(numbered(0, apart=2))
    assert (len(found.steps), found.account) == (
        3,
        account_of([Parts(2, 0, 0, 0, 2, 0, 0, 0, 0)] * 2),
    )
    assert (len(empty.steps), empty.account) == (1, None)


def test_without_links_devices_that_are_far_behind_leave_no_account_of_a_step() -> None:
    spans = queue_of([(0, 1), (2, 3), (5, 20)])
    assert (
        of(annotated(("ProfilerStep#0", 0, 1), ("ProfilerStep#1", 1, 2), spans=spans)).account
        is None
    )


STEP = Parts(1.0, 0.7, 0.1, 0.0, 0.2, 0.3, 0.2, 0.0, 0.0)


def test_intervals_hold_the_share_and_grow_with_what_others_took() -> None:
    account, loaded = account_of([STEP] * 5), account_of([STEP] * 5, taken=0.3)
    assert account.seconds == 1
    for part in PARTS:
        quiet, wide = account.shares[part], loaded.shares[part]
        assert quiet.estimate == wide.estimate == getattr(STEP, part)
        assert wide.low <= quiet.low <= quiet.estimate <= quiet.high <= wide.high
    # All that others took may have been taken of one part.
    assert loaded.shares["compute_seconds"].low <= 0.4 / 0.7
    assert loaded.shares["compute_seconds"].high == 1
    assert loaded.seconds_interval is not None
    assert loaded.seconds_interval.low < 0.7


def test_of_a_single_step_no_interval_is_known() -> None:
    account = account_of([STEP])
    assert account.seconds_interval is None
    assert {(share.low, share.high) for share in account.shares.values()} == {(0, 1)}
    assert over_steps(share_of("idle_seconds"), [STEP]).estimate == 0.2
