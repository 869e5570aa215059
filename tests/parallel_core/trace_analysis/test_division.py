"""What a traced case's time beyond its bare time went to."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import Span, Timeline
from parallel_core.measurement.result import Case
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.division import Division, divide
from tests.parallel_core.trace_analysis.synthetic import (
    FIRST,
    JOINT,
    SECOND,
    overlap_timeline,
    parallel_timeline,
    queue_of,
    sorted_by_start,
)

DEVICES = (FIRST, SECOND)
TOGETHER = "on all together"


def case_of(seconds: float, bare: float, name: str = "all") -> Case:
    return Case(name, (seconds,) * 3, (seconds / 10,) * 3, bare_seconds=(bare,) * 3)


def divided(timeline: Timeline, bare: float, name: str = "all") -> Division:
    (spans,) = (one for one in cases_of(timeline) if one.name == name)
    found = divide(spans, case_of(spans.seconds, bare, name), DEVICES)
    assert isinstance(found, Division)
    return found


def made(*queues: tuple[Span, ...]) -> Timeline:
    return Timeline("made up", sorted_by_start([span for queue in queues for span in queue]))


TIMES = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)).map(sorted).map(tuple), max_size=5)


@given(TIMES, TIMES, TIMES, TIMES, st.floats(0.01, 20))
def test_the_parts_sum_to_the_time_that_is_not_bare(first, second, copies, calls, bare) -> None:  # type: ignore[no-untyped-def]
    timeline = made(
        queue_of([(0, 1), *first]),
        queue_of(second, device=SECOND),
        queue_of(copies, "copy", SECOND, "copies"),
        queue_of(calls, "host", "host", "Python"),
    )
    found = divided(timeline, bare)
    parts = (found.turns_seconds, found.exposed_seconds, found.idle_seconds)
    assert min(parts) >= -1e-9
    assert sum(parts) + found.interference_seconds == pytest.approx(found.beyond_bare)
    assert found.seconds == pytest.approx(found.bare_seconds + found.beyond_bare)


def test_devices_at_once_leave_nothing_beyond_but_the_launches() -> None:
    found = divided(parallel_timeline(), 50 * 4e-3, TOGETHER)
    assert found.interference_seconds == pytest.approx(0)
    assert (found.turns_seconds, found.exposed_seconds) == pytest.approx((0.02e-3 * 50, 0), abs=1e-6)
    whole, agreement = found.sentences
    assert whole.endswith("are bare; nothing else takes 5 % of it.")
    assert agreement.endswith("they agree within the noise (± 5 %).")


def test_devices_that_take_turns_are_seen() -> None:
    found = divided(made(queue_of([(0, 1), (2, 3)]), queue_of([(1, 2), (3, 4)], device=SECOND)), 2)
    assert (found.turns_seconds, found.exposed_seconds, found.idle_seconds) == (2, 0, 0)
    assert found.sentences[0] == (
        "Of 4.00 s under the profiler 2.00 s are bare; beyond them are 2.00 s in which others computed in turn."
    )


def test_exposed_communication_and_idle_time_are_told_apart() -> None:
    found = divided(made(queue_of([(0, 2), (5, 6)]), queue_of([(1, 4)], "exchange", SECOND)), 3)
    assert (found.turns_seconds, found.exposed_seconds, found.idle_seconds) == (0, 2, 1)


def test_the_longest_piece_may_be_communication() -> None:
    found = divided(made(queue_of([(0, 2)]), queue_of([(1, 5)], "copy", SECOND)), 3.5)
    assert (found.turns_seconds, found.exposed_seconds, found.idle_seconds) == (1, 0, 0)
    assert found.interference_seconds == 0.5


def test_slower_operations_are_interference() -> None:
    timeline = overlap_timeline(stretch=1.25)
    beside = divided(timeline, 50 * 4e-3, JOINT)
    assert beside.interference_seconds == pytest.approx(50 * 1e-3)
    assert beside.sentences[1].endswith("under the profiler, than as one unit.")
    slow_unit = divided(timeline, 0.3, JOINT)
    # No more can be bare than the operations took.
    assert slow_unit.sentences[0].startswith("Of 255 ms under the profiler 250 ms are bare; ")
    assert slow_unit.sentences[1].endswith("and what is said of kernels is doubtful.")


def test_a_repetition_may_be_a_share_of_a_case_that_is_done_several_times() -> None:
    (spans,) = cases_of(made(queue_of([(0, 1)])))
    found = divide(spans, replace(case_of(0.4, 0.3), repeats=5, share=0.5), DEVICES)
    assert isinstance(found, Division)
    assert found.bare_seconds == 0.75


def test_a_repetition_that_the_profiler_slowed_down_is_not_divided() -> None:
    (spans,) = cases_of(made(queue_of([(0, 1.3)])))
    assert isinstance(divide(spans, case_of(1.0, 0.9), DEVICES), Division)
    assert divide(spans, case_of(0.99, 0.9), DEVICES) == "under the profiler it took 1.31 × as long"


@pytest.mark.parametrize(
    ("timeline", "bare", "reason"),
    [
        (made(queue_of([(0, 1)])), (), "it has no bare times"),
        (made(queue_of([(0, 1)], "host", "host")), (1.0,), "its trace shows no operation on a device"),
        (made(queue_of([(0, 1)], device="cpu")), (1.0,), "its trace does not tell the devices apart"),
    ],
)
def test_why_there_is_no_division(timeline: Timeline, bare: tuple[float, ...], reason: str) -> None:
    (spans,) = cases_of(timeline)
    assert divide(spans, replace(case_of(1, 1), bare_seconds=bare), DEVICES) == reason
