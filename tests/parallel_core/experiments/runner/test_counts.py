"""What is counted of a recorded repetition: order, whatever the times."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import Backend
from backends.profiling import Span
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner import witnesses
from parallel_core.experiments.runner.counting import middle, needs_more
from parallel_core.experiments.runner.counts import Count
from parallel_core.experiments.runner.tallies import (
    Repetition,
    Tally,
    alongside,
    computed_beside_another_device,
    computed_beside_its_own_device,
    copied_beside_computation,
    launched_behind_unfinished,
    most_unfinished_at_return,
    repetition_of,
    unfinished_after_wait_for_one,
    unfinished_at_return,
)


def call(name: str, start: int, end: int) -> Span:
    """Return a call from Python."""
    return Span(name, "host", "host", "Python", start, end)


def run(device: str, start: int, end: int, launched: int | None = None) -> Span:
    """Return a multiplication on a device."""
    return Span("matmul", "compute", device, "compute", start, end, launched)


def copy(start: int, end: int) -> Span:
    """Return a copy to the second device."""
    return Span("copy", "copy", "cpu:2", "copy", start, end)


def by_start(*spans: Span) -> Sequence[Span]:
    """Return spans in the order in which they begin."""
    return sorted(spans, key=lambda span: span.start)


def repetition(*spans: Span) -> Repetition:
    """Return the repetition in which these spans were recorded."""
    return repetition_of(by_start(*spans))


def stretched(spans: Iterable[Span], factor: int) -> Repetition:
    """Return a repetition whose times are multiplied by a factor."""
    return repetition(
        *(
            span._replace(
                start=span.start * factor,
                end=span.end * factor,
                launched=None if span.launched is None else span.launched * factor,
            )
            for span in spans
        )
    )


# Three launches that return at once, and a wait for the first result.
QUEUED = (
    call("waitall", 0, 1),
    call("launch matmul", 2, 3),
    call("launch matmul", 4, 5),
    call("launch matmul", 6, 7),
    run("cpu:1", 5, 14, launched=2),
    call("wait", 8, 15),
    run("cpu:1", 15, 24, launched=4),
    call("waitall", 16, 40),
    run("cpu:1", 25, 34, launched=6),
)


# Three launches each of which computes before it returns, and a wait for the first result.
IN_TURN = (
    call("waitall", 0, 1),
    call("launch matmul", 10, 19),
    run("cpu:1", 11, 18, launched=10),
    call("launch matmul", 20, 29),
    run("cpu:1", 21, 28, launched=20),
    call("launch matmul", 30, 39),
    run("cpu:1", 31, 38, launched=30),
    call("wait", 40, 41),
    call("waitall", 42, 43),
)


@given(factor=st.integers(1, 10**9))
def test_order_is_the_same_however_long_it_takes(factor: int) -> None:
    queued = stretched(QUEUED, factor)
    assert unfinished_at_return(queued) == (3, 3)
    assert most_unfinished_at_return(queued) == (3, 3)
    assert launched_behind_unfinished(queued) == (2, 2)
    assert unfinished_after_wait_for_one(queued) == (2, 2)
    in_turn = stretched(IN_TURN, factor)
    assert unfinished_at_return(in_turn) == (0, 3)
    assert most_unfinished_at_return(in_turn) == (0, 3)
    assert launched_behind_unfinished(in_turn) == (0, 2)
    assert unfinished_after_wait_for_one(in_turn) == (0, 2)


def test_what_a_conversion_launches_is_not_behind_the_result_that_it_converts() -> None:
    total = run("cpu:1", 35, 36, launched=8)._replace(name="total")
    assert unfinished_after_wait_for_one(repetition(*QUEUED, total)) == (2, 2)


def test_the_most_are_unfinished_where_the_device_was_farthest_behind() -> None:
    launches = [call("launch matmul", start, start + 1) for start in (0, 2, 4, 20)]
    # The first three are done before the fourth is launched, and the fourth before it returns.
    runs = [
        run("cpu:1", 5, 6, launched=0),
        run("cpu:1", 6, 7, launched=2),
        run("cpu:1", 7, 8, launched=4),
        run("cpu:1", 19, 20, launched=20),
    ]
    recorded = repetition(*launches, *runs)
    assert most_unfinished_at_return(recorded) == (3, 4)
    assert unfinished_at_return(recorded) == (3, 4)
    assert launched_behind_unfinished(recorded) == (2, 3)


def test_the_device_counts_that_had_most_beside_it() -> None:
    def beside(*spans: Span) -> Tally:
        return computed_beside_another_device(repetition(*spans))

    first_device = [run("cpu:1", start, start + 10) for start in (0, 10, 20)]
    # The second device was kept from running at first, so only its first computation was beside
    # one of the other.
    late = [run("cpu:2", start, start + 10) for start in (24, 34, 44)]
    assert beside(*first_device, *late) == (1, 3)
    together = [run("cpu:2", start, start + 7) for start in (1, 11, 21)]
    assert beside(*first_device, *together) == (3, 3)
    afterwards = [run("cpu:2", start, start + 10) for start in (30, 40, 50)]
    assert beside(*first_device, *afterwards) == (0, 3)
    on_one_thread = [span._replace(device="cpu") for span in (*first_device, *afterwards)]
    assert beside(*on_one_thread) == (0, 3)


def test_devices_that_touch_at_every_operation_are_not_beside_each_other() -> None:
    first_device = [run("cpu:1", start, start + 10) for start in (0, 20, 40)]
    # A device hands over when nine tenths are done, and so does the other.
    handed_over = [run("cpu:2", start, start + 12) for start in (9, 29, 49)]
    touching = repetition(*first_device, *handed_over)
    assert computed_beside_another_device(touching) == (0, 3)


@given(beside=st.integers(0, 100))
def test_more_results_count_the_more_of_the_copying_lies_beside_computations(beside: int) -> None:
    computed = [run("cpu:1", start, start + 100) for start in (0, 1000, 2000)]
    # So much of the copying of the first two results lies under the next computation.
    copies = [copy(start + 1000 - 100 + beside, start + 1000 + beside) for start in (0, 1000)]
    last_copy = copy(2500, 2600)
    expected = 2 if beside >= 50 else 0
    copied = copied_beside_computation(repetition(*computed, *copies, last_copy))
    assert copied == (expected, 2)


def test_of_copies_that_are_missing_nothing_is_counted() -> None:
    computed = [run("cpu:1", start, start + 10) for start in (0, 10, 20)]
    beside = [copy(12, 14), copy(14, 16)]
    touching = [copy(30, 31), copy(31, 32), copy(32, 33), copy(33, 34)]
    # Each result is copied twice, and the last one does not count.
    assert copied_beside_computation(repetition(*computed, *beside, *touching)) == (1, 2)
    one_lacking = repetition(*computed, *beside, *touching[1:])
    assert copied_beside_computation(one_lacking).of == 0
    assert copied_beside_computation(repetition(*computed)).of == 0


def test_the_copies_time_beside_computations_counts_once_however_many_compute() -> None:
    computed = [run("cpu:1", 0, 10), run("cpu:3", 4, 14), run("cpu:1", 20, 30)]
    partly_beside = [copy(8, 18), copy(18, 28)]
    # The first copy is beside computations for 6 of its 10 units, the second for 8.
    assert alongside(repetition(*computed, *partly_beside)) == (6 + 8) / 20
    assert alongside(repetition(*computed, copy(14, 20))) == 0
    assert alongside(repetition(*computed)) == 0


PARALLEL: Count = EXPERIMENTS["parallel"].counts[0]


@pytest.mark.parametrize(
    ("beside", "code"),
    [(0, "serial"), (4, "serial"), (5, "partly"), (16, "partly"), (17, "parallel")],
)
def test_two_thirds_are_enough_where_other_programs_take_the_cores(beside: int, code: str) -> None:
    assert PARALLEL.band(beside, 25).code == code


def test_more_is_recorded_while_repetitions_mean_different_things() -> None:
    almost_all, few, all_beside = Tally(24, 25), Tally(3, 25), Tally(25, 25)
    assert not needs_more(PARALLEL, [almost_all, all_beside])
    assert needs_more(PARALLEL, [almost_all, few])
    # However much they differ, six repetitions are enough.
    assert not needs_more(PARALLEL, [almost_all, few] * 3)
    assert needs_more(PARALLEL, [all_beside] * 10, fewest=11)
    assert not needs_more(PARALLEL, [], fewest=11)


def test_of_several_repetitions_the_middle_one_counts() -> None:
    counted = middle([Tally(24, 25), Tally(3, 25), Tally(25, 25)], "a test")
    assert counted.count == 24
    assert counted.of == 25
    assert counted.repetitions == (24, 3, 25)
    assert counted.alongside is None
    assert counted.of_each == ()
    shared = middle([Tally(24, 25), Tally(25, 25)], "torch", shares=[0.5, 0.7])
    assert shared.alongside == pytest.approx(0.6)


def test_the_middle_repetition_is_that_of_the_middle_share() -> None:
    counted = middle([Tally(4, 4), Tally(6, 12), Tally(5, 50)], "a test")
    assert (counted.count, counted.of) == (6, 12)
    assert counted.of_each == (4, 12, 50)


@contextmanager
def broken(
    _backend: Backend, path: Path
) -> Iterator[Callable[[str], AbstractContextManager[None]]]:
    """Be a profiler that leaves a file which is no trace."""
    yield lambda _: nullcontext()
    path.write_text("no trace")


def test_a_profiler_that_leaves_no_trace_costs_the_count_and_not_the_run(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witnesses, "check_profiler", lambda _: None)
    monkeypatch.setattr(witnesses, "run_profiler", broken)
    witness = witnesses.witness_for(backend)
    assert witness is not None
    assert not witness.ends_are_exact
    result = EXPERIMENTS["parallel"].run(backend, size=16, rounds=2)
    assert result.counts == {}
    assert [note.code for note in result.notes].count("uncounted") == 1
    assert result.metrics["parallel_speedup"] > 0


def test_a_backend_without_a_profiler_has_no_counts_and_no_note(backend: Backend) -> None:
    result = EXPERIMENTS["parallel"].run(backend, size=16, rounds=2)
    assert result.counts == {}
    assert "uncounted" not in [note.code for note in result.notes]


MOMENTS = st.tuples(st.sampled_from(["cpu:1", "cpu:2"]), st.integers(0, 20), st.integers(0, 9))


@given(placed=st.lists(MOMENTS, min_size=1, max_size=8))
def test_what_is_beside_is_what_a_look_at_each_moment_finds(
    placed: list[tuple[str, int, int]],
) -> None:
    spans = [run(device, start, start + length) for device, start, length in placed]

    def is_beside(span: Span, others: list[Span]) -> bool:
        moments = range(span.start, span.end)
        busy = [any(other.start <= at < other.end for other in others) for at in moments]
        return len(busy) > 0 and 2 * sum(busy) >= len(busy)

    on_own = [
        is_beside(span, [one for one in spans if one.device == span.device and one is not span])
        for span in spans
    ]
    assert computed_beside_its_own_device(repetition_of(spans)) == (sum(on_own), len(spans))
    tallies = []
    for device in {span.device for span in spans}:
        elsewhere = [span for span in spans if span.device != device]
        on_device = [is_beside(span, elsewhere) for span in spans if span.device == device]
        tallies.append(Tally(sum(on_device), len(on_device)))
    if len(tallies) == 2:
        expected = max(tally.seen / tally.of for tally in tallies)
        seen, of = computed_beside_another_device(repetition_of(spans))
        assert seen / of == expected
