"""The path over operations and the host's threads: on programs made up, on real traces, and beside HTA's."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import Span
from backends.profiling.timeline import KnownWait, QueueWait
from parallel_core.trace_analysis.critical_path import critical_path, path_summary
from parallel_core.trace_analysis.figures import figures_of
from tests.parallel_core.trace_analysis.synthetic import GPU, Program
from tests.parallel_core.trace_analysis.traces import counting
from tests.parallel_core.trace_analysis.traces.counting import Event, case_of_trace


def path_of(program: Program) -> list[tuple[str, int, int]]:
    return [(span.name if span else "idle", start, end) for start, end, span in critical_path(program.case)]


def names_of(program: Program) -> list[str]:
    return [name for name, _, _ in path_of(program)]


@pytest.mark.parametrize("role", ["wait for a device", "wait for a queue", "wait for an event"])
def test_the_path_crosses_from_a_wait_to_what_the_host_waited_for(role: str) -> None:
    program = Program().call(0, 1, "launch a").run(2, 10, "a", 0)
    program.call(1, 11, "synchronize", role).call(12, 13, "launch b").run(14, 20, "b", 12)  # type: ignore[arg-type]
    assert path_of(program) == [
        ("launch a", 0, 1),
        ("idle", 1, 2),
        ("a", 2, 10),
        ("synchronize", 10, 11),
        ("between calls", 11, 12),
        ("launch b", 12, 13),
        ("idle", 13, 14),
        ("b", 14, 20),
    ]
    causes = path_summary(program.case).causes
    assert causes is not None
    assert (causes.compute_seconds, causes.host_seconds, causes.waiting_seconds) == (14e-9, 3e-9, 1e-9)
    assert (causes.launch_delay_seconds, causes.queue_delay_seconds) == (2e-9, 0)


def test_a_wait_for_what_was_over_is_the_host_s_own_time() -> None:
    program = Program().call(0, 1, "launch a").run(1, 2, "a", 0).call(3, 9, "synchronize", "wait for a device")
    program.call(9, 10, "launch b").run(10, 12, "b", 9)
    assert names_of(program) == ["launch a", "between calls", "synchronize", "launch b", "b"]


def test_what_is_launched_after_a_wait_began_was_not_waited_for() -> None:
    program = Program().call(0, 1, "launch a").run(1, 5, "a", 0).call(2, 9, "synchronize", "wait for a device")
    program.call(6, 7, "launch elsewhere", thread="Python 2").run(7, 8, "elsewhere", 6, "stream 9")
    program.call(9, 10, "launch b").run(10, 12, "b", 9)
    assert names_of(program) == ["launch a", "a", "synchronize", "launch b", "b"]


def test_an_operation_waits_for_its_busy_queue_and_not_for_its_launch() -> None:
    program = Program().call(0, 1, "launch a").run(1, 10, "a", 0).call(5, 6, "launch b").run(11, 15, "b", 5)
    assert path_of(program) == [("launch a", 0, 1), ("a", 1, 10), ("idle", 10, 11), ("b", 11, 15)]
    causes = path_summary(program.case).causes
    assert causes is not None
    assert (causes.launch_delay_seconds, causes.queue_delay_seconds) == (0, 1e-9)


def test_a_queue_that_was_let_wait_goes_on_with_what_came_before_the_event() -> None:
    program = Program().call(0, 1, "launch a").run(1, 10, "a", 0).call(1, 2, "record")
    program.call(2, 3, "launch other").run(10, 12, "other", 2)
    program.call(3, 4, "let wait", "let a queue wait").call(4, 5, "launch b").run(13, 20, "b", 4, "stream 9")
    # Whether other ends later does not matter: it was launched after the event.
    program.queue_waits.append(QueueWait(3, (GPU, "stream 9"), (GPU, "stream 7"), 1))
    assert path_of(program) == [("launch a", 0, 1), ("a", 1, 10), ("idle", 10, 13), ("b", 13, 20)]


def test_without_records_a_queue_that_may_have_been_let_wait_goes_on_with_what_ended_last() -> None:
    program = Program().call(0, 1, "launch a").run(1, 10, "a", 0)
    waiting = Program(list(program.calls), list(program.spans)).call(2, 3, "let wait", "let a queue wait")
    for one in (program, waiting):
        one.call(4, 5, "launch b").run(11, 20, "b", 4, "stream 9")
    assert names_of(waiting) == ["launch a", "a", "idle", "b"]
    assert names_of(program) == ["launch a", "between calls", "launch b", "idle", "b"]


def test_the_queues_of_a_graph_wait_for_each_other() -> None:
    program = Program().call(0, 1, "launch graph").run(1, 5, "a", 0).run(6, 9, "b", 0, "stream 9")
    assert names_of(program) == ["launch graph", "a", "idle", "b"]


def test_a_copy_that_blocks_its_call_is_waited_for() -> None:
    program = Program().call(0, 1, "launch a").run(1, 10, "a", 0)
    program.call(2, 14, "cudaMemcpyAsync", "copy").run(11, 13, "copy", 2)
    program.call(15, 16, "launch b").run(16, 18, "b", 15)
    assert path_of(program) == [
        ("launch a", 0, 1),
        ("a", 1, 10),
        ("idle", 10, 11),
        ("copy", 11, 13),
        ("cudaMemcpyAsync", 13, 14),
        ("between calls", 14, 15),
        ("launch b", 15, 16),
        ("b", 16, 18),
    ]


def test_a_wait_whose_queue_is_known_is_not_taken_for_another_s() -> None:
    program = (
        Program().call(0, 1, "launch a").run(1, 5, "a", 0).call(1, 2, "launch long").run(2, 9, "long", 1, "stream 9")
    )
    program.call(3, 10, "synchronize", "wait for a queue").call(10, 11, "launch b").run(11, 12, "b", 10)
    assert "long" in names_of(program)
    program.known["synchronize"] = KnownWait(GPU, "stream 7")
    assert names_of(program) == ["launch a", "a", "synchronize", "launch b", "b"]
    program.known["synchronize"] = KnownWait(GPU)
    assert "long" in names_of(program)


def test_a_wait_for_an_event_ends_with_what_was_launched_before_the_event() -> None:
    program = Program().call(0, 1, "launch a").run(1, 5, "a", 0).call(2, 3, "launch more").run(5, 8, "more", 2)
    program.call(3, 9, "synchronize", "wait for an event").call(9, 10, "launch b").run(10, 12, "b", 9)
    program.known["synchronize"] = KnownWait(GPU, "stream 7", recorded=1)
    assert path_of(program)[1:3] == [("a", 1, 5), ("synchronize", 5, 9)]


def test_what_was_launched_before_the_recording_is_waited_for_too() -> None:
    program = Program().run(1, 8, "before").call(0, 9, "synchronize", "wait for a device")
    program.call(9, 10, "launch b").run(10, 12, "b", 9)
    assert names_of(program) == ["before", "synchronize", "launch b", "b"]


def test_backward_is_waited_for_by_the_thread_that_called_it() -> None:
    program = Program().call(0, 2, "aten::mm", "operator").call(1, 2, "launch a").run(2, 3, "a", 1)
    program.call(2, 12, "## backward ##", "annotation")
    program.call(3, 9, "autograd::engine::evaluate_function: MmBackward0", "operator", "Python 2")
    program.call(12, 13, "launch b").run(13, 15, "b", 12)
    assert path_of(program) == [
        ("launch a", 1, 2),
        ("between calls", 2, 3),
        ("autograd::engine::evaluate_function: MmBackward0", 3, 9),
        ("## backward ##", 9, 12),
        ("launch b", 12, 13),
        ("b", 13, 15),
    ]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draw a program that launches on two queues, waits, and lets queues wait, as a device would run it."""
    program, now = Program(), 0
    free = {"stream 7": 0, "stream 9": 0}
    for action, pause, length in draw(
        st.lists(
            st.tuples(st.sampled_from(["7", "9", "copy", "wait", "let"]), st.integers(0, 5), st.integers(1, 9)),
            max_size=25,
        )
    ):
        now += pause
        if action == "wait":
            until = max(now + 1, *free.values())
            program.call(now, until, "synchronize", "wait for a device")
            now = until
        elif action == "let":
            program.call(now, now + 1, "let wait", "let a queue wait")
            free["stream 9"] = max(free.values())
            now += 1
        else:
            queue = f"stream {action}" if action != "copy" else "stream 7"
            start = max(now + draw(st.integers(0, 3)), free[queue])
            free[queue] = start + length
            until = free[queue] + 1 if action == "copy" else now + 2
            program.call(now, until, f"launch {action}", "copy" if action == "copy" else "call")
            program.run(start, start + length, action, now, queue)
            now = until
    return program


@given(programs())
def test_a_path_has_no_holes_and_its_figures_are_its_segments_(program: Program) -> None:
    case = program.case
    segments = critical_path(case)
    if not program.spans:
        assert segments == ()
        return
    assert segments[0].start == case.start
    assert segments[-1].end == max(span.end for span in program.spans)
    assert all(one.end == other.start for one, other in itertools.pairwise(segments))
    assert all(start < end for start, end, _ in segments)
    operations = [span for _, _, span in segments if span and span.kind != "host"]
    assert all(one.end <= other.start for one, other in itertools.pairwise(operations))
    assert len(set(operations)) == len(operations)
    summary, causes = path_summary(case), path_summary(case).causes
    assert sum(part.share for part in summary.parts) + summary.idle_share == pytest.approx(1)
    assert causes is not None
    delays = causes.launch_delay_seconds + causes.queue_delay_seconds
    assert summary.idle_seconds >= delays * (1 - 1e-12)


# How a trace of one stream and one thread, without a copy that blocks, is walked by looking at every event each time.
def walked(name: str) -> dict[str, int]:
    operations, found = counting.operations(name), dict.fromkeys(("device", "host", "waiting", "launch", "queue"), 0)
    calls = {one.correlation: one for one in counting.events(name) if one.category in counting.RUNTIME}
    waits = [one for one in calls.values() if one.name.endswith("Synchronize")]
    first = min(
        min(one.start for one in operations),
        min(calls[one.correlation].start for one in operations if one.correlation in calls),
    )
    # What has no launch was launched before all that has.
    begun = {id(one): calls[one.correlation].start if one.correlation in calls else -1 for one in operations}
    current: Event = max(operations, key=lambda one: one.end)
    while True:
        found["device"] += current.end - current.start
        before = max((one for one in operations if one.start < current.start), key=lambda one: one.start, default=None)
        call = calls.get(current.correlation)
        if before is not None and (call is None or before.end > call.start):
            found["queue"] += current.start - before.end
            current = before
            continue
        if call is None:
            return found
        time = min(call.end, current.start)
        found["launch"] += current.start - time
        for wait in sorted(waits, key=lambda one: -one.end):
            awaited = [one for one in operations if begun[id(one)] <= wait.start]
            last = max(awaited, key=lambda one: one.end, default=None)
            if wait.end <= time and last is not None and wait.start < last.end and last.start < wait.end:
                break
        else:
            found["host"] += time - first
            return found
        ended = min(last.end, wait.end)
        found["host"] += time - wait.end
        found["waiting"] += wait.end - ended
        current = last


def test_h100_s_path_is_what_walking_event_by_event_gives() -> None:
    expected, causes = walked("h100_qwen"), path_summary(case_of_trace("h100_qwen")).causes
    assert causes is not None
    assert expected["waiting"] > 0
    assert causes.compute_seconds + causes.copy_seconds == pytest.approx(expected["device"] / 1e9, abs=1e-12)
    assert causes.host_seconds == expected["host"] / 1e9
    assert causes.waiting_seconds == expected["waiting"] / 1e9
    assert causes.launch_delay_seconds == expected["launch"] / 1e9
    assert causes.queue_delay_seconds == expected["queue"] / 1e9


def test_the_difference_to_hta_s_path_is_explained_to_the_microsecond() -> None:
    # HTA 0.5.0 finds a path of 2,401 µs: 2,337 µs of the host, 28 of launching, 36 of a kernel and 2 of a copy.
    summary = path_summary(case_of_trace("event_sync"))
    segments = critical_path(case_of_trace("event_sync"))
    last = max(one.end for one in counting.operations("event_sync"))
    between = sum(end - start for start, end, span in segments if span and span.name == "between calls")
    # It gives no weight to the host's time between operators, nor to what happens until the end of a call that waits,
    # and it goes on after the last operation to the last call: cudaEventElapsedTime, which comes after its wait.
    copy = next(one for one in counting.operations("event_sync") if one.category == "gpu_memcpy")
    synchronized = next(one for one in counting.events("event_sync") if one.name == "cudaStreamSynchronize")
    elapsed = next(one for one in counting.events("event_sync") if one.name == "cudaEventElapsedTime")
    assert elapsed.start > last - counting.events("event_sync")[0].start
    theirs = summary.seconds * 1e6 - between / 1000 - (synchronized.end - copy.end) / 1000
    assert theirs + (elapsed.end - elapsed.start) / 1000 == pytest.approx(2401)


@pytest.mark.parametrize("name", counting.LINKED)
def test_the_path_of_a_real_trace_has_no_holes(name: str) -> None:
    case = case_of_trace(name)
    segments: list[tuple[int, int, Span | None]] = list(critical_path(case))
    assert segments[0][0] == case.start
    assert segments[-1][1] == int(case.ends[case.operations].max())
    assert all(one[1] == other[0] for one, other in itertools.pairwise(segments))
    summary = path_summary(case)
    assert sum(part.share for part in summary.parts) + summary.idle_share == pytest.approx(1)


def test_the_host_is_not_busy_while_it_waits_for_a_device() -> None:
    case = case_of_trace("h100_qwen")
    rows = {row.queue: row for row in figures_of(case).queues if row.device == "host"}
    waits = [one for one in counting.events("h100_qwen") if one.name.endswith("Synchronize")]
    first = min(one.start for one in counting.operations("h100_qwen") + list(counting.events("h100_qwen")))
    in_case = [
        min(one.end - first, case.end) - max(one.start - first, case.start)
        for one in waits
        if one.end - first > case.start and one.start - first < case.end
    ]
    (row,) = rows.values()
    assert row.waiting_seconds == sum(in_case) / 1e9 > 0.014


def test_an_event_of_another_century_does_not_change_the_path() -> None:
    program = Program().call(-(2**61), -(2**61) + 1, "long ago").call(0, 1, "launch a").run(1, 3, "a", 0)
    program.call(1, 2, "elsewhere", thread="Python 2")
    assert path_of(program) == [("launch a", 0, 1), ("a", 1, 3)]
