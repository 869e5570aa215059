"""What runs at the same time: `independent-ops`, `small-ops` and `three-way`.

What is run where, which values are checked, which figures compare cases, and what could be saved.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from math import log2
from typing import Any

import pytest

import backends
import parallel_core
from backends import Backend
from backends.errors import BackendError
from backends.profiling import Span
from parallel_core import Case, RequestError, Result
from parallel_core.experiments import EXPERIMENTS, copying, works
from parallel_core.experiments.automatic_parallelism import small_ops, three_way
from parallel_core.experiments.automatic_parallelism.parallel import filling_size, share_a_gpu
from parallel_core.experiments.runner import trial as trials
from parallel_core.experiments.runner import witnesses
from parallel_core.experiments.runner.changes import LESS_NOISE, MORE_CORES
from parallel_core.experiments.runner.conclusions import answer_of
from parallel_core.experiments.runner.formulas import interval_of
from parallel_core.experiments.runner.guess import judge
from parallel_core.experiments.runner.tallies import computed_beside_its_own_device, repetition_of
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement import timing
from parallel_core.measurement.result import describe_backend
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


@pytest.mark.parametrize("devices", [2, 3])
def test_both_compute_and_copy(
    load: Callable[[int], Backend], devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    went, right = [], copying.copies_of
    monkeypatch.setattr(
        copying,
        "copies_of",
        lambda *args: went.append((str(args[5]), str(args[2]))) or right(*args),
    )
    result = parallel_core.run_three_way(
        load(devices), size=32, products=5, copies=2, rounds=2, budget=600.0
    )
    *parts, together = result.cases
    assert [part.name for part in parts] == [
        "products on cpu:1",
        "products on cpu:2",
        "copies both ways",
    ]
    assert together.parts == tuple(part.name for part in parts)
    added = sum(part.median for part in parts)
    assert result.metrics["saved_fraction"] == pytest.approx((added - together.median) / added)
    assert went == [("cpu:1", "cpu:2"), ("cpu:2", "cpu:1")]
    assert result.metrics["possible_on_cores_fraction"] <= result.metrics["possible_fraction"]


def test_the_cores_work_in_rounds_that_count(
    load: Callable[[int], Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of three rounds only the first was quiet; in it the cores work 1000 s for each of the parts,
    # else not at all.
    monkeypatch.setattr(timing, "_quietest", lambda *_: [0])
    calls = count()
    monkeypatch.setattr(three_way, "process_time", lambda: 1000.0 * min(max(next(calls) - 6, 0), 6))
    found = parallel_core.run_three_way(
        load(2), size=32, products=5, copies=2, rounds=3, budget=600.0
    ).metrics
    assert found["possible_on_cores_fraction"] < 0 < found["possible_fraction"]


def test_what_can_be_saved_is_bounded_by_the_longest_part_and_by_the_cores() -> None:
    cases = {name: case(name, 1.0, 1.0, 1.0) for name in ("a", "b", "c")}
    cases |= {"all at once": case("all at once", 1.5, 1.5, 1.5, parts=tuple(cases))}
    found = [three_way.SAVED.measured(cases), three_way.POSSIBLE.measured(cases)]
    found += [
        interval_of(partial(three_way.possible, on_cores=share), cases) for share in (0.5, 0.1)
    ]
    assert [one and one.estimate for one in found] == pytest.approx([0.5, 2 / 3, 0.5, 2 / 3])


def test_earlier_results_travel_to_the_other_device(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    went: list[tuple[object, object]] = []
    monkeypatch.setattr(works, "multiplied", lambda *_: [])
    monkeypatch.setattr(copying, "copy_in_turn", lambda *args: went.append((args[3], args[4])))
    results, buffers = [["first"] * 50, ["second"] * 50], [[None] * 50, [None] * 50]
    three_way.all_at_once(Trial(backend, {}), [None, None], results, buffers, 1)
    assert went == [("first", backend.devices[1]), ("second", backend.devices[0])] * 50


def computed(device: str, start: int, end: int, queue: str = "compute") -> Span:
    return Span("matmul", "compute", device, queue, start, end)


def copied(device: str, start: int, end: int, name: str = "copy") -> Span:
    return Span(name, "copy", device, "copy", start, end)


def with_calls(*spans: Span) -> list[Span]:
    """Put spans in their order, after the calls that launched the copies."""
    copies = [span for span in spans if span.kind == "copy"]
    calls = [Span("copy_to", "host", "host", "Python", 0, 0) for _ in copies]
    return [*calls, *sorted(spans, key=lambda span: span.start)]


def test_a_multiplication_counts_if_both_directions_were_copied_during_a_moment_of_it() -> None:
    # The second multiplication of each device runs while one direction is copied after the other.
    products = [computed(device, at, at + 10) for device in ("cpu:1", "cpu:2") for at in (0, 10)]
    there = [copied("cpu:2", 2, 6), copied("cpu:2", 10, 14)]
    back = [copied("cpu:1", 5, 9), copied("cpu:1", 14, 18)]
    tally = three_way.computed_while_copied_both_ways
    assert tally(repetition_of(with_calls(*products, *there, *back))) == (2, 4)
    assert tally(repetition_of(with_calls(*products, *there))) == (0, 4)
    # Copies of one direction by two workers are one direction.
    assert tally(repetition_of(with_calls(*products, *there, copied("cpu:2", 5, 9)))) == (0, 4)
    # Both directions are copied when all is computed.
    late = [copied("cpu:2", 20, 24), copied("cpu:1", 22, 26)]
    assert tally(repetition_of(with_calls(*products, *late))) == (0, 4)
    # A profiler that leaves out copies, or records them twice, is no witness.
    recorded = with_calls(*products, *there, *back)
    assert tally(repetition_of(recorded[:-1])).of == 0
    assert tally(repetition_of([*recorded, copied("cpu:1", 18, 19)])).of == 0


def test_a_gpu_s_directions_have_names() -> None:
    to_host, to_device = "Memcpy DtoH", "Memcpy HtoD"
    copies = [copied("gpu:0", 2, 6, to_host), copied("gpu:0", 4, 8, to_device)]
    repetition = repetition_of(with_calls(computed("gpu:0", 0, 10), *copies))
    assert three_way.computed_while_copied_both_ways(repetition) == (1, 1)


def test_a_long_copy_meets_all_that_go_the_other_way_meanwhile() -> None:
    long, short = copied("cpu:2", 0, 100), [copied("cpu:1", at, at + 5) for at in (10, 50, 98)]
    moments = three_way.moments_of_both_ways([long, *short])
    assert moments == [(10, 15), (50, 55), (98, 100)]


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
    monkeypatch.setattr(works, "seconds_of_one", lambda _, size: size**3 + 700**3)
    assert filling_size(trial()) == 2048
