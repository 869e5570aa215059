"""However a batch or a network is divided, a step is the step of one device: `batch-norm` and
`partitioning`.

Statistics of each device give another one. What moves and who waits is what the theory says.
"""

from collections.abc import Callable, Mapping
from itertools import starmap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

import backends
import parallel_core
from backends import Backend
from backends.arrays import tree_leaves
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus import batch_norm, partitioning
from parallel_core.experiments.training_on_multiple_gpus.batch_norm import (
    PER_DEVICE,
    SYNCHRONISED,
    difference,
)
from parallel_core.experiments.training_on_multiple_gpus.partitioning import network, strategies
from parallel_core.experiments.training_steps import Batch, Strategy
from parallel_core.experiments.workloads import record
from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.task_graph import Task, crossings, without_loads


def largest_error(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    return max(starmap(relative_error, zip(found, expected, strict=True)))


def change(
    backend: Backend, name: str, x: np.ndarray, labels: np.ndarray, seed: int = 0
) -> list[np.ndarray]:
    return batch_norm.strategies(len(x))[name].changes(
        backend, batch_norm.initial_parameters(seed), (x, labels), 1 / len(x)
    )


def step_of_one_device(x: np.ndarray, labels: np.ndarray, seed: int = 0) -> list[np.ndarray]:
    one = backends.load("numpy", devices=1, threads_per_device=1)
    return change(one, PER_DEVICE, x, labels, seed)


def test_the_loss_is_that_of_the_textbook_s_formula() -> None:
    w1, scale, shift, w2, b2 = batch_norm.initial_parameters()
    scale, shift = scale + 0.5, shift - 0.25
    x, labels = batch_norm.synthetic_batch(9)
    z = x @ w1
    units = np.maximum((z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + 1e-5) * scale + shift, 0)
    scores = units @ w2 + b2
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    expected = -np.log(probabilities[np.arange(9), labels]).sum()
    found = batch_norm.loss(backends.load("numpy", devices=1).ops)(
        (w1, scale, shift, w2, b2), x, labels
    )
    assert float(found) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=16)
@given(
    rows=draw.integers(5, 20), devices=draw.sampled_from([1, 2, 3, 5]), seed=draw.integers(0, 99)
)
def test_synchronised_statistics_give_the_step_of_one_device(
    load: Callable[[int], Backend], rows: int, devices: int, seed: int
) -> None:
    batch = batch_norm.synthetic_batch(rows, seed)
    found = change(load(devices), SYNCHRONISED, *batch, seed)
    assert largest_error(found, step_of_one_device(*batch, seed)) < 1e-6


def test_statistics_per_device_are_of_the_device_s_rows_and_differ_by_less_the_more_there_are(
    backend: Backend,
) -> None:
    x, labels = batch_norm.synthetic_batch(4)
    found = change(backend, PER_DEVICE, np.tile(x, (3, 1)), np.tile(labels, 3))
    # Every device has the same rows, so its statistics are those of all of them.
    assert largest_error(found, step_of_one_device(x, labels)) < 1e-6
    shuffled = np.repeat(x, 3, axis=0), np.repeat(labels, 3)
    assert largest_error(change(backend, PER_DEVICE, *shuffled), found) > 0.1
    few, many = (difference(backend, PER_DEVICE, 3 * rows) for rows in (8, 128))
    assert few > 2 * many > 1e-3


def test_synchronising_costs_two_allreduces_of_two_sums(backend: Backend) -> None:
    result = parallel_core.run_batch_norm(backend, rows=20, rounds=1)
    assert result.series["rows"] == (8, 16)
    assert result.metrics["synchronising_allreduces"] == 2
    there_and_back, others, units, item = 2, 2, 128, 4
    assert result.metrics["synchronising_bytes"] == 2 * there_and_back * others * 2 * units * item
    assert (
        result.metrics["synchronised_difference_fraction"]
        < 1e-6
        < result.metrics["per_device_difference_fraction"]
    )
    assert result.metrics["per_device_difference_fraction"] == result.series["difference"][-1]
    assert all(len(case.bare_seconds) == len(case.seconds) for case in result.cases)
    medians = {case.name: case.median for case in result.cases}
    assert result.bands["per_device_difference_fraction"] == "different"
    assert result.bands["synchronised_difference_fraction"] == "rounding"
    assert result.metrics["synchronising_cost"] == pytest.approx(
        medians["synchronised statistics, 16 rows"] / medians["statistics per device, 16 rows"]
    )


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ((SYNCHRONISED, 24, 1), 1e-3),
        ((SYNCHRONISED, 26, 1), float("nan")),
        ((PER_DEVICE, 24, 3), 1e-3),
    ],
)
def test_a_step_that_is_wrong_makes_the_result_invalid(
    backend: Backend, wrong: tuple[object, int, int], error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pretended(_: Backend, way: object, rows: int, devices: int = 1) -> float:
        return error if (way, rows, devices) == wrong else 0.0

    monkeypatch.setattr(batch_norm, "difference", pretended)
    (problem,) = parallel_core.run_batch_norm(backend, rows=8, rounds=1).problems
    assert problem.startswith("changes of the parameters differ from NumPy's by ")


NAMES = list(strategies(2))
FEATURES, UNITS, CLASSES, ITEM = 8 * 144, 32, 10, 4


def error_of_steps(
    backend: Backend, ways: Mapping[str, Strategy], batch: Batch, seed: int = 0
) -> float:
    trial = Trial(backend, {})
    partitioning.check_steps(trial, ways, network.initial_parameters(1, seed), batch)
    (error,) = trial.errors.values()
    return error


# A framework may see to slices, promises and copies in another way than NumPy.
@pytest.mark.parametrize("devices", [2, 3, 5])
def test_a_step_is_that_of_one_device(load_any: Callable[[int], Backend], devices: int) -> None:
    assert error_of_steps(load_any(devices), strategies(3), network.synthetic_batch(7)) < 1e-6


@settings(max_examples=8)
@given(rows=draw.integers(4, 9), micro_batches=draw.integers(1, 4), seed=draw.integers(0, 99))
def test_it_is_for_any_batch(backend: Backend, rows: int, micro_batches: int, seed: int) -> None:
    ways = strategies(micro_batches)
    assert error_of_steps(backend, ways, network.synthetic_batch(rows, seed), seed) < 1e-6


def test_each_device_holds_its_part(backend: Backend, load: Callable[[int], Backend]) -> None:
    initial = network.initial_parameters(1)
    sizes = [parameter.size for parameter in initial]

    def held(name: str) -> list[int]:
        placed = strategies(2)[name].place(backend, initial)
        return [sum(x.size for x in tree_leaves(backend.to_numpy(own))) for own in placed]

    assert held(partitioning.DIVIDED_BATCH) == [sum(sizes)] * 3
    assert held(partitioning.WHOLE) == [sum(sizes[:2]), sum(sizes[2:4]), sum(sizes[4:])]
    # Of the last bias alone everyone has a copy.
    assert sum(held(partitioning.DIVIDED_LAYERS)) == sum(sizes) + 2 * CLASSES
    assert max(held(partitioning.DIVIDED_LAYERS)) < 0.36 * sum(sizes)
    # Layers are shared out, and the last devices take more.
    for devices, layers in ((2, [2, 4]), (3, [2, 2, 2]), (4, [2, 2, 2])):
        backend = load(devices)
        placed = strategies(2)[partitioning.WHOLE].place(backend, initial)
        assert [len(backend.to_numpy(own)) for own in placed] == layers


def recorded(backend: Backend, name: str, rows: int, micro_batches: int) -> tuple[Task, ...]:
    way = strategies(micro_batches)[name]
    drawn = network.initial_parameters(1), network.synthetic_batch(rows)
    return without_loads(record(backend, way.in_single_precision(*drawn, rate=0.1)))


def test_what_is_moved_and_waited_for_is_that_of_layers_pieces_or_gradients(
    backend: Backend,
) -> None:
    tasks = {name: recorded(backend, name, 7, 2) for name in NAMES}
    parameters = sum(parameter.size for parameter in network.initial_parameters(1))
    there_and_back, others = 2, 2
    activations = there_and_back * 7 * (FEATURES + UNITS) * ITEM
    of_layers = there_and_back * others * 7 * (FEATURES + CLASSES) * ITEM
    to_and_from_all_others, to_and_from_the_first = 3 * 2, 2 * 2
    assert {
        name: (sum(task.bytes for task in each), crossings(each)) for name, each in tasks.items()
    } == {
        partitioning.UNDIVIDED: (0, 0),
        partitioning.WHOLE: (activations, 2 * 2),
        partitioning.CUT: (activations, 2 * 2 * 2),
        partitioning.DIVIDED_LAYERS: (
            of_layers,
            2 * to_and_from_all_others + to_and_from_the_first,
        ),
        partitioning.DIVIDED_BATCH: (
            there_and_back * others * parameters * ITEM,
            to_and_from_the_first,
        ),
    }


def test_the_first_device_goes_on_before_the_others_have_begun(
    load: Callable[[int], Backend],
) -> None:
    backend = load(2)
    tasks = recorded(backend, partitioning.CUT, 8, 4)
    first = [
        task for task in tasks if task.device == str(backend.devices[0]) and task.kind == "compute"
    ]
    # Four micro-batches forward, which wait for nothing, four back, and the update.
    assert len(first) == 9
    assert [task.after for task in first[:4]] == [()] * 4
    assert all(task.after for task in first[4:])


def test_widths_are_doublings_and_each_has_its_figures(backend: Backend) -> None:
    result = parallel_core.run_partitioning(backend, wide=2, batch=4, micro_batches=2, rounds=1)
    assert result.series["width"] == (1, 2)
    assert [case.name for case in result.cases] == [
        f"{name}, width {width}" for width in (1, 2) for name in NAMES
    ]
    assert all(len(case.bare_seconds) == len(case.seconds) for case in result.cases)
    medians = {case.name: case.median for case in result.cases}
    for name in NAMES:
        assert result.series[f"seconds {name}"] == tuple(
            medians[f"{name}, width {width}"] for width in (1, 2)
        )
    others = (partitioning.WHOLE, partitioning.CUT, partitioning.DIVIDED_LAYERS)
    assert result.metrics["data_parallel_advantage"] == pytest.approx(
        min(medians[f"{name}, width 2"] for name in others) / medians["data parallelism, width 2"]
    )
    assert result.metrics["data_parallelism_bytes"] == result.series["bytes data parallelism"][-1]
    assert result.metrics["layer_wise_partitioning_waits"] == 16
    assert result.bands.keys() == {
        "data_parallel_advantage",
        "data_parallel_speedup",
        "micro_batch_speedup",
    }
