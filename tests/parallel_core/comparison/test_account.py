"""What times are made of, which parts explain a difference, and what speaks against times: pyperf's own warnings."""

from collections.abc import Mapping

import pyperf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyperf._cli import format_checks

from parallel_core.comparison.account import account_of, systematic_errors, time_difference
from parallel_core.comparison.cells import Cell, CellResults
from parallel_core.comparison.difference import compare_with_old
from parallel_core.comparison.validity import assess, instabilities
from parallel_core.terminal.comparison import show_difference
from tests.parallel_core.comparison.made_up import ONE, TOGETHER, comparison, measured, parallel, result, with_parts
from tests.parallel_core.terminal.printed import printed

MXNET, TORCH = parallel("mxnet"), parallel("torch")
PARTS = {"operations": 0.6, "overhead": 0.2, "transfer": 0.1}


def made_of(cell: Cell, whole: float, parts: Mapping[str, float], noise: tuple[float, ...] = ONE) -> CellResults:
    """Return a cell's results with a time and its parts, in seconds, in each process."""
    results = measured(cell, [whole * one for one in noise])
    return with_parts(results, {part: taken / whole for part, taken in parts.items()})


def scaled(cell: Cell, whole: float, bare: float) -> CellResults:
    """Return a cell of which only the bare time is known, as of a training step."""
    return made_of(cell, whole, {"bare": bare})


@given(st.lists(st.floats(0.5, 2), min_size=1, max_size=6), st.lists(st.floats(-0.5, 1), min_size=3, max_size=3))
def test_in_every_process_the_parts_add_up_to_the_time(noise: list[float], shares: list[float]) -> None:
    results = made_of(MXNET, 1.0, dict(zip(PARTS, shares, strict=True)), tuple(noise))
    account = account_of(results, TOGETHER)
    assert list(account) == [*PARTS, "rest"]
    for time, *parts in zip(results.medians(TOGETHER), *account.values(), strict=True):
        assert sum(parts) == pytest.approx(time)


@pytest.mark.parametrize("part", [*PARTS, "rest"])
@pytest.mark.parametrize("sign", [1, -1])
def test_what_one_part_adds_is_told_as_that_part_alone(part: str, sign: int) -> None:
    usual = made_of(TORCH, 1.0, PARTS)
    more = {name: seconds + 0.1 * (name == part) for name, seconds in PARTS.items()}
    cells = made_of(MXNET, 1.1, more), usual
    difference = time_difference(*cells[::sign])
    assert difference.verdict == ("slower" if sign == 1 else "faster")
    assert difference.reasons == (part,)
    assert difference.parts[part].estimate == pytest.approx(0.1 * sign, rel=0.1)
    assert difference.seconds.estimate == pytest.approx(0.1 * sign)


def test_no_reason_is_told_within_twice_the_systematic_error_or_of_equal_times() -> None:
    usual, slower = made_of(TORCH, 1.0, PARTS), made_of(MXNET, 1.1, PARTS | {"operations": 0.7})
    assert time_difference(slower, usual, errors={"torch": 0.04}).reasons == ("operations",)
    assert time_difference(slower, usual, errors={"torch": 0.06}).reasons == ()
    # Slower operations that something else makes good explain no difference.
    assert time_difference(made_of(MXNET, 1.0, PARTS | {"operations": 0.7}), usual).reasons == ()
    few = time_difference(made_of(MXNET, 2.0, PARTS, ONE[:2]), made_of(TORCH, 1.0, PARTS, ONE[:2]))
    assert (few.verdict, few.reasons) == ("too few runs", ())


def test_the_engines_of_a_framework_tell_the_systematic_error_of_its_operations() -> None:
    engines = [
        made_of(parallel("torch", engine), 1.0, {"operations": taken})
        for engine, taken in (("async", 0.6), ("sync", 0.63))
    ]
    errors = systematic_errors([*engines, made_of(MXNET, 1.0, PARTS)], TOGETHER)
    assert errors == {"torch": pytest.approx(0.03)}


def test_what_only_one_side_has_is_compared_with_nothing_and_impossible_operations_withhold_reasons() -> None:
    assert time_difference(scaled(MXNET, 1, 0.8), made_of(TORCH, 2, PARTS)).parts == {}
    assert list(account_of(scaled(MXNET, 1, 0.8), TOGETHER)) == ["operations", "rest"]
    assert account_of(measured(MXNET, ONE), TOGETHER) == {}
    # Operations took longer than their case.
    doubtful = time_difference(scaled(MXNET, 1.0, 1.2), scaled(TORCH, 2.0, 1.0))
    assert doubtful.reasons == ()
    assert doubtful.withheld.startswith(TOGETHER)


def test_a_change_between_comparisons_has_reasons_too() -> None:
    old, new = (comparison(made_of(MXNET, 1 + more, PARTS | {"overhead": 0.2 + more})) for more in (0.0, 0.1))
    found = compare_with_old(old, new)
    (change,) = found.as_json()["changes"]
    assert (change["verdict"], change["reasons"]) == ("slower", ("overhead",))
    assert change["parts"]["overhead"]["low"] < 0.1 < change["parts"]["overhead"]["high"]
    assert "issuing 100 ms" in printed(show_difference, found)


@pytest.mark.parametrize(
    "values",
    [
        (0.1, 0.1001, 0.0999, 0.1002),
        (0.1, 0.13, 0.1, 0.13),
        (*(0.1,) * 50, 0.151),
        (*(0.1,) * 50, 0.049),
        (0.0009, 0.0009, 0.0009001),
        (*(0.1,) * 5, 0.2),
    ],
    ids=["stable", "noisy", "a long one", "a short one", "all short", "few and a long one"],
)
def test_the_warnings_are_those_of_pyperf(values: tuple[float, ...]) -> None:
    run = pyperf.Run(values, metadata={"name": "a case"}, collect_metadata=False)
    found, told = " ".join(instabilities(values, values)), " ".join(format_checks(pyperf.Benchmark([run])))
    for sign in ("standard deviation", "the minimum", "the maximum", "the shortest"):
        assert (sign in found) == (sign in told), told


def test_short_times_that_were_timed_together_are_long_enough() -> None:
    short = (1e-5, 1.01e-5)
    assert instabilities(short, short) == ("the shortest time is only 10.0 μs",)
    assert instabilities(short, [200 * seconds for seconds in short]) == ()


@pytest.mark.parametrize(("seconds", "state"), [(1.02, "measured"), (0.97, "measured"), (0.8, "invalid")])
def test_a_whole_that_is_faster_than_its_slowest_part_is_invalid(seconds: float, state: str) -> None:
    took = {"alone": 1.0, "other": 0.5, TOGETHER: seconds}
    runs = (result(TORCH, {name: taken * drift for name, taken in took.items()}) for drift in ONE)
    assert assess(CellResults(TORCH, tuple(runs)))[0] == state
