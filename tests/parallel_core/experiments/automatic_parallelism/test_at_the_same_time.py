"""What runs at the same time: `parallel`, `independent-ops` and `small-ops`.

What is run where, which values are checked, which figures compare cases, and what could be saved.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import log2
from typing import Any

import pytest

import backends
import parallel_core
from backends import Backend
from backends.errors import BackendError
from parallel_core import Case, RequestError, Result
from parallel_core.experiments import EXPERIMENTS, workloads
from parallel_core.experiments.automatic_parallelism import small_ops
from parallel_core.experiments.automatic_parallelism.parallel import filling_size, share_a_gpu
from parallel_core.experiments.runner import trial as trials
from parallel_core.experiments.runner import witnesses
from parallel_core.experiments.runner.changes import LESS_NOISE, MORE_CORES
from parallel_core.experiments.runner.conclusions import answer_of
from parallel_core.experiments.runner.guess import judge
from parallel_core.measurement.result import describe_backend
from tests.parallel_core.experiments.runner.pretended import case, pretended, trial

Elsewhere = list[dict[str, Any]]
"""The options that other processes were asked to take."""


@pytest.fixture
def elsewhere(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    """Pretend the other processes, and keep the options that they were asked to take."""
    asked: list[dict[str, Any]] = []

    def pretended(experiment: str, options: Mapping[str, Any]) -> Result:
        asked.append(dict(options))
        if experiment == "small-ops":
            names = [f"one device, size {size}" for size in options["sizes"].split(",")]
        else:
            names = ONE_WORKER if options["workers"] == 1 else TWO_WORKERS
        cases = tuple(case(name, 2.0, 2.0) for name in names)
        checks = {"max_relative_error": 0.5e-5}
        return Result(experiment, describe_backend(backend), {}, cases, {}, checks, "Pretended.")

    monkeypatch.setattr(trials, "measure_elsewhere", pretended)
    return asked


def run(
    backend: Backend, workers: tuple[int, ...] = (1, 2), rounds: int = 1, *, count: int = 2
) -> Result:
    """Run `independent-ops` with little work."""
    return EXPERIMENTS["independent-ops"].run(
        backend, count=count, workers_compared=workers, size=48, rounds=rounds, budget=600.0
    )


ONE_WORKER = ["independent, 1 worker", "chain, 1 worker"]
TWO_WORKERS = ["independent, 2 workers", "chain, 2 workers"]
TWO_THREADS = ["independent, 1 worker, 2 threads each", "chain, 1 worker, 2 threads each"]


@pytest.fixture(params=["async", "sync"])
def engine(
    request: pytest.FixtureRequest, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> str:
    """An engine that the backend says it has, with two variants of its settings."""
    monkeypatch.setattr(backend, "engine", request.param)
    monkeypatch.setattr(backend, "variants", ("bulk-on", "temporary-space-low"))
    return request.param


def test_workers_and_threads_that_a_backend_has_not_are_measured_elsewhere(
    backend: Backend, engine: str, elsewhere: Elsewhere
) -> None:
    result = run(backend, rounds=2)
    workers_and_threads = [(asked["workers"], asked["threads"]) for asked in elsewhere]
    medians = {case.name: case.median for case in result.cases}
    independent, chain = (medians[name] for name in ONE_WORKER)
    speedups = {
        "independence_speedup": chain / independent,
        "threads_speedup": independent / medians[TWO_THREADS[0]],
    }
    if engine == "async":
        assert list(medians) == [*ONE_WORKER, *TWO_WORKERS, *TWO_THREADS]
        assert result.parameters["workers"] == "1,2"
        assert workers_and_threads == [(2, 1), (1, 2)]
        independent_of_two, chain_of_two = (medians[name] for name in TWO_WORKERS)
        speedups["parallel_speedup"] = independent / independent_of_two
        speedups["chain_speedup"] = chain / chain_of_two
        speedups["independence_speedup_most_workers"] = chain_of_two / independent_of_two
    else:
        assert list(medians) == [*ONE_WORKER, *TWO_THREADS]
        assert result.parameters["workers"] == "1"
        assert workers_and_threads == [(1, 2)]
        speedups["independence_speedup_most_workers"] = chain / independent
    assert result.metrics == pytest.approx(speedups)
    # One device's products, of the same size, and no separate processes.
    options_of_all = {"engine": engine, "variant": backend.variants, "devices": 1, "size": 48}
    for asked in elsewhere:
        assert options_of_all.items() <= asked.items()
        assert asked["backend"] == backend.name
        assert asked["workers_compared"] == asked["workers"]
    # The error of the pretended processes is larger than that of this one.
    assert result.checks["max_relative_error"] == 0.5e-5
    # The cases of this process are timed before the other processes and after them.
    assert [len(case.seconds) for case in result.cases[:2]] == [4, 4]


@pytest.fixture
def refused(queueing: Backend, monkeypatch: pytest.MonkeyPatch) -> Result:
    """The result of a backend that was refused further workers."""

    def refuse(*_: object) -> Result:
        raise RequestError("use --workers 1")

    monkeypatch.setattr(trials, "measure_elsewhere", refuse)
    # The backend only says that it queues: a profiler would find out.
    return EXPERIMENTS["independent-ops"].run(queueing, count=0, size=48, rounds=2)


def test_a_number_of_workers_that_is_refused_is_a_note(refused: Result) -> None:
    assert [note.code for note in refused.notes].count("not-measured") == 2
    assert [case.name for case in refused.cases] == ONE_WORKER
    assert refused.parameters["workers"] == "1"
    assert "parallel_speedup" not in refused.metrics


@pytest.mark.parametrize(
    ("name", "can_have_more"),
    [("torch", True), ("jax", False)],
    # No id names JAX: in its environment PyTorch, whose queues are used here, is not installed.
    ids=["several-workers", "one-worker"],
)
def test_more_workers_are_advised_where_they_can_be_had(
    refused: Result, name: str, can_have_more: bool
) -> None:
    experiment = EXPERIMENTS["independent-ops"]
    on_backend = replace(refused, backend={**refused.backend, "name": name})
    answer = answer_of(experiment.metrics, experiment.changes, on_backend)
    assert ("--workers-compared" in answer.would_change) == can_have_more


@pytest.mark.long
def test_the_other_workers_really_run_in_fresh_processes(require: Callable[[str], None]) -> None:
    require("torch")
    result = run(backends.load("torch", 2, "cpu", None, 1), rounds=2)
    assert len(result.cases) == 6
    assert set(result.problems) <= set(result.disturbances)


def test_each_size_is_timed_three_ways(
    backend: Backend, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "variants", ("bulk-on", "temporary-space-low"))
    monkeypatch.setattr(small_ops, "TARGET_SECONDS", 0.0)
    result = parallel_core.run_small_ops(backend, sizes=(16, 8, 16), rounds=2, budget=600.0)
    (asked,) = elsewhere
    # A part of what is left of the budget of this process.
    assert 0 < asked.pop("budget") < 600
    assert asked == {
        "backend": backend.name,
        "engine": backend.engine,
        "variant": backend.variants,
        "rounds": 2,
        "count": 2,
        "devices": 1,
        "device_kind": "cpu",
        "threads": 3,
        "sizes": "8,16",
    }
    medians = {case.name: case.median for case in result.cases}
    assert len(medians) == 3 * 2
    # The fewest operations are two, on each of three devices.
    repeats = {case.repeats for case in result.cases if "threads" not in case.name}
    assert repeats == {6}
    assert result.series["size"] == (8, 16)
    for way in ("all devices", "all threads"):
        at_8 = medians["one device, size 8"] / medians[f"{way}, size 8"]
        at_16 = medians["one device, size 16"] / medians[f"{way}, size 16"]
        assert result.series[f"speedup {way}"] == (at_8, at_16)
    of_devices = result.series["speedup all devices"]
    assert result.metrics["largest_speedup"] == pytest.approx(max(of_devices))
    assert result.metrics["small_speedup"] == pytest.approx(sum(of_devices) / 2)
    assert result.checks["max_relative_error"] == 0.5e-5


def test_small_are_the_sizes_up_to_128_or_the_smallest() -> None:
    def figures(*sizes: int) -> dict[str, float]:
        timed = trial()
        for size in sizes:
            seconds_of_ways = {"one device": 2.0, "all devices": 256 / size, "all threads": 4.0}
            for way, seconds in seconds_of_ways.items():
                name = f"{way}, size {size}"
                timed.cases[name] = case(name, seconds, seconds, seconds)
        timed.backend.engine = "async"  # type: ignore[misc]
        small_ops.find_figures(timed, sizes)
        return {name: figure.estimate for name, figure in timed.figures.items()}

    of_four_sizes = {
        "small_speedup": 0.5,
        "small_advantage_over_threads": 1.0,
        "small_dispatch_fraction": 0.5,
        "largest_speedup": 2.0,
        "largest_speedup_size": 256,
    }
    figures_of_four_sizes = figures(32, 64, 128, 256)
    for name, expected in of_four_sizes.items():
        assert figures_of_four_sizes[name] == pytest.approx(expected), name
    assert figures(256, 512)["small_speedup"] == pytest.approx(2)


def test_a_single_device_is_timed_by_itself(load: Callable[[int], Backend]) -> None:
    result = parallel_core.run_small_ops(load(1), sizes=(8,), rounds=1, budget=600.0)
    assert [case.name for case in result.cases] == ["one device, size 8"]
    assert result.metrics == {}
    assert result.bands == {}
    assert judge(1.0, small_ops.SPEEDUP, result).judgement == "open"
    assert result.answer is not None
    assert "--devices 2" in result.answer.would_change


def cases(*seconds: float) -> list[Case]:
    """Return cases of three rounds that took equally long, one for each time."""
    return [case("any", taken, taken, taken) for taken in seconds]


@pytest.mark.parametrize(
    ("seconds_on_all", "crossing"),
    [
        ((1.5, 1.5, 1.5, 1.5), None),
        ((0.5, 0.5, 0.5, 0.5), 8),
        # A single size, by chance.
        ((1.0, 0.5, 1.0, 1.0), None),
        ((1.0, 1.0, 1.0, 0.5), pytest.approx(32)),
        ((2.0, 2.0, 0.5, 0.5), pytest.approx(16 * 2**0.5)),
        # Half of the larger sizes are faster beyond the noise.
        ((2.0, 2.0, 0.98, 0.5), pytest.approx(16 * 2 ** (1 / log2(2 / 0.98)))),
        # A third of them.
        ((2.0, 0.98, 0.98, 0.5), None),
        ((1.0, 0.5, 0.5, 1.0), None),
    ],
)
def test_the_crossing_is_interpolated_and_beyond_the_noise(
    seconds_on_all: tuple[float, ...], crossing: float | None
) -> None:
    sizes, on_one_device = (8, 16, 32, 64), cases(1, 1, 1, 1)
    assert small_ops.crossing_size(sizes, on_one_device, cases(*seconds_on_all)) == crossing


@pytest.mark.parametrize("count", [2, 0])
def test_other_processes_count_if_this_one_does_and_not_with_other_threads(
    queueing: Backend, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    def refuse_profiler(_: Backend) -> None:
        raise BackendError("no profiler")

    monkeypatch.setattr(witnesses, "check_profiler", refuse_profiler)
    run(queueing, count=count)
    threads_and_counts = [(asked["threads"], asked["count"]) for asked in elsewhere]
    assert threads_and_counts == [(1, count), (2, 0)]


@pytest.mark.parametrize(
    ("devices", "size", "advice"),
    [
        (("gpu:0/0", "gpu:0/1"), 2048, "1,024"),
        (("gpu:0/0", "gpu:0/1"), 512, ""),
        (("gpu:0", "gpu:1"), 2048, "--size 4096"),
        (("cpu:1", "gpu:0/0"), 2048, "--size 4096"),
    ],
)
def test_a_second_stream_gains_below_the_size_that_fills_the_gpu(
    devices: tuple[str, ...], size: int, advice: str
) -> None:
    experiment = EXPERIMENTS["parallel"]
    rules = [rule for rule in experiment.changes if rule not in (LESS_NOISE, MORE_CORES)]
    parts = [case("first", 1.0, 1.0), case("second", 1.0, 1.0)]
    together = case("on all together", 2.0, 2.0, parts=("first", "second"))
    in_turn = pretended(trial(together, *parts))
    result = replace(
        in_turn,
        backend={**in_turn.backend, "devices": devices, "name": "torch", "engine": "async"},
        parameters={"size": size},
        metrics={"filling_size": 1024.0} if share_a_gpu(devices) else {},
    )
    would_change = answer_of(experiment.metrics, rules, result).would_change
    assert advice in would_change
    assert bool(would_change) == bool(advice)


def test_a_multiplication_fills_a_device_from_where_it_is_about_as_fast_as_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Launching takes as long as multiplying 700 x 700.
    monkeypatch.setattr(workloads, "seconds_of_one", lambda _, size: size**3 + 700**3)
    assert filling_size(trial()) == 2048
