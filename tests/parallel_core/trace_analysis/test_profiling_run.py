"""A result's cases are repeated under the profiler when all has been timed, and the clock stands
beside the trace.

When the two agree, what is left out, and how uncertain either is.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
import parallel_core
from backends import Backend, BackendError
from backends.profiling import Timeline, check_profiler
from parallel_core import Result, Settings
from parallel_core.comparison.cells import Cell
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation import increments
from parallel_core.experiments.automatic_parallelism import small_ops
from parallel_core.measurement.timing import repeatable
from parallel_core.measurement.verdicts import MIN_NOISE
from parallel_core.system.errors import MeasurementError
from parallel_core.trace_analysis.figures import timeline_figures
from parallel_core.trace_analysis.lanes import overlap_phrases
from parallel_core.trace_analysis.profiling_run import (
    CAUSES,
    COMPARED,
    DISPATCH,
    MAX_PROFILED_CASES,
    SECONDS,
    Agreement,
    about_efficiency,
    agreements,
    overhead,
    profile,
    propagated,
)
from parallel_core.training.dataset import synthetic
from tests.backends.profiling.work import overlapping
from tests.parallel_core.comparison import made_up as comparisons
from tests.parallel_core.experiments.small import small
from tests.parallel_core.trace_analysis.synthetic import (
    JOINT,
    held,
    overlap_figures,
    overlap_result,
    parallel_timeline,
)

Load = Callable[[int], Backend]
ON_SYNC = ("overlap", "data-parallel")
"""Without a queue a profile has the same operators: two experiments are enough."""

FEW = synthetic("a test needs no more", train=48, test=8)
SMALLER: Mapping[str, dict[str, Any]] = {
    "data-parallel": {"data": FEW, "settings": Settings(2, 16)},
    "learning-rates": {"data": FEW, "rates": (0.1,), "settings": Settings(1, 8, limit=2)},
}
"""Than those of the experiments' own tests: here only the profile counts."""


def small_run(backend: Backend, experiment: str, **options: Any) -> Result:
    return EXPERIMENTS[experiment].run(
        backend, **{**small(experiment), **SMALLER.get(experiment, {}), **options}
    )


@pytest.fixture
def load_profiled(load: Load) -> Load:
    """Load a backend that can be profiled, with some devices."""

    def load_with(devices: int) -> Backend:
        backend = load(devices)
        try:
            check_profiler(backend)
        except BackendError as error:
            pytest.skip(str(error))
        return backend

    return load_with


@pytest.fixture(autouse=True)
def _soon_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply twice instead of often, and queue small arrays."""
    monkeypatch.setattr(small_ops, "TARGET_SECONDS", 0.0)
    monkeypatch.setattr(increments, "SIDE", 64)


@pytest.fixture
def profiled(load_profiled: Load) -> Backend:
    return load_profiled(2)


# Each at once on one framework, and on the other one among the long tests.
@pytest.mark.parametrize(
    ("experiment", "frameworks"),
    [
        pytest.param(
            name, ("mxnet",) if is_first == bool(place % 2) else ("torch", "jax"), marks=marks
        )
        for place, name in enumerate(sorted(EXPERIMENTS))
        for is_first, marks in ((True, ()), (False, pytest.mark.long))
    ],
)
def test_every_experiment_can_be_seen(
    load_profiled: Load,
    experiment: str,
    frameworks: tuple[str, ...],
    backend_name: str,
    engine: str,
) -> None:
    if backend_name not in frameworks:
        pytest.skip(f"on {backend_name} it is another test")
    if engine == "sync" and experiment not in ON_SYNC:
        pytest.skip("without a queue others are profiled")
    profiled = load_profiled(min(3, EXPERIMENTS[experiment].devices))
    with repeatable():
        result = small_run(profiled, experiment)
    before = result.as_json()
    found = profile(profiled, result)
    assert result.as_json() == before
    names = [case.name for case in found.timeline.cases]
    assert list(found.seconds) == names
    assert {EXPERIMENTS[experiment].case} & {case.name for case in result.cases} <= set(names)
    assert overlapping(found.timeline) == []
    assert f"{profiled.name} {profiled.version}, {profiled.engine} engine" == found.timeline.source
    # What only loads arrays, or divides them into views, may run no operator.
    working = {
        seen.case
        for seen in timeline_figures(found.timeline)
        if any(queue.device != "host" for queue in seen.queues)
    }
    idle = {name for name in set(names) - working if not name.startswith("dividing alone")}
    assert idle <= {"get_params", "split_and_load"}


def test_the_asynchronous_engine_is_seen_to_overlap_and_the_synchronous_one_never(
    profiled: Backend,
) -> None:
    with repeatable():
        result = parallel_core.run_overlap(profiled, size=300, copies=2, rounds=1)
    # Whose turn it is when cores are few is the kernel's choice: what overlaps is seen in one of
    # some repetitions.
    for _ in range(20 if profiled.engine == "async" else 1):
        seen = {found.case: found for found in timeline_figures(profile(profiled, result).timeline)}
        together, book = seen["run and copy together"], seen["together the book's way"]
        assert book.hidden_share == 0
        assert together.hidden_share is not None
        if profiled.engine == "sync":
            assert together.hidden_share == 0
            assert together.queues_at_once == pytest.approx(1)
        if together.hidden_share > 0:
            break
    assert (together.hidden_share > 0) == (profiled.engine == "async")


def test_a_training_s_profile_is_of_a_share_of_an_epoch(profiled: Backend) -> None:
    with repeatable():
        result = small_run(profiled, "data-parallel")
    (case,) = (case for case in result.cases if case.name == EXPERIMENTS["data-parallel"].case)
    assert 0 < case.share <= 1
    steps = case.share * len(result.series["loss"]) / result.parameters["epochs"]
    launches = [
        span
        for span in profile(profiled, result).timeline.spans
        if span.name == "launch value_and_gradients"
    ]
    assert len(launches) == round(steps) * len(profiled.devices)


def test_of_many_cases_those_are_repeated_that_a_comparison_shows(profiled: Backend) -> None:
    with repeatable():
        result = small_run(profiled, "barriers", deepest=64)
    found = profile(profiled, result)
    assert EXPERIMENTS["barriers"].case in found.seconds
    assert len(found.seconds) <= MAX_PROFILED_CASES < len(result.cases)
    assert any(
        note.startswith(f"{len(found.seconds)} of {len(result.cases)} cases")
        for note in found.timeline.notes
    )


@pytest.mark.parametrize("experiment", ["parallel", "data-parallel"])
def test_where_nobody_was_going_to_repeat_it_a_result_keeps_no_arrays_and_is_refused(
    experiment: str,
) -> None:
    numpy = backends.load("numpy", 2)
    result = small_run(numpy, experiment)
    assert {case.again for case in result.cases} == {None}
    with pytest.raises(MeasurementError, match=rf"^no case of this result of {experiment} can be"):
        profile(numpy, result)


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


@pytest.mark.parametrize(("together", "agrees"), [(0.2, True), (0.26, False)])
def test_devices_at_once_are_held_against_the_speedup(together: float, agrees: bool) -> None:
    timeline = parallel_timeline(stretch=together / 0.2)
    seconds = {"on cpu:1 alone": 0.2, "on cpu:2 alone": 0.2, "on all together": together}
    made = comparisons.result(
        Cell("parallel", "torch", "async"), seconds, metrics={"parallel_speedup": 0.4 / together}
    )
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


def test_a_time_that_differs_is_said_with_the_noise_and_noisy_times_make_no_disagreement() -> None:
    one = of(held(overlap_result(0.2, 0.15, 0.2)), SECONDS, "copy")
    assert not one.agree
    assert "200 ms by the trace, 150 ms by the clock" in one.sentence
    assert one.sentence.endswith(CAUSES[SECONDS])
    quiet, noisy = (
        of(held(overlap_result(0.2, 0.2, 0.225, spread)), OVERLAP).agree for spread in (0.0, 0.2)
    )
    assert (quiet, noisy) == (False, True)


def test_what_was_done_several_times_is_divided_and_what_one_side_knows_is_left_out() -> None:
    result = overlap_result(0.02, 0.2, 0.2)
    compared = held(
        replace(result, cases=(replace(result.cases[0], repeats=10), *result.cases[1:]))
    )
    assert of(compared, SECONDS, "run").agree
    assert not [one for one in compared if (one.case, one.quantity) == ("run", DISPATCH)]
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
    small_ones: dict[str, dict[str, int]] = {
        "overlap": {"size": 8, "copies": 1},
        "parallel": {"size": 8},
    }
    results = [
        EXPERIMENTS[name].run(backend, **options, rounds=3) for name, options in small_ones.items()
    ]
    found = {
        (case.name, metric)
        for result in results
        for case in result.cases
        for metric in result.metrics
    }
    assert set(COMPARED) <= found


@given(TIMES, TIMES, SHARES, SHARES)
def test_noises_add_as_squares_and_count_up_and_down_alike(
    one: float, other: float, share: float, more: float
) -> None:
    times = {"on a alone": one, "on b alone": other, "on all together": 1.0}
    speedup = EXPERIMENTS["parallel"].metric_named("parallel_speedup").formula
    assert speedup is not None
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
    assert (one.agree, one.too_noisy, replace(one, noise=4.4).too_noisy) == (True, True, False)


def test_devices_that_worked_and_what_was_hidden_are_told_unless_the_profiler_slowed_it() -> None:
    told = about_efficiency(overlap_figures()[-1])
    assert "1.96 of 2 devices" in told
    assert "98 % of the shorter" in told
    assert "hidden" not in about_efficiency(timeline_figures(parallel_timeline())[-1])
    (empty,) = timeline_figures(Timeline("made up", ()))
    assert about_efficiency(empty) == ""
    for slowdown, figures in ((1.2, True), (6.2, False)):
        case = replace(overlap_figures()[-1], slowdown=slowdown)
        assert ("%" in about_efficiency(case)) == figures
        assert (overlap_phrases(case) == (case.slowed_in_words,)) == (not figures)
        assert ("6.2" in case.slowed_in_words) == (not figures)
