"""The factors of a ratio of times: kernels × scheduling."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from backends.profiling import Timeline
from parallel_core.comparison.cells import Cell, CellResults, Comparison, FailedRun
from parallel_core.comparison.difference import compare_with_old
from parallel_core.comparison.factors import Factors, divide_by_trace, factors_of
from parallel_core.comparison.verdicts import TimeRatio, time_ratio
from parallel_core.trace_analysis.division import Division
from tests.parallel_core.comparison.made_up import TOGETHER, comparison, measured, parallel
from tests.parallel_core.trace_analysis.synthetic import parallel_timeline

ONE = (1.0, 1.002, 0.998, 1.001, 0.999)
MXNET, TORCH = parallel("mxnet"), parallel("torch")
SAME = "no difference shown"
PROCESSES = st.lists(st.tuples(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3)), min_size=1, max_size=6)


def with_bare(cell: Cell, processes: Sequence[tuple[float, float]]) -> CellResults:
    """Return a cell's results with a time and a bare time of each process."""
    whole = measured(cell, [seconds for seconds, _ in processes])
    bare = (
        replace(one, cases=tuple(replace(case, bare_seconds=(seconds,)) for case in one.cases))
        for one, (_, seconds) in zip(whole.results, processes, strict=True)
    )
    return replace(whole, results=tuple(bare))


def scaled(cell: Cell, whole: float, bare: float) -> CellResults:
    return with_bare(cell, [(whole * seconds, bare * seconds) for seconds in ONE])


def known(ratio: TimeRatio) -> tuple[float, float]:
    assert ratio.kernels is not None
    assert ratio.scheduling is not None
    return ratio.kernels.estimate, ratio.scheduling.estimate


@given(PROCESSES, PROCESSES)
def test_the_product_of_the_factors_is_the_ratio(
    mine: list[tuple[float, float]], theirs: list[tuple[float, float]]
) -> None:
    ratio = time_ratio(with_bare(MXNET, mine), with_bare(TORCH, theirs))
    assert math.prod(known(ratio)) == pytest.approx(ratio.interval.estimate, rel=1e-12)


@given(PROCESSES, PROCESSES)
def test_factors_do_not_depend_on_the_order_of_cells(
    mine: list[tuple[float, float]], theirs: list[tuple[float, float]]
) -> None:
    assume(sorted(mine) != sorted(theirs))
    cells = with_bare(MXNET, mine), with_bare(TORCH, theirs)
    there, back = factors_of(*cells, TOGETHER), factors_of(*reversed(cells), TOGETHER)
    for one, other in ((there.kernels, back.kernels), (there.scheduling, back.scheduling)):
        assert one is not None
        assert other is not None
        assert one.low == pytest.approx(1 / other.high if other.high < math.inf else 0)
        assert one.estimate == pytest.approx(1 / other.estimate)
    mirrored = {"faster": "slower", "slower": "faster"}
    for called, inverse in ((there[1], back[1]), (there[3], back[3])):
        assert called == mirrored.get(str(inverse), inverse)


def test_slow_kernels_and_a_slow_queue_are_told_apart() -> None:
    plain = scaled(TORCH, 1, 0.8)
    kernels, queue, both = (
        time_ratio(scaled(MXNET, *times), plain) for times in ((1.1, 0.88), (1.1, 0.8), (1.0, 0.88))
    )
    assert (kernels.kernels_verdict, kernels.scheduling_verdict) == ("slower", SAME)
    assert (queue.kernels_verdict, queue.scheduling_verdict) == (SAME, "slower")
    assert known(queue) == pytest.approx((1, 1.1))
    assert (both.verdict, both.kernels_verdict, both.scheduling_verdict) == (SAME, "slower", "faster")


def test_what_a_process_adds_to_both_times_is_not_taken_for_scheduling() -> None:
    noisy = [(1.0, 0.5), (1.3, 0.65), (0.8, 0.4), (1.1, 0.55), (0.9, 0.45)]
    ratio = time_ratio(with_bare(MXNET, [(1.05 * whole, bare) for whole, bare in noisy]), with_bare(TORCH, noisy))
    assert (ratio.verdict, ratio.kernels_verdict, ratio.scheduling_verdict) == (SAME, SAME, "slower")


def test_few_processes_allow_no_verdict_on_a_factor() -> None:
    ratio = time_ratio(with_bare(MXNET, [(2, 1)] * 2), with_bare(TORCH, [(1, 1)] * 2))
    assert (ratio.kernels_verdict, ratio.scheduling_verdict) == ("too few runs", "too few runs")


def test_a_process_without_a_bare_time_leaves_the_ratio_undivided() -> None:
    some = scaled(MXNET, 1, 0.8)
    partly = replace(some, results=(*some.results[:4], *measured(MXNET, ONE[:1]).results))
    for mine, theirs in ((some, measured(TORCH, ONE)), (measured(TORCH, ONE), some), (partly, some)):
        ratio = time_ratio(mine, theirs)
        assert (ratio.kernels, ratio.scheduling) == (None, None)
        assert ratio.interval.estimate == 1


def test_old_results_are_read_without_factors_and_new_ones_with() -> None:
    old = comparison(scaled(MXNET, 1, 0.8), measured(TORCH, ONE)).as_json()
    for cell in old["cells"]:
        for result in cell["results"]:
            for case in result["cases"]:
                if not case["bare_seconds"]:
                    del case["bare_seconds"]
    mxnet, torch = Comparison.from_json(old).cells
    assert factors_of(mxnet, torch, TOGETHER) == Factors()
    assert factors_of(mxnet, mxnet, TOGETHER).kernels_verdict == SAME


def test_a_change_is_divided_as_well() -> None:
    found = compare_with_old(
        comparison(scaled(MXNET, 1, 0.8), measured(TORCH, ONE)),
        comparison(scaled(MXNET, 1.1, 0.88), measured(TORCH, ONE)),
    )
    divided, whole = found.as_json()["changes"]
    assert (divided["verdict"], divided["kernels"]["verdict"]) == ("slower", "slower")
    assert divided["kernels"]["low"] < 1.1 < divided["kernels"]["high"]
    assert divided["kernels"]["ratio"] * divided["scheduling"]["ratio"] == pytest.approx(divided["ratio"])
    assert divided["scheduling"]["verdict"] == SAME
    assert (whole["kernels"], whole["scheduling"]) == (None, None)


def by_trace(results: CellResults) -> Division | str:
    def timeline_of(cell: Cell) -> Timeline:
        assert cell == results.cell
        return parallel_timeline()

    return divide_by_trace(results, TOGETHER, timeline_of)


def test_a_trace_is_divided_by_the_times_of_the_process_that_wrote_it() -> None:
    found = by_trace(with_bare(TORCH, [(0.21, 0.2), (0.41, 0.4), (0.61, 0.6)]))
    assert isinstance(found, Division)
    assert found.bare_seconds == 0.2


def test_without_the_times_of_the_process_that_wrote_it_a_trace_is_not_divided() -> None:
    three = with_bare(TORCH, [(0.21, 0.2), (0.41, 0.4), (0.61, 0.6)])
    invalid = replace(three, results=(replace(three.results[0], problems=("wrong",)), *three.results[1:]))
    assert by_trace(invalid) == "the result of the process that was profiled is invalid"
    assert by_trace(replace(three, failures=(FailedRun(1, "crash", False),))) == "the profiled process failed: crash"
    assert isinstance(by_trace(replace(three, failures=(FailedRun(2, "crash", False),))), Division)
