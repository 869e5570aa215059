"""The clock beside the trace: when the two agree, what is left out, and how uncertain either is."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
from backends.profiling import Timeline
from parallel_core.comparison.cells import Cell
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.metrics import Formula
from parallel_core.measurement.verdicts import MIN_NOISE
from parallel_core.trace_analysis.figures import timeline_figures
from parallel_core.trace_analysis.lanes import overlap_phrases
from parallel_core.trace_analysis.profiling_run import (
    CAUSES,
    COMPARED,
    DISPATCH,
    SECONDS,
    Agreement,
    about_efficiency,
    agreements,
    overhead,
    propagated,
)
from tests.parallel_core.comparison import made_up as comparisons
from tests.parallel_core.trace_analysis.synthetic import (
    JOINT,
    held,
    overlap_figures,
    overlap_result,
    parallel_timeline,
)

SHARES = st.floats(0.01, 0.5)
TIMES = st.floats(1e-3, 1e3)
OVERLAP = "overlap_efficiency"


def of(found: tuple[Agreement, ...], quantity: str, case: str = JOINT) -> Agreement:
    (one,) = (one for one in found if (one.case, one.quantity) == (case, quantity))
    return one


@pytest.mark.parametrize(
    ("both", "changes", "by_trace", "by_clock"),
    [
        (0.205, {}, 0.98, 0.975),
        # What slows the operations down overlaps and saves nothing.
        (0.3, {"stretch": 1.5}, 0.98, 0.5),
        (0.205, {"together": False}, 0, 0.975),
    ],
)
def test_overlap_is_held_against_the_time_that_it_saved(
    both: float, changes: dict[str, float], by_trace: float, by_clock: float
) -> None:
    one = of(held(overlap_result(0.2, 0.2, both), **changes), OVERLAP)
    assert (one.by_trace, one.by_clock) == (pytest.approx(by_trace), pytest.approx(by_clock))
    assert one.agree == (by_clock > 0.9 < by_trace)


def test_noisy_times_make_no_disagreement() -> None:
    quiet, noisy = (held(overlap_result(0.2, 0.2, 0.225, spread)) for spread in (0.0, 0.2))
    assert not of(quiet, OVERLAP).agree
    assert of(noisy, OVERLAP).agree


@pytest.mark.parametrize(("together", "agrees"), [(0.2, True), (0.26, False)])
def test_devices_at_once_are_held_against_the_speedup(together: float, agrees: bool) -> None:
    timeline = parallel_timeline(stretch=together / 0.2)
    seconds = {"on cpu:1 alone": 0.2, "on cpu:2 alone": 0.2, "on all together": together}
    made = comparisons.result(Cell("parallel", "torch", "async"), seconds, metrics={"parallel_speedup": 0.4 / together})
    # Two workers serve each device: they are queues, and no more devices.
    found = tuple(replace(case, queues_at_once=4.0) for case in timeline_figures(timeline))
    one = of(agreements(made, found), "parallel_speedup", "on all together")
    assert one.by_trace == pytest.approx(2, rel=0.01)
    assert one.agree == agrees


def test_the_time_and_the_share_of_dispatch_are_compared_for_every_case() -> None:
    found = held(overlap_result(0.2, 0.2, 0.204))
    assert [(one.case, one.quantity) for one in found[1:]] == [
        (case, quantity) for case in ("run", "copy", JOINT) for quantity in (SECONDS, DISPATCH)
    ]
    assert all(one.agree for one in found)
    # A synchronous engine's calls compute themselves.
    eager = of(held(overlap_result(0.2, 0.2, 0.4), synchronous=True), DISPATCH, "run")
    assert (eager.by_trace, eager.by_clock) == (pytest.approx(1, abs=0.01), 0.01)
    assert not eager.agree


def test_a_time_that_differs_is_said_with_the_noise() -> None:
    one = of(held(overlap_result(0.2, 0.15, 0.2)), SECONDS, "copy")
    assert not one.agree
    assert "200 ms by the trace, 150 ms by the clock" in one.sentence
    assert one.sentence.endswith(CAUSES[SECONDS])


def test_what_was_done_several_times_is_divided_and_its_dispatch_left_out() -> None:
    result = overlap_result(0.02, 0.2, 0.2)
    result = replace(result, cases=(replace(result.cases[0], repeats=10), *result.cases[1:]))
    compared = held(result)
    assert of(compared, SECONDS, "run").agree
    assert not [one for one in compared if (one.case, one.quantity) == ("run", DISPATCH)]


def test_what_only_one_side_knows_is_left_out() -> None:
    result = overlap_result(0.2, 0.2, 0.204)
    assert agreements(result, ()) == ()
    assert held(replace(result, cases=())) == ()
    unknown = held(replace(result, metrics={OVERLAP: math.nan}))
    assert {one.quantity for one in unknown} == {SECONDS, DISPATCH}


def test_the_overhead_is_of_the_same_clock_with_and_without_profiler() -> None:
    result = overlap_result(1.0, 2.0, 4.0)
    found = overhead(result, {"run": 1.1, "copy": 2.0, JOINT: 4.8, "another": 9.0})
    assert ("1.10 ×" in found, "3 cases" in found) == (True, True)
    assert "1.30 ×" in overhead(result, {JOINT: 5.2})


def test_the_cases_and_metrics_that_are_compared_exist() -> None:
    backend = backends.load("numpy", 2, "cpu", "sync", 1)
    results = (
        EXPERIMENTS["overlap"].run(backend, size=8, copies=1, rounds=3),
        EXPERIMENTS["parallel"].run(backend, size=8, rounds=3),
    )
    found = {(case.name, metric) for result in results for case in result.cases for metric in result.metrics}
    assert set(COMPARED) <= found


def formula(experiment: str, metric: str) -> Formula:
    found = EXPERIMENTS[experiment].metric_named(metric).formula
    assert found is not None
    return found


@given(TIMES, TIMES, SHARES, SHARES)
def test_noises_add_as_squares_and_count_up_and_down_alike(one: float, other: float, share: float, more: float) -> None:
    times = {"on a alone": one, "on b alone": other, "on all together": 1.0}
    speedup = formula("parallel", "parallel_speedup")
    made = propagated(speedup, times, {"on a alone": share, "on b alone": more})
    assert made == pytest.approx(math.hypot(one * share, other * more))
    of_all = propagated(speedup, times, {"on all together": share})
    assert of_all == pytest.approx((one + other) * (1 / (1 - share) - 1 / (1 + share)) / 2)


@given(TIMES, SHARES)
def test_every_noise_has_a_floor(seconds: float, share: float) -> None:
    result = overlap_result(seconds, seconds, seconds, share)
    for one in held(result):
        if one.quantity == SECONDS:
            assert one.noise == pytest.approx(max(share, MIN_NOISE) * result.cases[0].median)
        else:
            assert one.noise >= MIN_NOISE


def test_noise_as_large_as_the_quantity_agrees_with_nothing() -> None:
    one = Agreement("run", OVERLAP, by_trace=0.1, by_clock=4.5, noise=173)
    assert one.agree
    assert one.too_noisy
    assert not replace(one, noise=4.4).too_noisy


def test_devices_that_worked_and_what_was_hidden_are_told() -> None:
    told = about_efficiency(overlap_figures()[-1])
    assert "1.96 of 2 devices" in told
    assert "98 % of the shorter" in told
    assert "hidden" not in about_efficiency(timeline_figures(parallel_timeline())[-1])
    (empty,) = timeline_figures(Timeline("made up", ()))
    assert about_efficiency(empty) == ""


def test_of_a_case_that_the_profiler_slowed_down_no_figure_is_told() -> None:
    for slowdown, figures in ((1.2, True), (6.2, False)):
        case = replace(overlap_figures()[-1], slowdown=slowdown)
        assert ("%" in about_efficiency(case)) == figures
        assert (overlap_phrases(case) == (case.slowed_in_words,)) == (not figures)
        assert ("6.2" in case.slowed_in_words) == (not figures)
