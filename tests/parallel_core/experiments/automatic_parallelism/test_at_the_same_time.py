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
from parallel_core.experiments.runner.tallies import computed_beside_its_own_device, repetition_of
from parallel_core.measurement.result import describe_backend
from tests.parallel_core.experiments.automatic_parallelism.test_three_way import computed
from tests.parallel_core.experiments.runner.pretended import case, pretended, trial

Elsewhere = list[dict[str, Any]]


@pytest.fixture
def elsewhere(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    """Pretend the other processes, and keep the options that they were asked to take."""
    asked: list[dict[str, Any]] = []

    def pretended(experiment: str, options: Mapping[str, Any]) -> Result:
        asked.append(dict(options))
        if experiment == "small-ops":
            names = [f"one device, size {size}" for size in options["sizes"].split(",")]
        else:
            workers = f"{options['workers']} {'worker' if options['workers'] == 1 else 'workers'}"
            names = [f"independent, {workers}", f"chain, {workers}"]
        cases = tuple(case(name, 2.0, 2.0) for name in names)
        checks = {"max_relative_error": 0.5e-5}
        return Result(experiment, describe_backend(backend), {}, cases, {}, checks, "Pretended.")

    monkeypatch.setattr(trials, "measure_elsewhere", pretended)
    return asked


def run(
    backend: Backend, workers: tuple[int, ...] = (1, 2), rounds: int = 1, *, count: int = 2
) -> Result:
    return EXPERIMENTS["independent-ops"].run(
        backend, count=count, workers_compared=workers, size=48, rounds=rounds, budget=600.0
    )


@pytest.mark.parametrize("engine", ["async", "sync"])
def test_workers_and_threads_that_a_backend_has_not_are_measured_elsewhere(
    backend: Backend, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setattr(backend, "variants", ("bulk-on", "temporary-space-low"))
    monkeypatch.setattr(backend, "engine", engine)
    result = run(backend, rounds=2)
    names = [case.name for case in result.cases]
    here, threaded = (
        ["independent, 1 worker", "chain, 1 worker"],
        "independent, 1 worker, 2 threads each",
    )
    several = ["independent, 2 workers", "chain, 2 workers"] if engine == "async" else []
    assert names == [*here, *several, threaded, "chain, 1 worker, 2 threads each"]
    assert result.parameters["workers"] == ("1,2" if several else "1")
    assert [(asked["workers"], asked["threads"]) for asked in elsewhere] == [(2, 1), (1, 2)][
        -len(names) // 2 + 1 :
    ]
    # One device's products, of the same size, and no separate processes.
    for asked in elsewhere:
        assert (asked["devices"], asked["size"], asked["workers-compared"]) == (
            1,
            48,
            asked["workers"],
        )
        assert (asked["backend"], asked["engine"], asked["variant"]) == (
            backend.name,
            engine,
            backend.variants,
        )
    medians = {case.name: case.median for case in result.cases}
    by_most = several or here
    compared = {
        **(
            {"parallel_speedup": (here[0], several[0]), "chain_speedup": (here[1], several[1])}
            if several
            else {}
        ),
        "independence_speedup": (here[1], here[0]),
        "independence_speedup_most_workers": (by_most[1], by_most[0]),
        "threads_speedup": (here[0], threaded),
    }
    expected = {name: medians[slow] / medians[fast] for name, (slow, fast) in compared.items()}
    assert result.metrics == pytest.approx(expected)
    # The pretended ones' error is larger than the own one.
    assert result.checks["max_relative_error"] == 0.5e-5
    # Before the processes and after them.
    assert {case.name: len(case.seconds) for case in result.cases[:2]} == dict.fromkeys(here, 4)


def test_one_number_of_workers_starts_no_process(backend: Backend, elsewhere: Elsewhere) -> None:
    result = run(backend, (1,), rounds=2)
    assert elsewhere == []
    assert [case.name for case in result.cases] == ["independent, 1 worker", "chain, 1 worker"]
    # Nothing is compared, so nothing is said of it.
    assert result.metrics.keys() == {"independence_speedup", "independence_speedup_most_workers"}
    assert result.bands.keys() == {"independence_speedup"}


def test_a_number_of_workers_that_is_refused_is_a_note(
    queueing: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Result:
        raise RequestError("use --workers 1")

    monkeypatch.setattr(trials, "measure_elsewhere", refuse)
    # It only says that it queues: a profiler would find out.
    result = EXPERIMENTS["independent-ops"].run(queueing, count=0, size=48, rounds=2)
    assert [case.name for case in result.cases] == ["independent, 1 worker", "chain, 1 worker"]
    assert result.parameters["workers"] == "1"
    assert sum(note.endswith("use --workers 1") for note in result.notes) == 2
    assert "parallel_speedup" not in result.metrics
    experiment = EXPERIMENTS[result.experiment]
    # Where more cannot be had, they are no advice.
    for name, can_have_more in (("torch", True), ("jax", False)):
        there = replace(result, backend={**result.backend, "name": name})
        answer = answer_of(experiment.metrics, experiment.changes, there)
        assert ("--workers-compared" in answer.would_change) == can_have_more


@pytest.mark.usefixtures("in_process")
def test_other_threads_are_asked_for_as_the_command_takes_them(
    load: Callable[[int], Backend],
) -> None:
    assert len(run(load(2), rounds=2).cases) == 4


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
    same = {
        "backend": backend.name,
        "engine": backend.engine,
        "variant": backend.variants,
        "rounds": 2,
        "count": 2,
    }
    own = {"devices": 1, "device-kind": "cpu", "threads": 3, "sizes": "8,16"}
    # A part of what is left of its own budget.
    assert asked == {**same, **own, "budget": pytest.approx(300, abs=300)}
    ways = ("one device", "all devices", "all threads")
    assert {case.name for case in result.cases} == {
        f"{way}, size {size}" for way in ways for size in (8, 16)
    }
    # Of the fewest on each of three devices.
    assert {case.repeats for case in result.cases if "threads" not in case.name} == {6}
    medians = {case.name: case.median for case in result.cases}
    assert result.series["size"] == (8, 16)
    for way in ways[1:]:
        speedups = tuple(
            medians[f"one device, size {size}"] / medians[f"{way}, size {size}"] for size in (8, 16)
        )
        assert result.series[f"speedup {way}"] == speedups
    of_devices = result.series["speedup all devices"]
    assert result.metrics["largest_speedup"] == pytest.approx(max(of_devices))
    assert result.metrics["small_speedup"] == pytest.approx(sum(of_devices) / 2)
    assert result.checks["max_relative_error"] == 0.5e-5


def test_small_are_the_sizes_up_to_128_or_the_smallest() -> None:
    def figures(*sizes: int) -> dict[str, float]:
        cases = [
            case(f"{way}, size {size}", *[seconds] * 3)
            for size in sizes
            for way, seconds in times(size)
        ]
        made = trial(*cases)
        made.backend.engine = "async"  # type: ignore[misc]
        small_ops.find_figures(made, sizes)
        return {name: found.estimate for name, found in made.figures.items()}

    def times(size: int) -> list[tuple[str, float]]:
        return [("one device", 2.0), ("all devices", 256 / size), ("all threads", 4.0)]

    found = figures(32, 64, 128, 256)
    assert found["small_speedup"] == pytest.approx(0.5)
    assert found["small_advantage_over_threads"] == pytest.approx(1.0)
    assert found["small_dispatch_fraction"] == pytest.approx(0.5)
    assert (found["largest_speedup"], found["largest_speedup_size"]) == (pytest.approx(2), 256)
    assert figures(256, 512)["small_speedup"] == pytest.approx(2)


def test_a_single_device_is_timed_by_itself(load: Callable[[int], Backend]) -> None:
    result = parallel_core.run_small_ops(load(1), sizes=(8,), rounds=1, budget=600.0)
    assert [case.name for case in result.cases] == ["one device, size 8"]
    assert (result.metrics, result.bands) == ({}, {})
    assert judge(1.0, small_ops.SPEEDUP, result).judgement == "open"
    assert result.answer is not None
    assert len(result.answer.sentences) == 1
    assert result.answer.would_change == "A second device (--devices 2)."


def cases(*seconds: float) -> list[Case]:
    return [case("any", *[taken] * 3) for taken in seconds]


@pytest.mark.parametrize(
    ("spread", "crossing"),
    [
        ((1.5, 1.5, 1.5, 1.5), None),
        ((0.5, 0.5, 0.5, 0.5), 8),
        ((1.0, 0.5, 1.0, 1.0), None),  # a single size, by chance
        ((1.0, 1.0, 1.0, 0.5), pytest.approx(32)),
        ((2.0, 2.0, 0.5, 0.5), pytest.approx(16 * 2**0.5)),
        (
            (2.0, 2.0, 0.98, 0.5),
            pytest.approx(16 * 2 ** (1 / log2(2 / 0.98))),
        ),  # half of them beyond the noise
        ((2.0, 0.98, 0.98, 0.5), None),  # a third
        ((1.0, 0.5, 0.5, 1.0), None),
    ],
)
def test_the_crossing_is_interpolated_and_beyond_the_noise(
    spread: tuple[float, ...], crossing: float | None
) -> None:
    assert small_ops.crossing_size((8, 16, 32, 64), cases(1, 1, 1, 1), cases(*spread)) == crossing


def test_operations_of_one_device_count_if_a_part_of_both_ran_at_one_time() -> None:
    # The first two overlap; the third only touches the second, and beside it runs another device.
    there = [computed("cpu:1", 0, 10), computed("cpu:1", 6, 16, "compute 2")]
    others = [computed("cpu:1", 16, 26), computed("cpu:2", 18, 28)]
    assert computed_beside_its_own_device(repetition_of([*there, *others])) == (2, 4)
    assert computed_beside_its_own_device(repetition_of(others)) == (0, 2)


@pytest.mark.parametrize("count", [2, 0])
def test_other_processes_count_if_this_one_does_and_not_with_other_threads(
    queueing: Backend, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(witnesses, "check_profiler", refuse_profiler)
    run(queueing, count=count)
    assert [(asked["threads"], asked["count"]) for asked in elsewhere] == [(1, count), (2, 0)]


def refuse_profiler(_: Backend) -> None:
    raise BackendError("no profiler")


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
    made = trial(case("on all together", 2.0, 2.0, parts=("one", "other")))
    made.cases |= {name: case(name, 1.0, 1.0) for name in ("one", "other")}
    result = pretended(made)
    metrics = {"filling_size": 1024.0} if share_a_gpu(devices) else {}
    backend = {**result.backend, "devices": devices, "name": "torch", "engine": "async"}
    seen = replace(result, backend=backend, parameters={"size": size}, metrics=metrics)
    then = answer_of(experiment.metrics, rules, seen).would_change
    assert advice in then
    assert bool(advice) == bool(then)


def test_a_multiplication_fills_a_device_from_where_it_is_about_as_fast_as_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Launching takes as long as multiplying 700 x 700.
    monkeypatch.setattr(workloads, "seconds_of_one", lambda _, size: size**3 + 700**3)
    assert filling_size(trial()) == 2048
