"""Variants run in interleaved rounds, and their times become ratios."""

import json

import click
import pytest

from benchmarks.harness import side_by_side
from benchmarks.harness.side_by_side import Measured, Variant
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.system.subprocesses import Outcome
from tests.benchmarks.synthetic import measured


def test_pairs_are_neighbours_in_a_process_so_that_drift_falls_on_both() -> None:
    drifting = [measured(ours=(1.1 * d, 2.2 * d, 4.4 * d), plain=(d, 2 * d, 4 * d)) for d in (1.0, 1.5, 0.5)]
    ratio = side_by_side.paired(drifting, "ours", "plain")
    assert (ratio.low, ratio.estimate, ratio.high) == pytest.approx((1.1, 1.1, 1.1))


def test_rounds_are_paired_for_ratios_and_differences() -> None:
    ratio = side_by_side.ratio_by_round([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    difference = side_by_side.difference_by_round([3.0, 4.0, 5.0], [4.0, 5.0, 6.0])
    assert (ratio.low, ratio.high) == pytest.approx((2, 2))
    assert side_by_side.scaled(difference, 10) == Interval(-10, -10, -10)


def test_a_case_is_found_by_the_beginning_of_its_name_if_that_is_unique() -> None:
    one = Measured({"native, 4 KiB": (3.0, 1.0, 2.0), "native, 1 MB": (9.0,), "star, 1 MB": (8.0,)}, {}, {})
    assert one.median("native, 4") == 2.0
    for name in ("native", "ring"):
        with pytest.raises(KeyError, match=f"begin with '{name}'"):
            one.median(name)


def outcome(status: int = 0, timed_out: bool = False, **answer: object) -> Outcome:
    return Outcome(status, json.dumps(answer) if answer else "", "it said this\n", timed_out)


ANSWER = {"cases": [{"name": "a", "seconds": [1.0]}], "metrics": {"m": 2.0}, "versions": {"torch": "2"}, "problems": []}


def test_answers_of_workers_and_of_the_command_line_are_read() -> None:
    library = {"library": "OpenBLAS", "version": "0.3.13", "instruction_set": "Haswell", "threads": 1}
    product = {"size": 512, "gflop_per_s": 48.7}
    backend = {"name": "mxnet", "version": "1.9.1", "kernels": [library], "product": product}
    assert side_by_side.read_answer(outcome(**ANSWER), "x") == Measured({"a": (1.0,)}, {"m": 2.0}, {"torch": "2"})
    ours = outcome(**{**ANSWER, "backend": backend})
    read = side_by_side.read_answer(ours, "x")
    assert (read.versions, read.figures) == ({"mxnet": "1.9.1"}, {"m": 2.0, "product_gflop_per_s": 48.7})
    assert read.kernels == {"mxnet": ["OpenBLAS 0.3.13, Haswell kernels"]}
    named = outcome(**{**ANSWER, "kernels": {"torch": ["MKL 2024.2"]}})
    assert side_by_side.read_answer(named, "x").kernels == {"torch": ["MKL 2024.2"]}


@pytest.mark.parametrize(
    ("gave", "said"),
    [
        (outcome(1, **{**ANSWER, "problems": ["7 is not 8"]}), "wrong result: 7 is not 8"),
        (outcome(3, **{**ANSWER, "problems": ["the whole was quicker than a part"]}), "the whole was quicker"),
        (outcome(1), "it said this"),
        (outcome(-9, timed_out=True), "killed"),
        (Outcome(0, "no JSON", "", False), "x: "),
    ],
)
def test_a_wrong_result_and_a_failure_end_a_benchmark(gave: Outcome, said: str) -> None:
    with pytest.raises(click.ClickException, match=said):
        side_by_side.read_answer(gave, "x")


def test_rounds_are_interleaved_and_one_core_changes_with_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, set[int]]] = []

    async def supervise(command: tuple[str, ...], _: float, cores: set[int]) -> Outcome:
        ran.append((command[0], cores))
        return outcome(**ANSWER)

    monkeypatch.setattr(side_by_side, "supervise", supervise)
    monkeypatch.setattr(side_by_side, "core_numbers", lambda: [3, 5, 7])
    found = side_by_side.take_turns([Variant("A", ("a",)), Variant("B", ("b",), "one")], 2)
    assert ran == [("a", {3, 5}), ("b", {3}), ("a", {3, 5}), ("b", {5})]
    assert [len(of) for of in found.values()] == [2, 2]


@pytest.mark.parametrize(("disturbed", "right"), [(2, True), (3, False)])
def test_a_disturbed_process_is_replaced_twice(monkeypatch: pytest.MonkeyPatch, disturbed: int, right: bool) -> None:
    given = iter([outcome(1, **{**ANSWER, "problems": ["it was too fast"]})] * disturbed + [outcome(**ANSWER)])

    async def supervise(command: tuple[str, ...], _: float, cores: set[int]) -> Outcome:  # noqa: ARG001
        return next(given)

    monkeypatch.setattr(side_by_side, "supervise", supervise)
    monkeypatch.setattr(side_by_side, "core_numbers", lambda: [0, 1])
    if right:
        assert len(side_by_side.take_turns([Variant("A", ("a",))], 1)["A"]) == 1
    else:
        with pytest.raises(click.ClickException, match="it was too fast"):
            side_by_side.take_turns([Variant("A", ("a",))], 1)
