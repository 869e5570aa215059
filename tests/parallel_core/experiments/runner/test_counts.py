"""What is counted of a recorded repetition: order, whatever the times."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import Backend
from backends.profiling import Span
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner import witnesses
from parallel_core.experiments.runner.counts import Count, middle, needs_more
from parallel_core.experiments.runner.tallies import (
    Tally,
    alongside,
    begun_beside_another_device,
    copied_beside_computation,
    launched_behind_unfinished,
    most_unfinished_at_return,
    repetition_of,
    unfinished_after_wait_for_one,
    unfinished_at_return,
)


def call(name: str, start: int, end: int) -> Span:
    return Span(name, "host", "host", "Python", start, end)


def run(device: str, start: int, end: int, launched: int | None = None) -> Span:
    return Span("matmul", "compute", device, "compute", start, end, launched)


def copy(start: int, end: int) -> Span:
    return Span("copy", "copy", "cpu:2", "copy", start, end)


def by_start(*spans: Span) -> Sequence[Span]:
    return sorted(spans, key=lambda span: span.start)


def queued(factor: int) -> Sequence[Span]:
    """Return three launches that return at once, and a wait for the first; times are stretched by a
    factor.
    """
    return by_start(
        call("waitall", 0, 1 * factor),
        *(call("launch matmul", at * factor, (at + 1) * factor) for at in (2, 4, 6)),
        *(
            run(
                "cpu:1",
                (10 * at + 5) * factor,
                (10 * at + 14) * factor,
                launched=(2 * at + 2) * factor,
            )
            for at in range(3)
        ),
        call("wait", 8 * factor, 15 * factor),
        call("waitall", 16 * factor, 40 * factor),
    )


def in_turn(factor: int) -> Sequence[Span]:
    """Return the same where each launch computes before it returns."""
    return by_start(
        call("waitall", 0, 1 * factor),
        *(call("launch matmul", 10 * at * factor, (10 * at + 9) * factor) for at in (1, 2, 3)),
        *(
            run("cpu:1", (10 * at + 1) * factor, (10 * at + 8) * factor, launched=10 * at * factor)
            for at in (1, 2, 3)
        ),
        call("wait", 40 * factor, 41 * factor),
    )


@given(st.integers(1, 10**9))
def test_order_is_the_same_however_long_it_takes(factor: int) -> None:
    assert unfinished_at_return(repetition_of(queued(factor))) == (3, 3)
    assert unfinished_at_return(repetition_of(in_turn(factor))) == (0, 3)
    assert most_unfinished_at_return(repetition_of(queued(factor))) == (3, 3)
    assert most_unfinished_at_return(repetition_of(in_turn(factor))) == (0, 3)
    assert launched_behind_unfinished(repetition_of(queued(factor))) == (2, 2)
    assert launched_behind_unfinished(repetition_of(in_turn(factor))) == (0, 2)
    assert unfinished_after_wait_for_one(repetition_of(queued(factor))) == (2, 2)
    assert unfinished_after_wait_for_one(repetition_of(in_turn(factor))) == (0, 2)


def test_what_a_conversion_launches_is_not_behind_the_result_that_it_converts() -> None:
    total = run("cpu:1", 35, 36, launched=8)._replace(name="total")
    assert unfinished_after_wait_for_one(repetition_of(by_start(*queued(1), total))) == (2, 2)


def test_the_most_are_unfinished_where_the_device_was_farthest_behind() -> None:
    launches = [call("launch matmul", at, at + 1) for at in (0, 2, 4, 20)]
    # The first three are done before the fourth is launched, and the fourth before it returns.
    ends = {0: 6, 2: 7, 4: 8, 20: 20}
    runs = [run("cpu:1", end - 1, end, launched) for launched, end in ends.items()]
    repetition = repetition_of(by_start(*launches, *runs))
    assert most_unfinished_at_return(repetition) == (3, 4)
    assert unfinished_at_return(repetition) == (3, 4)
    assert launched_behind_unfinished(repetition) == (2, 3)


def test_the_device_counts_that_had_most_beside_it() -> None:
    # The second device was kept from running at first, so only its first computation began beside
    # the other.
    first = [run("cpu:1", at, at + 9) for at in (0, 10, 20)]
    late = [run("cpu:2", at, at + 9) for at in (25, 35, 45)]
    assert begun_beside_another_device(repetition_of(by_start(*first, *late))) == (1, 3)
    together = [run("cpu:2", at + 1, at + 8) for at in (0, 10, 20)]
    assert begun_beside_another_device(repetition_of(by_start(*first, *together))) == (3, 3)
    in_turns = [run("cpu:2", at, at + 9) for at in (30, 40, 50)]
    assert begun_beside_another_device(repetition_of(by_start(*first, *in_turns))) == (0, 3)
    on_one_thread = [span._replace(device="cpu") for span in (*first, *in_turns)]
    assert begun_beside_another_device(repetition_of(on_one_thread)) == (0, 3)


def test_copies_beside_a_computation_count_and_those_that_only_touch_one_do_not() -> None:
    computed = [run("cpu:1", at, at + 10) for at in (0, 10, 20)]
    beside = [copy(12, 14), copy(14, 16), copy(20, 22), copy(30, 31), copy(31, 32), copy(32, 33)]
    assert copied_beside_computation(repetition_of(by_start(*computed, *beside))) == (2, 3)
    in_turn = [copy(10 * at + 30, 10 * at + 31) for at in range(6)]
    assert copied_beside_computation(repetition_of(by_start(*computed, *in_turn))) == (0, 3)
    # A profile that lacks copies of some results is no witness.
    assert copied_beside_computation(repetition_of(by_start(*computed, *beside[:4]))).of == 0
    assert copied_beside_computation(repetition_of(computed)).of == 0


def test_copies_that_end_last_because_they_were_delayed_hide_no_overlap() -> None:
    computed = [run("cpu:1", at, at + 10) for at in (0, 10, 20)]
    # A copy of each result; the second ends after all computations, and the third begins then.
    delayed = [copy(12, 24), copy(24, 50), copy(50, 60)]
    assert copied_beside_computation(repetition_of(by_start(*computed, *delayed))) == (2, 3)


def test_the_copies_time_beside_computations_counts_once_however_many_compute() -> None:
    computed = [run("cpu:1", 0, 10), run("cpu:3", 4, 14), run("cpu:1", 20, 30)]
    copies = [copy(8, 18), copy(18, 28)]
    assert alongside(repetition_of(by_start(*computed, *copies))) == (6 + 8) / 20
    assert alongside(repetition_of(by_start(*computed, copy(14, 20)))) == 0
    assert alongside(repetition_of(computed)) == 0


PARALLEL: Count = EXPERIMENTS["parallel"].counts[0]


@pytest.mark.parametrize(
    ("seen", "code"),
    [(0, "serial"), (4, "serial"), (5, "partly"), (16, "partly"), (17, "parallel")],
)
def test_two_thirds_are_enough_where_other_programs_take_the_cores(seen: int, code: str) -> None:
    assert PARALLEL.band(seen, 25).code == code


def test_more_is_recorded_while_repetitions_mean_different_things_and_the_middle_one_counts() -> (
    None
):
    assert not needs_more(PARALLEL, [Tally(24, 25), Tally(25, 25)])
    assert needs_more(PARALLEL, [Tally(24, 25), Tally(3, 25)])
    assert not needs_more(PARALLEL, [Tally(24, 25), Tally(3, 25)] * 3)
    assert needs_more(PARALLEL, [Tally(25, 25)] * 10, fewest=11)
    assert not needs_more(PARALLEL, [], fewest=11)
    counted = middle([Tally(24, 25), Tally(3, 25), Tally(25, 25)], "a test")
    assert (counted.count, counted.of, counted.repetitions) == (24, 25, (24, 3, 25))
    assert counted.alongside is None
    shared = middle([Tally(24, 25), Tally(25, 25)], "torch", shares=[0.5, 0.7])
    assert shared.alongside == pytest.approx(0.6)


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
    result = EXPERIMENTS["parallel"].run(backend, size=16, rounds=2)
    assert result.counts == {}
    assert [note.startswith("Nothing was counted: ") for note in result.notes].count(True) == 1
    assert result.metrics["parallel_speedup"] > 0


def test_a_backend_without_a_profiler_has_no_counts_and_no_note(backend: Backend) -> None:
    result = EXPERIMENTS["parallel"].run(backend, size=16, rounds=2)
    assert result.counts == {}
    assert not [note for note in result.notes if "counted" in note]
