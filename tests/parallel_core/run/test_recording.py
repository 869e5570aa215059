"""A result's cases are repeated under the profiler when all has been timed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

import backends
import parallel_core
from backends import Backend, BackendError
from backends.profiling import Timeline, check_profiler
from parallel_core import Result, Settings
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.automatic_parallelism import small_ops
from parallel_core.measurement.timing import repeatable
from parallel_core.run.recording import (
    MAX_PROFILED_CASES,
    about_efficiency,
    overhead,
    profile,
)
from parallel_core.system.errors import MeasurementError
from parallel_core.traces.cases import CaseFigures, timeline_figures
from parallel_core.traces.lanes import overlap_phrases
from parallel_core.training.dataset import synthetic
from tests.backends.profiling.work import overlapping
from tests.parallel_core.experiments.small import small
from tests.parallel_core.traces.synthetic import (
    JOINT,
    overlap_figures,
    overlap_result,
    parallel_timeline,
)

Load = Callable[[int], Backend]
ON_SYNC = ("overlap", "data-parallel")
"""Without a queue a profile has the same operators: two experiments are enough."""

FEW = synthetic("a test needs no more", train=48, test=8)
SMALLER_OPTIONS: Mapping[str, dict[str, Any]] = {
    "data-parallel": {"data": FEW, "settings": Settings(2, 16)},
    "learning-rates": {"data": FEW, "rates": (0.1,), "settings": Settings(1, 8, limit=2)},
}
"""Than those of the experiments' own tests: here only the profile counts."""


def small_run(backend: Backend, experiment: str, **options: Any) -> Result:
    """Run an experiment with the smallest options that a profile needs, but for those given."""
    smallest = {**small(experiment), **SMALLER_OPTIONS.get(experiment, {})}
    return EXPERIMENTS[experiment].run(backend, **{**smallest, **options})


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
    """Multiply twice instead of often."""
    monkeypatch.setattr(small_ops, "TARGET_SECONDS", 0.0)


@pytest.fixture
def profiled(load_profiled: Load) -> Backend:
    return load_profiled(2)


def on_each_framework() -> list[Any]:
    """Return the experiments, each with the frameworks on which it is profiled.

    By turns one framework is tested at once, and the others among the long tests.
    """
    cases = []
    for number, name in enumerate(sorted(EXPERIMENTS)):
        at_once, later = ("torch", "jax"), ("mxnet",)
        if number % 2 == 1:
            at_once, later = later, at_once
        cases.append(pytest.param(name, at_once))
        cases.append(pytest.param(name, later, marks=pytest.mark.long))
    return cases


@pytest.mark.parametrize(("experiment", "frameworks"), on_each_framework())
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
    result_before = result.as_json()

    recorded = profile(profiled, result)

    assert result.as_json() == result_before
    timeline = recorded.timeline
    names = [case.name for case in timeline.cases]
    assert list(recorded.seconds) == names
    shown_case = EXPERIMENTS[experiment].case
    if shown_case in [case.name for case in result.cases]:
        assert shown_case in names
    assert overlapping(timeline) == []
    assert profiled.version in timeline.source
    assert ("without queues" in timeline.source) is (profiled.engine == "sync")
    assert idle_cases(timeline) <= MAY_BE_IDLE | SHORT_COPIES.get(backend_name, set())


MAY_BE_IDLE = {"get_params", "split_and_load"}
"""What only loads arrays may run no operator."""
SHORT_COPIES = {"jax": {"copy_to"}}
"""JAX's profiler has no names for copies: one that its caller makes in a moment leaves no span."""


def idle_cases(timeline: Timeline) -> set[str]:
    """Return the cases in which no device worked, without those that divide arrays into views."""
    idle = set()
    for figures in timeline_figures(timeline):
        is_working = any(queue.device != "host" for queue in figures.queues)
        if not is_working and not figures.case.startswith("dividing alone"):
            idle.add(figures.case)
    return idle


def test_the_asynchronous_engine_is_seen_to_overlap_and_the_synchronous_one_never(
    profiled: Backend,
) -> None:
    with repeatable():
        result = parallel_core.run_overlap(profiled, size=300, copies=2, rounds=1)
    # Whose turn it is when cores are few is the kernel's choice: what overlaps is seen in one of
    # some repetitions.
    for _ in range(20 if profiled.engine == "async" else 1):
        timeline = profile(profiled, result).timeline
        figures_by_case = {figures.case: figures for figures in timeline_figures(timeline)}
        together = figures_by_case["run and copy together"]
        book_s_way = figures_by_case["together the book's way"]
        assert book_s_way.hidden_share == 0
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
    steps_per_epoch = len(result.series["loss"]) / result.parameters["epochs"]
    profiled_steps = round(case.share * steps_per_epoch)
    names = [span.name for span in profile(profiled, result).timeline.spans]
    launches = names.count("launch value_and_gradients")
    assert launches == profiled_steps * len(profiled.devices)


def test_of_many_cases_those_are_repeated_that_a_comparison_shows(profiled: Backend) -> None:
    with repeatable():
        result = small_run(profiled, "barriers", deepest=64)
    recorded = profile(profiled, result)
    assert EXPERIMENTS["barriers"].case in recorded.seconds
    assert len(result.cases) > MAX_PROFILED_CASES
    assert len(recorded.seconds) <= MAX_PROFILED_CASES
    told = f"{len(recorded.seconds)} of {len(result.cases)} cases"
    assert any(str(note).startswith(told) for note in recorded.timeline.notes)


@pytest.mark.parametrize("experiment", ["parallel", "data-parallel"])
def test_where_nobody_was_going_to_repeat_it_a_result_keeps_no_arrays_and_is_refused(
    experiment: str,
) -> None:
    numpy = backends.load("numpy", 2)
    result = small_run(numpy, experiment)
    assert {case.again for case in result.cases} == {None}
    with pytest.raises(MeasurementError, match=rf"^no case of this result of {experiment} can be"):
        profile(numpy, result)


def test_the_overhead_is_of_the_same_clock_with_and_without_profiler() -> None:
    result = overlap_result(1.0, 2.0, 4.0)
    of_three = overhead(result, {"run": 1.1, "copy": 2.0, JOINT: 4.8, "another": 9.0})
    assert "1.10 ×" in of_three
    assert "3 cases" in of_three
    assert "1.30 ×" in overhead(result, {JOINT: 5.2})


def test_devices_that_worked_and_what_was_hidden_are_told() -> None:
    about_overlap = about_efficiency(overlap_figures()[-1])
    assert "1.96 of 2 devices" in about_overlap
    assert "98 % of the shorter" in about_overlap
    about_parallel = about_efficiency(timeline_figures(parallel_timeline())[-1])
    assert "hidden" not in about_parallel
    (empty,) = timeline_figures(Timeline("made up", ()))
    assert about_efficiency(empty) == ""


def slowed_down(factor: float) -> CaseFigures:
    """Return a case that takes so many times as long under the profiler."""
    spans = overlap_figures()[-1].spans
    return CaseFigures(replace(spans, timed=spans.seconds / factor))


def test_nothing_is_told_of_what_the_profiler_slowed_down() -> None:
    slightly_slowed = slowed_down(1.2)
    assert "%" in about_efficiency(slightly_slowed)
    assert overlap_phrases(slightly_slowed) != (slightly_slowed.slowed_in_words,)
    assert "6.2" not in slightly_slowed.slowed_in_words

    much_slowed = slowed_down(6.2)
    assert "%" not in about_efficiency(much_slowed)
    assert overlap_phrases(much_slowed) == (much_slowed.slowed_in_words,)
    assert "6.2" in much_slowed.slowed_in_words
