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
from parallel_core.measurement.result import Counted


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
    longer = []
    for span in spans:
        launched = None if span.launched is None else span.launched * factor
        start, end = span.start * factor, span.end * factor
        longer.append(span._replace(start=start, end=end, launched=launched))
    return repetition(*longer)


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
    queued, in_turn = stretched(QUEUED, factor), stretched(IN_TURN, factor)
    operations_of_tallies = {
        unfinished_at_return: 3,
        most_unfinished_at_return: 3,
        launched_behind_unfinished: 2,
        unfinished_after_wait_for_one: 2,
    }
    for tally, operations in operations_of_tallies.items():
        assert tally(queued) == (operations, operations)
        assert tally(in_turn) == (0, operations)


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


@pytest.mark.parametrize(
    ("first_starts", "second_starts", "second_length", "beside"),
    [
        # The second device was kept from running at first, so only its first computation was
        # beside one of the other.
        ((0, 10, 20), (24, 34, 44), 10, 1),
        ((0, 10, 20), (1, 11, 21), 7, 3),
        ((0, 10, 20), (30, 40, 50), 10, 0),
        # A device hands over when nine tenths are done, and so does the other.
        ((0, 20, 40), (9, 29, 49), 12, 0),
    ],
    ids=["late", "together", "afterwards", "touching"],
)
def test_computations_count_that_are_beside_another_device_s(
    first_starts: tuple[int, ...], second_starts: tuple[int, ...], second_length: int, beside: int
) -> None:
    first_device = [run("cpu:1", start, start + 10) for start in first_starts]
    second_device = [run("cpu:2", start, start + second_length) for start in second_starts]
    spans = [*first_device, *second_device]
    assert computed_beside_another_device(repetition(*spans)) == (beside, 3)
    on_one_thread = [span._replace(device="cpu") for span in spans]
    assert computed_beside_another_device(repetition(*on_one_thread)).seen == 0


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
    copies = [copy(start, start + 1) for start in (12, 14, 30, 31, 32, 33)]
    # Each result is copied twice, and the last one does not count.
    assert copied_beside_computation(repetition(*computed, *copies)) == (1, 2)
    assert copied_beside_computation(repetition(*computed, *copies[:-1])).of == 0
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
    assert counted == Counted(24, 25, "a test", (24, 3, 25))
    # It is that of the middle share.
    unequal = middle([Tally(4, 4), Tally(6, 12), Tally(5, 50)], "a test")
    assert unequal == Counted(6, 12, "a test", (4, 6, 5), of_each=(4, 12, 50))
    shared = middle([Tally(24, 25), Tally(25, 25)], "torch", shares=[0.5, 0.7])
    assert shared.alongside == pytest.approx(0.6)


@contextmanager
def broken(
    _backend: Backend, path: Path
) -> Iterator[Callable[[str], AbstractContextManager[None]]]:
    """Be a profiler that leaves a file which is no trace."""
    yield lambda _: nullcontext()
    path.write_text("no trace")


@pytest.mark.parametrize("has_profiler", [True, False])
def test_a_profiler_that_leaves_no_trace_costs_the_count_and_not_the_run(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, has_profiler: bool
) -> None:
    if has_profiler:
        monkeypatch.setattr(witnesses, "check_profiler", lambda _: None)
        monkeypatch.setattr(witnesses, "run_profiler", broken)
        witness = witnesses.witness_for(backend)
        assert witness is not None
        assert not witness.ends_are_exact
    result = EXPERIMENTS["parallel"].run(backend, size=16, rounds=2)
    assert result.counts == {}
    assert [note.code for note in result.notes].count("uncounted") == has_profiler
    assert result.metrics["parallel_speedup"] > 0


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

    on_same_device = 0
    beside_another: dict[str, list[bool]] = {"cpu:1": [], "cpu:2": []}
    for span in spans:
        others = [other for other in spans if other is not span]
        same = [other for other in others if other.device == span.device]
        elsewhere = [other for other in others if other.device != span.device]
        on_same_device += is_beside(span, same)
        beside_another[span.device].append(is_beside(span, elsewhere))
    recorded = repetition_of(spans)
    assert computed_beside_its_own_device(recorded) == (on_same_device, len(spans))
    if all(beside_another.values()):
        seen, of = computed_beside_another_device(recorded)
        assert seen / of == max(sum(flags) / len(flags) for flags in beside_another.values())
