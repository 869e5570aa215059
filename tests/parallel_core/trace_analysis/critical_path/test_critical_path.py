"""The critical path, with and without nested calls: it tiles a case, and goes through what held it
up.
"""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import Span
from backends.profiling.timeline import HostRole, KnownWait, QueueWait
from parallel_core.trace_analysis.case_spans import CaseSpans, cases_of
from parallel_core.trace_analysis.critical_path import critical_path, path_summary
from tests.parallel_core.trace_analysis.synthetic import GPU, Program, overlap_timeline
from tests.parallel_core.trace_analysis.traces import LINKED, case_of_trace


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draw a program that launches on two queues, waits, and lets queues wait, as a device would
    run it.

    Some operations take no time, and some have no known launch.
    """
    program = Program()
    now = 0
    free_at = {"stream 7": 0, "stream 9": 0}
    for _ in range(draw(st.integers(0, 25))):
        action = draw(st.sampled_from(["7", "9", "copy", "wait", "let"]))
        call_start = now + draw(st.integers(0, 5))
        call_end = call_start + 1
        if action == "wait":
            call_end = max(call_end, *free_at.values())
            program.call(call_start, call_end, "wait", "wait for a device")
        elif action == "let":
            program.call(call_start, call_end, "let wait", "let a queue wait")
            free_at["stream 9"] = max(free_at.values())
        else:
            # A copy blocks the call that launches it.
            is_copy = action == "copy"
            queue = "stream 7" if is_copy else f"stream {action}"
            start = max(call_start + draw(st.integers(0, 3)), free_at[queue])
            end = start + draw(st.integers(0, 9))
            free_at[queue] = end
            call_end = end + 1 if is_copy else call_start + 2
            launched = call_start if draw(st.booleans()) else None
            program.call(call_start, call_end, f"launch {action}", "copy" if is_copy else "call")
            program.run(start, end, action, launched, queue)
        now = call_end
    return program


@given(programs())
def test_a_path_tiles_the_case_up_to_its_last_operation_and_its_figures_are_its_segments(
    program: Program,
) -> None:
    check(program.case)
    check(program.case_by_time)


@pytest.mark.parametrize("name", LINKED)
def test_the_path_of_a_real_trace_has_no_holes(name: str) -> None:
    check(case_of_trace(name))


def check(case: CaseSpans) -> None:
    """Check what holds of every critical path."""
    path = critical_path(case)
    ends = [span.end for span in case.spans if span.kind != "host" and span.end > span.start]
    if not ends:
        assert not path
        return
    check_segments(case, path, max(ends))
    check_summary(case, path)


def check_segments(case: CaseSpans, path: Sequence[Span], last_end: int) -> None:
    """Check that a path goes forward from a case's start to the end of its last operation, and
    that an operation is on it as a whole, and once.
    """
    assert path[-1].end == last_end
    for segment in path:
        assert case.start <= segment.start < segment.end
    for segment, following in itertools.pairwise(path):
        assert segment.end <= following.start
    operations = [segment for segment in path if segment.kind != "host"]
    assert len(set(operations)) == len(operations)
    assert set(operations) <= set(case.spans)


def check_summary(case: CaseSpans, path: Sequence[Span]) -> None:
    """Check that the figures of a path are those of its segments."""
    summary = path_summary(case)
    assert summary.seconds == (path[-1].end - case.start) / 1e9
    shares_of_parts = sum(part.share for part in summary.parts)
    assert shares_of_parts + summary.idle_share == pytest.approx(1)
    assert sum(part.segments for part in summary.parts) == len(path)
    nanoseconds = sum(segment.end - segment.start for segment in path)
    assert sum(part.seconds for part in summary.parts) == pytest.approx(nanoseconds / 1e9)
    if summary.causes:
        delays = summary.causes.launch_delay_seconds + summary.causes.queue_delay_seconds
        assert summary.idle_seconds >= delays * (1 - 1e-12)


def path_of(case: CaseSpans) -> str:
    """Return a path in words: when each segment began, in nanoseconds, and its name or "idle"."""
    segments = []
    reached = case.start
    for span in critical_path(case):
        if span.start > reached:
            segments.append(f"{reached} idle")
        segments.append(f"{span.start} {span.name}")
        reached = span.end
    return ", ".join(segments)


def shares(case: CaseSpans) -> dict[str, float]:
    """Return the share of the critical path that each name has."""
    return {part.name: part.share for part in path_summary(case).parts}


@pytest.mark.parametrize("linked", [True, False])
def test_the_host_is_the_path_where_it_is_slow_but_not_its_calls_that_compute(linked: bool) -> None:
    slow_host = Program()
    for start in range(0, 1000, 100):
        slow_host.call(start, start + 100, "launch add")
        slow_host.run(start + 105, start + 130, "add", launched=start if linked else None)
    assert shares(slow_host.case_by_time)["launch add"] > 0.9

    *_, both = cases_of(overlap_timeline(synchronous=True, linked=linked))
    share_by_name = shares(both)
    assert share_by_name["matmul"] + share_by_name["copy"] > 0.99


BY_TIME = {
    "after a wait comes what was waited for": (
        Program()
        .call(0, 1, "launch a")
        .run(2, 10, "a", 0)
        .call(1, 11, "wait")
        .call(12, 13, "b")
        .run(14, 20, "B", 12),
        "0 launch a, 1 idle, 2 a, 10 wait, 11 idle, 12 b, 13 idle, 14 B",
    ),
    "what ended last, wherever it ran": (
        Program().run(0, 3, "early").run(0, 5, "late", queue="stream 9").run(6, 9, "last"),
        "0 late, 5 idle, 6 last",
    ),
    "of ends that cannot be told apart, the queue's own": (
        Program().run(0, 5, "mine").run(0, 6, "other", queue="stream 9").run(6, 9, "last"),
        "0 mine, 5 idle, 6 last",
    ),
    "a call that launched something else held nothing up": (
        Program()
        .call(0, 1, "launch a")
        .run(1, 3, "a", 0)
        .call(1, 5, "launch b")
        .run(6, 7, "last", 0),
        "0 launch a, 1 a, 3 idle, 6 last",
    ),
    "operations without length": (Program().run(1, 1, "a").run(1, 1, "b").run(1, 2, "c"), "1 c"),
    "nothing": (Program().run(1, 1, "a"), ""),
    "launched by no call": (Program().run(0, 2, "a").call(1, 1, "launch b"), "0 a"),
    "a call that was under way did not launch what ran on after it": (
        Program().call(0, 1, "launch a").run(1, 3, "a").call(2, 5, "launch b").run(4, 9, "last"),
        "0 launch a, 1 a, 3 idle, 4 last",
    ),
}
NESTED = {
    "a wait for what was over is the host's own time": (
        Program().call(0, 1, "launch a").run(1, 2, "a", 0).call(3, 9, "wait", "wait for a device"),
        "0 launch a, 1 between calls, 3 wait, 9 launch b, 10 b",
    ),
    "what is launched after a wait began was not waited for": (
        Program()
        .call(0, 1, "launch a")
        .run(1, 5, "a", 0)
        .call(2, 9, "wait", "wait for a device")
        .call(6, 7, "launch elsewhere", thread="Python 2")
        .run(7, 8, "elsewhere", 6, "stream 9"),
        "0 launch a, 1 a, 5 wait, 9 launch b, 10 b",
    ),
    "a busy queue is waited for, and not the launch": (
        Program()
        .call(0, 1, "launch a")
        .run(1, 8, "a", 0)
        .call(5, 6, "launch x")
        .run(8, 11, "x", 5),
        "0 launch a, 1 a, 8 x, 11 b",
    ),
    "the queues of a graph wait for each other": (
        Program().call(0, 1, "launch graph").run(1, 5, "a", 0).run(12, 14, "c", 0, "stream 9"),
        "0 launch graph, 1 a, 5 idle, 12 c",
    ),
    "a copy that blocks its call is waited for": (
        Program()
        .call(0, 1, "launch a")
        .run(1, 5, "a", 0)
        .call(2, 8, "copy_", "copy")
        .run(6, 7, "copy", 2),
        "0 launch a, 1 a, 5 idle, 6 copy, 7 copy_, 8 between calls, 9 launch b, 10 b",
    ),
    "what was launched before the recording is waited for too": (
        Program().run(1, 8, "before").call(0, 9, "wait", "wait for a device"),
        "1 before, 8 wait, 9 launch b, 10 b",
    ),
    "backward is waited for by the thread that called it": (
        Program()
        .call(0, 1, "aten::mm", "operator")
        .call(0, 1, "launch a")
        .run(1, 2, "a", 0)
        .call(1, 8, "## backward ##", "annotation")
        .call(3, 7, "MmBackward0", "operator", "Python 2"),
        (
            "0 launch a, 1 between calls, 3 MmBackward0, 7 ## backward ##, 8 between calls, "
            "9 launch b, 10 b"
        ),
    ),
    "an event of another century changes nothing": (
        Program()
        .call(-(2**61), -(2**61) + 1, "long ago")
        .call(1, 2, "elsewhere", thread="Python 2"),
        "9 launch b, 10 b",
    ),
}


@pytest.mark.parametrize(("program", "path"), BY_TIME.values(), ids=BY_TIME)
def test_by_time_the_path_goes_through(program: Program, path: str) -> None:
    assert path_of(program.case_by_time) == path


@pytest.mark.parametrize(("program", "path"), NESTED.values(), ids=NESTED)
def test_with_nested_calls_the_path_goes_through(program: Program, path: str) -> None:
    # A last operation is added, which lets the path go through what came before.
    last_end = max((span.end for span in program.spans), default=0)
    whole = Program(list(program.calls), list(program.spans))
    if last_end < 12:
        whole.call(9, 10, "launch b")
        whole.run(max(10, last_end), 15, "b", 9)
    assert path_of(whole.case) == path


@pytest.mark.parametrize("role", ["wait for a device", "wait for a queue", "wait for an event"])
def test_what_bounds_a_path_is_told_apart(role: HostRole) -> None:
    program = Program()
    program.call(0, 1, "launch a").run(2, 10, "a", 0)
    program.call(1, 11, "synchronize", role)
    program.call(12, 13, "launch b").run(14, 20, "b", 12)
    program.call(14, 15, "launch c").run(21, 23, "c", 14)

    assert path_of(program.case) == (
        "0 launch a, 1 idle, 2 a, 10 synchronize, 11 between calls, 12 launch b, 13 idle, 14 b, "
        "20 idle, 21 c"
    )
    causes = path_summary(program.case).causes
    assert causes is not None
    assert causes.compute_seconds == 16e-9
    assert causes.host_seconds == 3e-9
    assert causes.waiting_seconds == 1e-9
    assert causes.launch_delay_seconds == 2e-9
    assert causes.queue_delay_seconds == 1e-9


def test_a_queue_that_was_let_wait_goes_on_with_what_came_before_the_event() -> None:
    program = Program()
    program.call(0, 1, "launch a").run(1, 10, "a", 0)
    program.call(2, 3, "launch other").run(10, 12, "other", 2)
    program.call(4, 5, "launch b").run(13, 20, "b", 4, "stream 9")
    # Nothing let the queue wait: b was held up by its launch alone.
    assert path_of(program.case) == (
        "0 launch a, 1 between calls, 2 launch other, 3 between calls, 4 launch b, 5 idle, 13 b"
    )
    # Without records, that which ended last.
    program.call(3, 4, "let wait", "let a queue wait")
    assert path_of(program.case) == "0 launch a, 1 a, 10 other, 12 idle, 13 b"
    # Whether other ends later does not matter: it was launched after the event.
    program.queue_waits.append(QueueWait(3, (GPU, "stream 9"), (GPU, "stream 7"), 1))
    assert path_of(program.case) == "0 launch a, 1 a, 10 idle, 13 b"


@pytest.mark.parametrize(
    ("known_wait", "awaited_end"),
    [
        (KnownWait(GPU), 9),
        (KnownWait(GPU, "stream 7"), 8),
        (KnownWait(GPU, "stream 7", recorded=0), 5),
    ],
    ids=["for a device", "for a queue", "for an event of a queue"],
)
def test_a_wait_that_is_known_is_not_taken_for_another_s(
    known_wait: KnownWait, awaited_end: int
) -> None:
    program = Program()
    program.call(0, 1, "launch a").run(1, 5, "a", 0)
    program.call(1, 2, "launch more").run(5, 8, "more", 1)
    program.call(2, 3, "launch long").run(3, 9, "long", 2, "stream 9")
    program.call(3, 10, "synchronize", "wait for a queue")
    program.call(10, 11, "launch b").run(11, 12, "b", 10)
    program.known["synchronize"] = known_wait
    assert f", {awaited_end} synchronize, 10 launch b, 11 b" in path_of(program.case)


def test_h100_s_path_is_what_walking_event_by_event_gave() -> None:
    causes = path_summary(case_of_trace("h100_qwen")).causes
    assert causes is not None
    assert causes.compute_seconds + causes.copy_seconds == pytest.approx(0.015988184)
    assert causes.host_seconds == 0.003233247
    assert causes.waiting_seconds == 1.1738e-05
    assert causes.launch_delay_seconds == 3.737e-06
    assert causes.queue_delay_seconds == 0.000830267


def test_the_difference_to_hta_s_path_is_explained_to_the_microsecond() -> None:
    # HTA 0.5.0 finds a path of 2,401 µs: 2,337 µs of the host, 28 of launching, 36 of a kernel and
    # 2 of a copy.
    case = case_of_trace("event_sync")
    between_calls = [span for span in critical_path(case) if span.name == "between calls"]
    between_microseconds = sum(span.end - span.start for span in between_calls) / 1000
    # It gives no weight to the host's time between operators, nor to the 16 µs from the end of the
    # last copy to that of the call that waits for it, and it goes on to the host's last call, the 4
    # µs of cudaEventElapsedTime.
    path_microseconds = path_summary(case).seconds * 1e6
    assert path_microseconds - between_microseconds - 16 + 4 == pytest.approx(2401)
