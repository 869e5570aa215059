"""The clock beside the trace: when the two agree, what is said when they do not, and how uncertain either is."""

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
from parallel_core.trace_analysis.clock_agreement import (
    COMPARED,
    DISPATCH,
    SECONDS,
    Agreement,
    about_efficiency,
    agreements,
    overhead,
    propagated,
    stretches,
)
from parallel_core.trace_analysis.figures import timeline_figures
from parallel_core.trace_analysis.lanes import overlap_phrases
from tests.parallel_core.comparison import made_up as comparisons
from tests.parallel_core.trace_analysis.synthetic import (
    JOINT,
    clocked,
    held,
    overlap_result,
    overlap_timeline,
    parallel_timeline,
)

SHARES = st.floats(0.01, 0.5)
TIMES = st.floats(1e-3, 1e3)


def of(found: tuple[Agreement, ...], quantity: str, case: str = JOINT) -> Agreement:
    (one,) = (one for one in found if (one.case, one.quantity) == (case, quantity))
    return one


def test_what_overlaps_and_saves_time_agrees() -> None:
    one = of(held(overlap_result(0.2, 0.2, 0.205)), "overlap_efficiency")
    assert one.agree
    assert (one.by_trace, one.by_clock) == (pytest.approx(0.98), pytest.approx(0.975))
    assert (
        "by the trace 98 % of the shorter part lay under the other, by the clock 98 % of it was saved" in one.sentence
    )
    assert "agree within the noise" in one.sentence


def test_overlap_that_slows_the_operations_down_saves_less_and_it_is_said() -> None:
    one = of(held(overlap_result(0.2, 0.2, 0.3), stretch=1.5), "overlap_efficiency")
    assert not one.agree
    assert one.by_trace > one.by_clock + one.noise
    assert "Computations took 1.5 × as long as alone and copies took 1.5 × as long as alone." in one.sentence


def test_time_saved_without_overlap_is_called_a_disagreement_the_other_way() -> None:
    one = of(held(overlap_result(0.2, 0.2, 0.205), together=False), "overlap_efficiency")
    assert not one.agree
    assert one.by_trace == 0 < one.by_clock
    assert "The trace does not show why" in one.sentence


def test_parts_that_were_idle_when_alone_explain_a_saving_without_overlap() -> None:
    timeline = overlap_timeline(together=False)
    run = timeline.cases[0]
    # Every second product of the run is left out of it: its device waited for something.
    alone = [span for span in timeline.spans if span.start < run.end]
    kept = [span for place, span in enumerate(alone) if span.kind == "host" or place % 4 < 2]
    later = [span for span in timeline.spans if span.start >= run.end]
    found = timeline_figures(replace(timeline, spans=(*kept, *later)))
    one = of(agreements(overlap_result(0.2, 0.2, 0.205), found, {}), "overlap_efficiency")
    assert "Alone, no operation ran in " in one.sentence
    assert "of the time of “run”" in one.sentence


def test_noisy_times_make_no_disagreement() -> None:
    quiet, noisy = (held(overlap_result(0.2, 0.2, 0.225, spread)) for spread in (0.0, 0.2))
    assert not of(quiet, "overlap_efficiency").agree
    assert of(noisy, "overlap_efficiency").agree


@pytest.mark.parametrize(("together", "agrees"), [(0.2, True), (0.26, False)])
def test_devices_at_once_are_held_against_the_speedup(together: float, agrees: bool) -> None:
    timeline = parallel_timeline(stretch=together / 0.2)
    names = ("on cpu:1 alone", "on cpu:2 alone")
    seconds = {**dict.fromkeys(names, 0.2), "on all together": together}
    made = comparisons.result(Cell("parallel", "torch", "async"), seconds, metrics={"parallel_speedup": 0.4 / together})
    # Two workers serve each device: they are queues, and no more devices.
    found = tuple(replace(case, queues_at_once=4.0) for case in timeline_figures(timeline))
    one = of(agreements(made, found, clocked(found)), "parallel_speedup", "on all together")
    assert one.by_trace == pytest.approx(2, rel=0.01)
    assert one.agree == agrees
    assert ("Computations took 1.3 × as long as alone." in one.sentence) == (not agrees)


def test_the_time_and_the_share_of_dispatch_are_compared_for_every_case() -> None:
    found = held(overlap_result(0.2, 0.2, 0.204))
    assert [(one.case, one.quantity) for one in found[1:]] == [
        (case, quantity) for case in ("run", "copy", JOINT) for quantity in (SECONDS, DISPATCH)
    ]
    assert all(one.agree for one in found)


def test_a_profiler_that_slows_a_case_down_is_called_so() -> None:
    one = of(held(overlap_result(0.2, 0.15, 0.2)), SECONDS, "copy")
    assert not one.agree
    assert "Under the profiler it took 1.33 × as long" in one.sentence
    other = of(held(overlap_result(0.2, 0.25, 0.3)), SECONDS, "copy")
    assert not other.agree
    assert "The trace does not show" in other.sentence


def test_dispatch_that_differs_either_way_is_said() -> None:
    eager, queued = (held(overlap_result(0.2, 0.2, 0.4), synchronous=synchronous) for synchronous in (True, False))
    assert (
        "100 % of the time by the trace, 1 % by the clock: they differ by more" in of(eager, DISPATCH, "run").sentence
    )
    assert of(queued, DISPATCH, "run").agree


def test_what_was_done_several_times_is_divided_and_its_dispatch_left_out() -> None:
    result = overlap_result(0.02, 0.2, 0.2)
    result = replace(result, cases=(replace(result.cases[0], repeats=10), *result.cases[1:]))
    found = timeline_figures(overlap_timeline())
    compared = agreements(result, found, {**clocked(found), "run": 0.02})
    assert of(compared, SECONDS, "run").agree
    assert not [one for one in compared if (one.case, one.quantity) == ("run", DISPATCH)]


def test_a_clock_that_measures_something_else_is_not_called_overhead() -> None:
    found = timeline_figures(overlap_timeline())
    compared = agreements(overlap_result(0.004, 0.2, 0.204), found, {**clocked(found), "run": 0.004})
    assert "do not measure the same thing" in of(compared, SECONDS, "run").sentence
    assert not [one for one in compared if (one.case, one.quantity) == ("run", DISPATCH)]


def test_what_only_one_side_knows_is_left_out() -> None:
    result = overlap_result(0.2, 0.2, 0.204)
    assert agreements(result, (), {}) == ()
    assert agreements(replace(result, cases=()), timeline_figures(overlap_timeline()), {}) == ()
    unknown = replace(result, metrics={"overlap_efficiency": math.nan})
    assert of(held(unknown), SECONDS).agree
    assert all(one.quantity in (SECONDS, DISPATCH) for one in held(unknown))


def test_the_overhead_is_of_the_same_clock_with_and_without_profiler() -> None:
    result = overlap_result(1.0, 2.0, 4.0)
    found = overhead(result, {"run": 1.1, "copy": 2.0, JOINT: 4.4, "another": 9.0})
    assert found is not None
    assert found.ratios == pytest.approx({"run": 1.1, "copy": 1.0, JOINT: 1.1})
    assert found.sentence == "Under the profiler it took 1.10 × as long (median of 3 cases)."
    assert overhead(result, {}) is None


def test_operations_are_held_against_the_same_kind_in_the_parts() -> None:
    run, copy, together = timeline_figures(overlap_timeline(stretch=1.25))
    assert stretches(together, (run, copy)) == pytest.approx({"compute": 1.25, "copy": 1.25})
    assert stretches(together, (run,)) == pytest.approx({"compute": 1.25})


def test_the_cases_and_metrics_that_are_compared_exist() -> None:
    backend = backends.load("numpy", 2, "cpu", "sync", 1)
    results = (
        EXPERIMENTS["overlap"].run(backend, size=8, copies=1, rounds=3),
        EXPERIMENTS["parallel"].run(backend, size=8, rounds=3),
    )
    found = {(case.name, metric) for result in results for case in result.cases for metric in result.metrics}
    assert set(COMPARED) <= found


def formula(metric: str) -> Formula:
    (found,) = (
        one.formula for name in ("overlap", "parallel") for one in EXPERIMENTS[name].metrics if one.name == metric
    )
    assert found is not None
    return found


@given(TIMES, TIMES, SHARES, SHARES)
def test_noises_add_as_squares_and_count_up_and_down_alike(one: float, other: float, share: float, more: float) -> None:
    times = {"on a alone": one, "on b alone": other, "on all together": 1.0}
    speedup = formula("parallel_speedup")
    made = propagated(speedup, times, {"on a alone": share, "on b alone": more})
    assert made == pytest.approx(math.hypot(one * share, other * more))
    of_all = propagated(speedup, times, {"on all together": share})
    assert of_all == pytest.approx((one + other) * (1 / (1 - share) - 1 / (1 + share)) / 2)


@given(TIMES, TIMES, st.floats(1, 3), SHARES, st.floats(1.01, 1.5))
def test_more_noise_in_the_times_is_more_noise_in_the_share(
    run: float, copy: float, longer: float, share: float, factor: float
) -> None:
    times = {"run": run, "copy": copy, JOINT: max(run, copy) * longer}
    less, more = (
        propagated(formula("overlap_efficiency"), times, dict.fromkeys(times, noise))
        for noise in (share, share * factor)
    )
    assert 0 < less < more


@given(TIMES, SHARES)
def test_every_noise_has_a_floor(seconds: float, share: float) -> None:
    result = overlap_result(seconds, seconds, seconds, share)
    for one in held(result):
        if one.quantity == SECONDS:
            assert one.noise == pytest.approx(max(share, MIN_NOISE) * result.cases[0].median)
        else:
            assert one.noise >= MIN_NOISE


def test_noise_as_large_as_the_quantity_agrees_with_nothing() -> None:
    one = Agreement("run", "overlap_efficiency", by_trace=0.1, by_clock=4.5, noise=173, sentence="")
    assert one.agree
    assert one.too_noisy
    assert not replace(one, noise=4.4).too_noisy


def test_copies_that_are_hidden_are_told_with_the_devices_that_worked() -> None:
    told = about_efficiency(timeline_figures(overlap_timeline(products=50))[-1])
    assert "1.96 of 2 devices worked at the same time, on average, 98 % of the shorter of computing and" in told
    assert told.endswith("was hidden, and nothing ran for 0 % of the time.")


def test_of_a_case_that_communicates_nothing_no_share_is_told() -> None:
    told = about_efficiency(timeline_figures(parallel_timeline())[-1])
    assert "hidden" not in told
    assert "devices worked at the same time, on average, and nothing ran for" in told


def test_of_a_case_without_operations_nothing_is_told() -> None:
    (empty,) = timeline_figures(Timeline("made up", ()))
    assert about_efficiency(empty) == ""


def test_of_a_case_that_the_profiler_slowed_down_no_figure_is_told() -> None:
    timeline = overlap_timeline()
    seconds = {case.case: case.seconds for case in timeline_figures(timeline)}
    for slowdown, figures in ((1.2, True), (6.2, False)):
        timed = {case: taken / slowdown for case, taken in seconds.items()}
        case = timeline_figures(replace(timeline, timed=timed))[-1]
        assert case.slowdown == pytest.approx(slowdown)
        assert ("%" in about_efficiency(case)) == figures
        assert (overlap_phrases(case) == (case.slowed_in_words,)) == (not figures)
        assert ("6.2" in case.slowed_in_words) == (not figures)
