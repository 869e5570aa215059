"""Every experiment runs on every backend and engine, is checked against NumPy, and comes out as one JSON object."""

import json
import math
from collections.abc import Callable, Sequence

import pytest

import parallel_core
from backends import Array, Backend
from parallel_core import RequestError, Result, Settings
from parallel_core.experiments import EXPERIMENTS, Mode
from parallel_core.experiments.training_on_multiple_gpus.allreduce import algorithms as collectives
from parallel_core.formatting import parse_sizes, write_size
from parallel_core.training.dataset import synthetic

MADE_UP = synthetic("a test needs no more", train=300, test=20)

RUNS: dict[str, Callable[[Backend], Result]] = {
    "async": lambda backend: parallel_core.run_async(backend, size=40, steps=30, rounds=2),
    "barriers": lambda backend: parallel_core.run_barriers(backend, size=40, deepest=3, rounds=2),
    "cost-model": lambda backend: parallel_core.run_cost_model(backend, largest=40, rounds=2),
    "eager-cpu": lambda backend: parallel_core.run_eager_cpu(backend, size=40, against="none", rounds=2),
    "parallel": lambda backend: parallel_core.run_parallel(backend, size=64, rounds=2),
    "dependencies": lambda backend: parallel_core.run_dependencies(backend, size=8, rounds=2),
    "graph": lambda backend: parallel_core.run_graph(backend, batch=20, rounds=2),
    "overlap": lambda backend: parallel_core.run_overlap(backend, size=64, copies=2, rounds=2),
    "allreduce": lambda backend: parallel_core.run_allreduce(backend, sizes=(40, 4096), rounds=2),
    "independent-ops": lambda backend: parallel_core.run_independent_ops(backend, (1,), size=64, rounds=2),
    "three-way": lambda backend: parallel_core.run_three_way(backend, size=64, copies=2, rounds=2),
    "partitioning": lambda backend: parallel_core.run_partitioning(backend, 1, 2, batch=7, micro_batches=2, rounds=2),
    "batch-norm": lambda backend: parallel_core.run_batch_norm(backend, rows=16, rounds=2),
    "data-parallel": lambda backend: parallel_core.run_data_parallel(backend, MADE_UP, Settings(2, 64)),
    "building-blocks": lambda backend: parallel_core.run_building_blocks(backend, rounds=2),
    "batch-scaling": lambda backend: parallel_core.run_batch_scaling(backend, MADE_UP, batch_size=8, steps=2, rounds=2),
    "learning-rates": lambda backend: parallel_core.run_learning_rates(
        backend, MADE_UP, (0.1, 0.2), Settings(1, 8, limit=4), rounds=1
    ),
}

FOUND: dict[tuple[str, str], Result] = {}


def result_of(name: str, backend: Backend) -> Result:
    """Run an experiment on the three devices that tests have, once for all that look at its result."""
    key = (name, backend.name)
    if key not in FOUND:
        FOUND[key] = RUNS[name](backend)
    return FOUND[key]


@pytest.fixture(autouse=True)
def _queues_of_smaller_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill queues with arrays of 1 MiB: the frameworks keep the memory that they free, and workers would grow."""
    monkeypatch.setattr("parallel_core.experiments.asynchronous_computation.asynchronous.queue_depth.SIDE", 512)


@pytest.mark.parametrize("name", RUNS)
def test_the_result_is_checked_and_described(backend: Backend, name: str) -> None:
    result = result_of(name, backend)
    found = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert found["schema"] == 1
    assert found["experiment"] == name
    assert found["backend"]["name"] == backend.name
    assert found["backend"]["engine"] == backend.engine
    assert found["backend"]["devices"] == ["cpu:1", "cpu:2", "cpu:3"]
    assert found["backend"]["threads_per_device"] == 1
    assert found["checks"]["max_relative_error"] < 1e-4
    assert not [problem for problem in found["problems"] if "differ" in problem]
    assert all(math.isfinite(value) for value in found["metrics"].values())
    for case in found["cases"]:
        assert len(case["seconds"]) == len(case["dispatch_seconds"]) == 2
        assert all(0 <= sent <= done for sent, done in zip(case["dispatch_seconds"], case["seconds"], strict=True))
    assert found["environment"]["cores"] >= 1
    assert found["explanation"]


def test_the_async_experiment_answers_all_its_questions(backend: Backend) -> None:
    result = result_of("async", backend)
    assert {case.name for case in result.cases} == {
        "10 products in NumPy",
        "10 products",
        "wait for one result",
        "waitall",
        "product, to NumPy",
        "product, to a number",
        "product, to text",
        "increments, waiting each time",
        "increments, waiting once",
        "increments in one launch",
    }
    memory = {f"peak_bytes_{kept}_waiting_every_{n}" for kept in ("kept", "dropped") for n in (1, 10, 100)}
    assert memory < set(result.metrics)
    # A hundred arrays of 1 MiB: those that are kept must be there.
    assert result.metrics["peak_bytes_kept_waiting_every_100"] > 0.5 * 100 * 2**20
    assert len(result.notes) == 5


def test_the_allreduce_experiment_has_a_figure_for_each_size_and_algorithm(backend: Backend) -> None:
    result = parallel_core.run_allreduce(backend, ("star", "ring"), (4097, 6, 4096, 1), rounds=2)
    # Sizes are whole elements, once each, in order.
    assert result.series["bytes"] == (4, 4096)
    assert result.parameters == {"algorithms": "star,ring", "sizes": "4B,4KiB", "rounds": 2}
    names = ("plain copy", "star", "ring")
    assert [case.name for case in result.cases] == [f"{name}, {size}" for size in ("4 B", "4 KiB") for name in names]
    medians = {case.name: case.median for case in result.cases}
    for name in names[1:]:
        assert result.series[f"algbw_gb_per_s {name}"][1] == pytest.approx(4096 / medians[f"{name}, 4 KiB"] / 1e9)
        assert result.series[f"share_of_copy_bound {name}"][0] == pytest.approx(
            medians["plain copy, 4 B"] / medians[f"{name}, 4 B"]
        )
    # Of the last algorithm, for native was not asked for; three devices have a factor of 4/3.
    assert result.metrics["algbw_gb_per_s"] == result.series["algbw_gb_per_s ring"][1]
    assert result.metrics["busbw_gb_per_s"] == pytest.approx(result.metrics["algbw_gb_per_s"] * 4 / 3)


@pytest.mark.parametrize("mode", ["full", "quick"])
def test_a_comparison_times_the_allreduce_that_it_names(mode: Mode) -> None:
    described = EXPERIMENTS["allreduce"]
    timed = {f"native, {write_size(size)}" for size in parse_sizes(str(described.options[mode]["sizes"]))}
    assert {described.case, described.queued_case} <= timed


def test_sums_that_are_wrong_make_the_result_invalid(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_the_last(backend: Backend, vectors: Sequence[Array]) -> tuple[Array, ...]:
        return (*collectives.star(backend, vectors[:-1]), vectors[-1])

    monkeypatch.setattr(
        "parallel_core.experiments.training_on_multiple_gpus.allreduce.checks.ALGORITHMS", {"star": without_the_last}
    )
    (problem,) = parallel_core.run_allreduce(backend, ("star",), (64,), rounds=1).problems
    assert problem.startswith("sums differ from NumPy's by ")


@pytest.mark.parametrize(
    ("algorithms", "sizes", "message"),
    [
        (("butterfly",), (64,), "unknown algorithm 'butterfly'"),
        ((), (64,), "no algorithm"),
        (("star",), (), "no size"),
        (("star",), (2**60,), "choose smaller --sizes"),
    ],
)
def test_allreduce_refuses_what_it_cannot_do(
    backend: Backend, algorithms: tuple[str, ...], sizes: tuple[int, ...], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        parallel_core.run_allreduce(backend, algorithms, sizes)


def test_the_training_experiment_reports_epochs(backend: Backend) -> None:
    result = result_of("data-parallel", backend)
    assert result.data == "synthetic images, since a test needs no more"
    assert len(result.series["test_accuracy"]) == 2
    assert len(result.series["loss"]) == 2 * 5
    assert result.metrics["test_accuracy"] == result.series["test_accuracy"][-1]
    assert result.metrics["best_test_accuracy"] == max(result.series["test_accuracy"])
    assert result.checks["max_replica_difference"] == 0


@pytest.mark.parametrize(
    "name",
    [
        "parallel",
        "overlap",
        "three-way",
        "allreduce",
        "building-blocks",
        "batch-scaling",
        "learning-rates",
        "partitioning",
        "batch-norm",
    ],
)
def test_a_single_device_is_refused_where_two_are_compared(load: Callable[[int], Backend], name: str) -> None:
    with pytest.raises(RequestError, match=f"'{name}' .* at least 2"):
        RUNS[name](load(1))


@pytest.mark.parametrize("name", ["async", "barriers", "cost-model", "eager-cpu", "independent-ops", "data-parallel"])
def test_a_single_device_does_where_it_can(
    load: Callable[[int], Backend], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How much memory a queue holds is asked above, of larger arrays.
    monkeypatch.setattr("parallel_core.experiments.asynchronous_computation.asynchronous.queue_depth.SIDE", 64)
    assert RUNS[name](load(1)).checks["max_relative_error"] < 1e-4


@pytest.mark.parametrize("name", ["parallel", "overlap", "independent-ops", "three-way"])
def test_sizes_are_chosen_when_none_is_given(backend: Backend, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parallel_core.experiments.automatic_parallelism.parallel.TARGET_SECONDS", 0.002)
    monkeypatch.setattr("parallel_core.experiments.automatic_parallelism.independent_ops.TARGET_SECONDS", 0.002)
    monkeypatch.setattr("parallel_core.experiments.automatic_parallelism.copying.START_SIZE", 64)
    runs: dict[str, Callable[[], Result]] = {
        "parallel": lambda: parallel_core.run_parallel(backend, rounds=1),
        "overlap": lambda: parallel_core.run_overlap(backend, rounds=1),
        "independent-ops": lambda: parallel_core.run_independent_ops(backend, (1,), rounds=1),
        "three-way": lambda: parallel_core.run_three_way(backend, rounds=1),
    }
    parameters = runs[name]().parameters
    assert parameters["size"] % 8 == 0
    assert parameters["size"] > 0
    assert name in ("parallel", "independent-ops") or parameters["copies"] >= 1
