"""`allreduce` has a figure for each size and algorithm, and its sentences follow from the numbers."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import parallel_core
from backends import Array, Backend
from parallel_core import RequestError
from parallel_core.experiments import EXPERIMENTS, Mode
from parallel_core.experiments.changes import LESS_NOISE
from parallel_core.experiments.training_on_multiple_gpus.allreduce import algorithms as collectives
from parallel_core.experiments.training_on_multiple_gpus.allreduce import checks
from parallel_core.experiments.training_on_multiple_gpus.allreduce import verdicts as about_allreduce
from parallel_core.experiments.training_on_multiple_gpus.allreduce.parts import size_of_parts
from parallel_core.experiments.training_on_multiple_gpus.allreduce.sweep import about_budget, sweep
from parallel_core.experiments.training_on_multiple_gpus.allreduce.timing import time_repeated
from parallel_core.measurement.result import Case
from parallel_core.system.formatting import parse_sizes, write_size
from tests.parallel_core.experiments.bounds import without_bounds

SMALL: dict[str, Any] = {"sizes": (40, 4096), "rounds": 2}


def case(seconds: float) -> Case:
    return Case("any", (seconds,) * 3, (seconds,) * 3)


def allreduce(size: int = 2**20, **seconds: float) -> dict[int, dict[str, Case]]:
    return {size: {name.replace("_", " "): case(taken) for name, taken in seconds.items()}}


@pytest.mark.parametrize(
    ("star", "sharded", "native", "sentences"),
    [
        (4e-3, 2e-3, 1e-3, ["At 1 MiB native was the fastest: 1.05 GB/s, 4.00 × as fast as the star."]),
        (1e-3, 2e-3, 4e-3, ["At 1 MiB star was the fastest: 1.05 GB/s."]),
        (
            2e-3,
            1e-3,
            1.01e-3,
            ["sharded and native were the fastest, and no difference between them is shown: 1.05 GB/s, 2.00 × as fast"],
        ),
        (
            1e-3,
            1.01e-3,
            2e-3,
            ["star and sharded were the fastest, and no difference between them is shown: 1.05 GB/s."],
        ),
        (1e-3, 1e-3, 1.01e-3, ["no algorithm is shown to be slower than star"]),
    ],
)
def test_allreduce(star: float, sharded: float, native: float, sentences: list[str]) -> None:
    timed = allreduce(plain_copy=1e-3, star=star, sharded=sharded, native=native)
    told = without_bounds(about_allreduce.about_size(2**20, timed[2**20]))
    for sentence in sentences:
        assert sentence in told
    assert told.count("At 1 MiB") == 1


def test_allreduce_speaks_of_the_largest_and_of_the_smallest_size(backend: Backend) -> None:
    answer = parallel_core.run_allreduce(backend, ("star", "native"), (40, 4096), rounds=4).answer
    assert answer is not None
    assert [sentence.partition(" B")[0].partition(" K")[0] for sentence in answer.sentences[:2]] == ["At 4", "At 40"]


def test_allreduce_by_one_algorithm_alone() -> None:
    (cases,) = allreduce(plain_copy=1e-3, ring=2e-3).values()
    assert about_allreduce.about_size(2**20, cases) == "At 1 MiB ring summed 0.524 GB/s."


@pytest.mark.parametrize(
    ("taken", "sentence"),
    [
        (2e-3, "2.00 × as long as copying every vector once, which is the least that must be read and written."),
        (1.01e-3, "1.01 × as long as copying every vector once, which is the least that must be read and written: no"),
        (5e-4, "0.50 × as long as copying every vector once, so that is no bound here"),
    ],
)
def test_a_sum_is_held_against_the_copies_that_bound_it(taken: float, sentence: str) -> None:
    small = allreduce(4096, plain_copy=1e-5, ring=1e-5)
    told = without_bounds(about_allreduce.about_bound(small | allreduce(plain_copy=1e-3, ring=taken), "ring"))
    assert told.startswith(f"At 1 MiB ring took {sentence}")


@pytest.mark.parametrize(
    ("sharded", "sentence"),
    [
        (
            1e-3,
            "was 2.00 × as fast as adding all up on the first (star) at 1 MiB: sharing out the work paid",
        ),
        (2e-3, "was 1.00 × as fast as adding all up on the first (star) at 1 MiB: no difference is shown"),
        (
            4e-3,
            "was 0.50 × as fast as adding all up on the first (star) at 1 MiB: dividing and joining",
        ),
    ],
)
def test_the_book_s_question_is_answered_by_the_numbers(sharded: float, sentence: str) -> None:
    (told,) = about_allreduce.about_sharding(allreduce(plain_copy=1e-3, star=2e-3, sharded=sharded))
    assert sentence in without_bounds(told)


def test_the_book_s_question_needs_both_ways() -> None:
    assert about_allreduce.about_sharding(allreduce(plain_copy=1e-3, star=2e-3)) == ()


def test_the_allreduce_experiment_has_a_figure_for_each_size_and_algorithm(backend: Backend) -> None:
    result = parallel_core.run_allreduce(backend, ("star", "ring"), (4097, 6, 4096, 1), rounds=2)
    # Sizes are whole elements, once each, in order.
    assert result.series["bytes"] == (4, 4096)
    assert result.parameters == {"algorithms": "star,ring", "sizes": "4B,4KiB", "rounds": 2, "budget": 15}
    names = ("plain copy", "star", "ring")
    assert [case.name for case in result.cases] == [f"{name}, {size}" for size in ("4 B", "4 KiB") for name in names]
    medians = {case.name: case.median for case in result.cases}
    for name in names[1:]:
        assert result.series[f"algbw_gb_per_s {name}"][1] == pytest.approx(4096 / medians[f"{name}, 4 KiB"] / 1e9)
        assert result.series[f"share_of_copy_bound {name}"][0] == pytest.approx(
            medians["plain copy, 4 B"] / medians[f"{name}, 4 B"]
        )
    # Of the last algorithm, for native was not asked for; three devices have a factor of 4/3.
    assert result.metrics["algbw_gb_per_s"] == result.series["algbw_gb_per_s ring"][1]
    assert result.metrics["busbw_gb_per_s"] == pytest.approx(result.metrics["algbw_gb_per_s"] * 4 / 3)


@pytest.mark.parametrize("mode", ["full", "quick"])
def test_a_comparison_times_the_allreduce_that_it_names(mode: Mode) -> None:
    described = EXPERIMENTS["allreduce"]
    timed = {f"native, {write_size(size)}" for size in parse_sizes(str(described.options[mode]["sizes"]))}
    assert {described.case, described.queued_case} <= timed


def test_each_sum_has_the_bare_time_of_its_additions(backend: Backend) -> None:
    copy, star, native = parallel_core.run_allreduce(backend, ("star", "native"), (4096,), rounds=2).cases
    assert copy.bare_seconds == ()
    assert len(star.bare_seconds) == 2
    assert star.bare_seconds == native.bare_seconds
    # On zero elements, too, and on fewer than there are devices.
    assert parallel_core.run_allreduce(backend, ("star",), (4,), rounds=1).cases[1].bare_seconds


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(0, 50), st.booleans())
def test_a_sweep_ends_where_the_budget_does_unless_sizes_are_asked_for(
    slow: list[int], budget: float, in_full: bool
) -> None:
    sizes, left = [4**place for place in range(len(slow))], budget
    given: dict[int, float] = {}

    def take(size: int, seconds: float) -> tuple[float, dict[str, Case]]:
        nonlocal left
        given[size] = seconds
        assert seconds == left / 2
        left -= slow[sizes.index(size)]
        return float(size), allreduce(size, native=1.0)[size]

    errors, timed = sweep(sizes, in_full, take, lambda: left)
    done = sizes[: len(timed)]
    assert list(timed) == errors == done == list(given)
    assert in_full <= (done == sizes)
    spent = list(accumulate(slow, initial=0))
    for place in range(1, len(sizes)):
        fits = 4 * slow[place - 1] <= budget - spent[place]
        assert (sizes[place] in timed) == (in_full or (fits and sizes[place - 1] in timed))
    told = about_budget(sizes, timed, budget)
    assert bool(told) == (done != sizes)
    assert all(f"ended the sweep at {write_size(done[-1])} of {write_size(sizes[-1])}" in one for one in told)


@pytest.mark.parametrize(("budget", "asked", "rounds"), [(0.0, 5, 3), (0.0, 2, 2), (6.0, 9, 5), (60.0, 9, 9)])
def test_rounds_fit_the_budget_but_for_the_fewest(backend: Backend, budget: float, asked: int, rounds: int) -> None:
    takes = {"one": lambda repeats: (0.5, 1.0)}
    case = time_repeated(backend, takes, 4, asked, budget)["one"]
    assert len(case.seconds) == rounds
    assert case.name == "one, 4 B"


def test_sums_that_are_wrong_make_the_result_invalid(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_the_last(backend: Backend, vectors: Sequence[Array]) -> tuple[Array, ...]:
        return (*collectives.star(backend, vectors[:-1]), vectors[-1])

    monkeypatch.setattr(
        "parallel_core.experiments.training_on_multiple_gpus.allreduce.checks.CHECKED", {"star": without_the_last}
    )
    (problem,) = parallel_core.run_allreduce(backend, ("star",), (64,), rounds=1).problems
    assert problem.startswith("sums differ from NumPy's by ")


@pytest.mark.parametrize(
    ("algorithms", "sizes", "message"),
    [
        (("butterfly",), (64,), "unknown algorithm 'butterfly'"),
        ((), (64,), "no algorithm"),
        (("star",), (), "no size"),
        (("star",), (2**60,), "choose smaller --sizes"),
    ],
)
def test_allreduce_refuses_what_it_cannot_do(
    backend: Backend, algorithms: tuple[str, ...], sizes: tuple[int, ...], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        parallel_core.run_allreduce(backend, algorithms, sizes)


def parts(spread: float, one: float, own: float) -> dict[str, Case]:
    taken = {"parts on spread roots": spread, "parts on one root": one, "the native sum of the same": own}
    alone = {"dividing alone": 1e-4, "copying alone": 3e-4, "adding alone": 2e-4, "joining alone": 4e-4}
    return {name: case(seconds) for name, seconds in (taken | alone).items()}


@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        (2e-3, "a sum of 1 MiB was 2.00 × as fast as with the same parts all added up on the first device: what one"),
        (
            5e-4,
            "was 0.50 × as fast as with the same parts all added up on the first device: spreading the additions costs",
        ),
        (1.01e-3, "no difference is shown; the additions may not be what takes long, or devices take turns."),
    ],
)
def test_why_different_parts_on_different_devices_is_answered_by_their_times(one: float, sentence: str) -> None:
    assert sentence in without_bounds(about_allreduce.about_roots(2**20, parts(1e-3, one, 1e-3)))


def test_why_sharded_is_slower_than_native_is_answered_by_its_parts() -> None:
    told = without_bounds(about_allreduce.about_parts(2**20, parts(1e-3, 1e-3, 5e-4)))
    assert "sharded took 2.00 × as long (1.00 ms at 1 MiB)." in told
    assert "dividing 100 μs, copying 300 μs, adding 200 μs and joining 400 μs" in told
    assert "All but the adding, 80% of their sum, moves what is added" in told
    assert "waiting" not in told
    waiting = about_allreduce.about_parts(2**20, parts(3e-3, 1e-3, 5e-4))
    assert "longer than all of them one after the other (1.00 ms): the rest is waiting" in waiting
    alike = about_allreduce.about_parts(2**20, parts(1e-3, 1e-3, 1.01e-3))
    assert alike.endswith("That sharded is slower is not shown.")


def test_a_share_above_one_is_named_with_what_it_exceeds() -> None:
    small = allreduce(4096, plain_copy=1e-5, star=2e-5, native=9.9e-6)
    large = allreduce(plain_copy=1e-3, star=3e-3, native=5e-4)
    (told,) = about_allreduce.about_exceeded(small | large)
    assert told.startswith("Shares above 1 (native at 1 MiB; 2.00 at most) exceed the speed of plain copies")
    assert about_allreduce.about_exceeded(small) == ()


def test_the_parts_of_sharded_sums_are_timed_beside_them(backend: Backend) -> None:
    result = parallel_core.run_allreduce(backend, ("sharded", "native"), (40, 4096), rounds=2)
    timed = {one.name: one.median for one in result.cases}
    assert result.metrics["spread_roots_speedup"] == pytest.approx(
        timed["parts on one root, 4 KiB"] / timed["parts on spread roots, 4 KiB"]
    )
    for part in ("dividing", "copying", "adding", "joining"):
        assert result.metrics[f"{part}_alone_seconds"] == timed[f"{part} alone, 4 KiB"]
    assert result.metrics["share_of_copy_bound"] == pytest.approx(result.series["share_of_copy_bound native"][-1])
    assert result.answer is not None
    assert ("part k added up on device k" in " ".join(result.answer.sentences)) != result.explanation.startswith("No v")


def test_what_would_change_the_sums_follows_from_them(backend: Backend) -> None:
    timed = allreduce(plain_copy=1e-3, star=2e-3)
    assert "without --algorithm" in about_allreduce.what_would_change(backend, timed, {})
    told = about_allreduce.what_would_change(backend, timed, parts(1e-3, 2e-3, 1e-3))
    assert told.startswith("A backend that queues" if backend.engine == "sync" else ("More cores", "More devices"))
    open_still = about_allreduce.what_would_change(backend, timed, parts(1e-3, 1.01e-3, 1e-3))
    assert open_still == (told if backend.engine == "sync" else LESS_NOISE)


def test_between_processes_links_and_what_would_change_them_are_told() -> None:
    timed = {2**20: {"native": case(1e-3), "one TCP stream": case(5e-4)}}
    assert about_allreduce.about_link(timed, 4) == (
        "If each of 4 devices adds up another part of 1 MiB, every link carries 1.5 vectors each way, here at 1.57 "
        "GB/s; if one device added up all, its link would carry 3."
    )
    assert "launch --hosts" in about_allreduce.between_changes(timed, "gloo", 1)
    assert "launch --interface" in about_allreduce.between_changes(timed, "gloo", 2)
    alike = {2**20: {"native": case(1e-3), "one TCP stream": case(1.01e-3)}}
    assert about_allreduce.between_changes(alike, "gloo", 2) == LESS_NOISE


def test_a_sum_on_one_root_is_checked_too(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(checks.CHECKED, "parts on one root", lambda _, vectors: vectors)
    problems = parallel_core.run_allreduce(backend, ("sharded", "native"), (40,), rounds=1).problems
    assert problems[0].startswith("sums differ from NumPy's by ")


def test_parts_are_of_a_size_that_does_not_take_the_whole_budget() -> None:
    assert size_of_parts({4: 0, 2**20: 0, 2**28: 0}) == 2**20
    assert size_of_parts({2**26: 0, 2**28: 0}) == 2**26
