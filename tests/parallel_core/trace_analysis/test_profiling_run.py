"""A result's cases are repeated under the profiler when all has been timed, whatever the experiment."""

from collections.abc import Callable
from functools import partial

import pytest

import backends
import parallel_core
from backends import Backend, BackendError
from backends.profiling import check_profiler
from parallel_core import Result, Settings
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation import increments
from parallel_core.experiments.automatic_parallelism import small_ops
from parallel_core.measurement.timing import repeatable
from parallel_core.system.errors import MeasurementError
from parallel_core.trace_analysis.figures import timeline_figures
from parallel_core.trace_analysis.profiling_run import MAX_PROFILED_CASES, profile
from parallel_core.training.dataset import synthetic
from tests.backends.profiling.work import overlapping
from tests.parallel_core.experiments.small import small

ON_SYNC = ("overlap", "data-parallel")
"""Without a queue a profile has the same operators: two experiments are enough."""

FEW = synthetic("a test needs no more", train=48, test=8)
SMALL_RUNS: dict[str, Callable[[Backend], Result]] = {
    "data-parallel": lambda backend: parallel_core.run_data_parallel(backend, data=FEW, settings=Settings(2, 16)),
    "learning-rates": lambda backend: parallel_core.run_learning_rates(
        backend, data=FEW, rates=(0.1,), settings=Settings(1, 8, limit=2), rounds=1
    ),
}
"""Smaller than those of the experiments' own tests: here only the profile counts."""


def small_run(experiment: str) -> Callable[[Backend], Result]:
    return SMALL_RUNS.get(experiment, partial(EXPERIMENTS[experiment].run, **small(experiment)))


@pytest.fixture
def load_profiled(load: Callable[[int], Backend], backend_name: str) -> Callable[[int], Backend]:
    """Load a backend that can be profiled, with some devices."""

    def load_with(devices: int) -> Backend:
        if backend_name == "numpy":
            pytest.skip("numpy has no profiler")
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
def profiled(load_profiled: Callable[[int], Backend]) -> Backend:
    return load_profiled(2)


# Each at once on one framework, and on the other one among the long tests.
@pytest.mark.parametrize(
    ("experiment", "frameworks"),
    [
        pytest.param(name, ("mxnet",) if is_first == bool(place % 2) else ("torch", "jax"), marks=marks)
        for place, name in enumerate(sorted(EXPERIMENTS))
        for is_first, marks in ((True, ()), (False, pytest.mark.long))
    ],
)
def test_every_experiment_can_be_seen(
    load_profiled: Callable[[int], Backend],
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
        result = small_run(experiment)(profiled)
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
        seen.case for seen in timeline_figures(found.timeline) if any(queue.device != "host" for queue in seen.queues)
    }
    idle = {name for name in set(names) - working if not name.startswith("dividing alone")}
    assert idle <= {"get_params", "split_and_load"}


def test_the_asynchronous_engine_is_seen_to_overlap_and_the_synchronous_one_never(profiled: Backend) -> None:
    with repeatable():
        result = parallel_core.run_overlap(profiled, size=300, copies=2, rounds=1)
    # Whose turn it is when cores are few is the kernel's choice: what overlaps is seen in one of some repetitions.
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
        result = small_run("data-parallel")(profiled)
    (case,) = result.cases
    assert 0 < case.share <= 1
    steps = case.share * len(result.series["loss"]) / result.parameters["epochs"]
    launches = [span for span in profile(profiled, result).timeline.spans if span.name == "launch value_and_gradients"]
    assert len(launches) == round(steps) * len(profiled.devices)


def test_of_many_cases_those_are_repeated_that_a_comparison_shows(profiled: Backend) -> None:
    with repeatable():
        result = EXPERIMENTS["barriers"].run(profiled, **{**small("barriers"), "deepest": 64})
    found = profile(profiled, result)
    assert EXPERIMENTS["barriers"].case in found.seconds
    assert len(found.seconds) <= MAX_PROFILED_CASES < len(result.cases)
    assert any(note.startswith(f"{len(found.seconds)} of {len(result.cases)} cases") for note in found.timeline.notes)


@pytest.mark.parametrize("experiment", ["parallel", "data-parallel"])
def test_where_nobody_was_going_to_repeat_it_a_result_keeps_no_arrays_and_is_refused(experiment: str) -> None:
    numpy = backends.load("numpy", 2)
    result = small_run(experiment)(numpy)
    assert {case.again for case in result.cases} == {None}
    with pytest.raises(MeasurementError, match=rf"^no case of this result of {experiment} can be"):
        profile(numpy, result)
