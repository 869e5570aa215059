"""Cases as arrays of whole nanoseconds, arithmetic of intervals, held against sets of whole hours,
and figures by step.

Of a real trace, which steps are unlike the others, and what a step consists of.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.profiling import HOST_DEVICE, Span, Timeline, Window
from backends.profiling.timeline import UNKNOWN
from parallel_core.traces.account import (
    PARTS,
    Division,
    Parts,
    account_of,
    over_steps,
    share_of,
)
from parallel_core.traces.case_spans import (
    CaseSpans,
    cases_of,
    clip,
    gaps,
    intersection,
    lengths_within,
    total_length,
    union,
)
from parallel_core.traces.steps.figures import StepsFigures, steps
from tests.backends.profiling.events import ns
from tests.parallel_core.traces.stored import case_of_trace
from tests.parallel_core.traces.synthetic import FIRST, SECOND, made_case, queue_of

HOUR = st.integers(0, 10)
RAW = st.lists(st.tuples(HOUR, HOUR), max_size=12)
"""Starts and ends as they come: overlapping, touching, empty, some before they begin."""


def array(raw: list[tuple[int, int]]) -> np.ndarray:
    """Return intervals as an array with a row for each."""
    return np.array(raw, dtype=np.int64).reshape(-1, 2)


def hours(intervals: np.ndarray) -> set[int]:
    """Return the hours that intervals cover, by counting."""
    covered: set[int] = set()
    for start, end in intervals:
        covered.update(range(int(start), int(end)))
    return covered


def check_is_set(intervals: np.ndarray) -> None:
    """Check that intervals are sorted and not empty, and that they neither overlap nor touch."""
    bounds = intervals.ravel()
    assert intervals.shape == (len(bounds) // 2, 2)
    assert intervals.dtype == np.int64
    assert np.all(np.diff(bounds) > 0)


@settings(max_examples=40)
@given(RAW, RAW, HOUR, HOUR)
def test_arithmetic_of_intervals_is_that_of_sets_of_hours(
    raw_a: list[tuple[int, int]], raw_b: list[tuple[int, int]], start: int, end: int
) -> None:
    a, b = union(array(raw_a)), union(array(raw_b))
    either, both = union(a[::-1], b), intersection(a, b)
    inside, free = clip(a, start, end), gaps(a, start, end)

    for intervals in (a, either, both, inside, free):
        check_is_set(intervals)
    hours_of_window = set(range(start, end))
    assert hours(a) == hours(array(raw_a))
    assert total_length(a) == len(hours(a))
    if start <= end:
        windows = np.array([(start, end), (start, start)])
        assert lengths_within(a, windows).tolist() == [len(hours(a) & hours_of_window), 0]
    assert hours(either) == hours(a) | hours(b)
    assert hours(both) == hours(a) & hours(b)
    assert hours(inside) == hours(a) & hours_of_window
    assert hours(free) == hours_of_window - hours(a)


@pytest.mark.parametrize(
    ("offset", "length", "resolution"),
    [(7, 4_000_000, 1000), (7, 4100, 100), (7, 4110, 10), (7, 4111, 1), (0, 0, 1000)],
)
def test_the_resolution_is_what_all_times_are_whole_in_wherever_they_begin(
    offset: int, length: int, resolution: int
) -> None:
    early = Span("x", "compute", FIRST, "compute", offset, offset + length)
    late = early._replace(start=early.start + 5_000_000, end=early.end + 5_000_000)
    assert made_case(early, late).resolution == resolution


def test_times_are_whole_numbers_also_in_traces_of_years() -> None:
    year = 31_536_000 * 10**9
    early = Span("x", "compute", FIRST, "compute", 1, 2, launched=0)
    late = Span("x", "compute", FIRST, "compute", year + 3, year + 4)
    case = made_case(early, late)
    assert case.start == 0
    assert case.end == year + 4
    assert case.nanoseconds == year + 4
    for times in (case.spans.starts, case.spans.ends, case.spans.launched):
        assert times.dtype == np.int64
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
    assert case.start == 70
    assert case.end == 80


HOST = queue_of([(0, 1)], "host", HOST_DEVICE)


def steps_of(case: CaseSpans) -> StepsFigures:
    """Return the steps of a case that has some."""
    figures = steps(case, Division.of(case))
    assert figures is not None
    return figures


def annotated(*annotations: tuple[str, float, float], spans: Sequence[Span] = HOST) -> CaseSpans:
    """Return a case with annotations, each given by its name, start and end in seconds."""
    windows = tuple(Window(name, ns(start), ns(end)) for name, start, end in annotations)
    return replace(made_case(*spans), annotations=windows)


def launched(at: float, *spans: Span) -> list[Span]:
    """Return spans whose launches were at this second."""
    return [span._replace(launched=ns(at)) for span in spans]


def case_of_lengths(*lengths: float, apart: float) -> CaseSpans:
    """Return a case with numbered steps of these lengths that begin so far apart, in seconds."""
    windows = []
    for number, length in enumerate(lengths):
        start = apart * number
        windows.append((f"ProfilerStep#{number}", start, start + length))
    return annotated(*windows)


# Operations, and seconds: of the host, of work, of exchange, and of what is hidden of that.
COUNTED = {
    "ProfilerStep#4": (324, 0.222442191, 0.018756924, 0.011989021, 0.000442811),
    "ProfilerStep#5": (194, 0.219726905, 0.018449604, 0.012300029, 0.000207839),
    "ProfilerStep#6": (324, 0.224936243, 0.02962917, 0.022587443, 0.000760055),
}


def test_the_steps_of_a_real_trace_are_as_counted_from_the_file() -> None:
    figures = {}
    for step in steps_of(case_of_trace("ddp")).steps:
        exchange = (step.parts.exchange_seconds, step.parts.hidden_exchange_seconds)
        quantities = (step.operations, step.host_seconds, step.busy_seconds, *exchange)
        figures[step.name] = pytest.approx(quantities, abs=1e-12)
    assert figures == COUNTED


def test_outliers_are_told_by_their_quantity() -> None:
    figures = steps_of(case_of_trace("ddp"))
    # NCCL waited for another rank in the last step.
    assert {outlier.step for outlier in figures.outliers} == {"ProfilerStep#6"}
    assert "exchange_seconds" in [outlier.quantity for outlier in figures.outliers]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((10, 10, 10, 20), {"ProfilerStep#3": 2}),
        ((8, 9, 10, 11, 12, 17), {}),
        ((10, 10, 10, 10.1), {}),
        ((10, 90), {}),
    ],
)
def test_a_step_is_an_outlier_beyond_what_the_others_differ_by(
    lengths: tuple[float, ...], expected: dict[str, float]
) -> None:
    outliers = steps_of(case_of_lengths(*lengths, apart=100)).outliers
    in_seconds = [outlier for outlier in outliers if outlier.quantity == "seconds"]
    assert {outlier.step: outlier.ratio for outlier in in_seconds} == expected
    assert len(in_seconds) == len(expected)


def test_annotations_that_repeat_are_steps_if_there_are_no_others() -> None:
    case = annotated(
        ("load", 0, 1),
        ("iteration 1", 1, 5),
        ("forward", 2, 3),
        ("iteration 2", 5, 9),
        ("forward", 6, 7),
    )
    assert [step.name for step in steps_of(case).steps] == ["iteration 1", "iteration 2"]
    for without_steps in (
        annotated(("load", 0, 1)),
        annotated(("nccl:all_reduce", 0, 1), ("nccl:all_reduce", 1, 2)),
        annotated(),
    ):
        assert steps(without_steps, Division.of(without_steps)) is None


def test_steps_of_devices_that_are_behind_the_host_follow_each_other() -> None:
    work_of_first = launched(0, *queue_of([(1, 3), (3, 5)]))
    computing_of_second = launched(1, *queue_of([(5, 9)]))
    exchanging_of_second = launched(1, *queue_of([(5, 7), (9, 10)], "exchange", SECOND))
    case = annotated(
        ("ProfilerStep#0", 0, 1),
        ("ProfilerStep#1", 1, 2),
        spans=work_of_first + computing_of_second + exchanging_of_second,
    )

    first, second = steps_of(case).steps

    assert [getattr(first.parts, part) for part in PARTS] == [4, 0, 0, 1]
    assert [getattr(second.parts, part) for part in PARTS] == [4, 1, 0, 0]
    for step in (first, second):
        assert (step.host_seconds, step.seconds) == (1, 5)
    assert second.parts.exchange_seconds == 3
    assert second.parts.hidden_exchange_share == pytest.approx(2 / 3)


def test_a_step_that_took_no_time_is_shown_and_not_accounted_for() -> None:
    figures = steps_of(case_of_lengths(2, 0, 2, apart=2))
    first, empty_step, last = (step.parts for step in figures.steps)
    assert (first.idle_seconds, empty_step.seconds) == (2, 0)
    assert figures.account == account_of([first, last])

    empty = steps_of(case_of_lengths(0, apart=2))
    assert len(empty.steps) == 1
    assert empty.account is None


STEP = Parts(
    seconds=1.0,
    compute_seconds=0.7,
    exposed_exchange_seconds=0.1,
    exposed_copy_seconds=0.0,
    idle_seconds=0.2,
    exchange_seconds=0.3,
    hidden_exchange_seconds=0.2,
    copy_seconds=0.0,
    hidden_copy_seconds=0.0,
)


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
