"""However a batch or a network is divided, a step is the step of one device: `batch-norm` and
`partitioning`.

Statistics of each device give another one. What moves and who waits is what the theory says.
"""

import math
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
from parallel_core import Result
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
from parallel_core.measurement.checks import relative_error, values_differ
from parallel_core.measurement.task_graph import Task, crossings, without_loads


def largest_error(arrays: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """Return the largest relative error of arrays."""
    return max(starmap(relative_error, zip(arrays, expected, strict=True)))


def change(
    backend: Backend, name: str, x: np.ndarray, labels: np.ndarray, seed: int = 0
) -> list[np.ndarray]:
    """Return how a step changes the parameters, with statistics taken in the named way."""
    rows = len(x)
    parameters = batch_norm.initial_parameters(seed)
    return batch_norm.strategies(rows)[name].changes(backend, parameters, (x, labels), 1 / rows)


def step_of_one_device(x: np.ndarray, labels: np.ndarray, seed: int = 0) -> list[np.ndarray]:
    """Return how a step of a single device changes the parameters."""
    single_device = backends.load("numpy", devices=1, threads_per_device=1)
    return change(single_device, PER_DEVICE, x, labels, seed)


def test_the_loss_is_that_of_the_textbook_s_formula() -> None:
    w1, scale, shift, w2, b2 = batch_norm.initial_parameters()
    scale, shift = scale + 0.5, shift - 0.25
    x, labels = batch_norm.synthetic_batch(9)
    z = x @ w1
    normalised = (z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + 1e-5)
    units = np.maximum(normalised * scale + shift, 0)
    scores = units @ w2 + b2
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    expected = -np.log(probabilities[np.arange(9), labels]).sum()
    loss = batch_norm.loss(backends.load("numpy", devices=1).ops)
    parameters = (w1, scale, shift, w2, b2)
    assert float(loss(parameters, x, labels)) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=16)
@given(
    rows=draw.integers(5, 20), devices=draw.sampled_from([1, 2, 3, 5]), seed=draw.integers(0, 99)
)
def test_synchronised_statistics_give_the_step_of_one_device(
    load: Callable[[int], Backend], rows: int, devices: int, seed: int
) -> None:
    x, labels = batch_norm.synthetic_batch(rows, seed)
    synchronised = change(load(devices), SYNCHRONISED, x, labels, seed)
    assert largest_error(synchronised, step_of_one_device(x, labels, seed)) < 1e-6


def test_statistics_per_device_are_of_the_device_s_rows(backend: Backend) -> None:
    x, labels = batch_norm.synthetic_batch(4)
    # Every device has the same rows, so its statistics are those of all of them.
    same_rows = change(backend, PER_DEVICE, np.tile(x, (3, 1)), np.tile(labels, 3))
    assert largest_error(same_rows, step_of_one_device(x, labels)) < 1e-6
    other_rows = change(backend, PER_DEVICE, np.repeat(x, 3, axis=0), np.repeat(labels, 3))
    assert largest_error(other_rows, same_rows) > 0.1


def test_statistics_per_device_differ_by_less_the_more_rows_there_are(backend: Backend) -> None:
    of_few_rows = difference(backend, PER_DEVICE, 3 * 8)
    of_many_rows = difference(backend, PER_DEVICE, 3 * 128)
    assert of_few_rows > 2 * of_many_rows > 1e-3


@pytest.fixture(scope="module")
def normalised() -> Result:
    """Return the result of `batch-norm` on three devices."""
    backend = backends.load("numpy", 3, threads_per_device=1)
    return parallel_core.run_batch_norm(backend, rows=20, rounds=1)


def test_synchronising_costs_two_allreduces_of_two_sums(normalised: Result) -> None:
    result = normalised
    there_and_back, other_devices, units, bytes_of_item = 2, 2, 128, 4
    bytes_of_allreduce = there_and_back * other_devices * 2 * units * bytes_of_item
    assert result.metrics["synchronising_allreduces"] == 2
    assert result.metrics["synchronising_bytes"] == 2 * bytes_of_allreduce
    medians = {case.name: case.median for case in result.cases}
    cost = medians["synchronised statistics, 16 rows"] / medians["statistics per device, 16 rows"]
    assert result.metrics["synchronising_cost"] == pytest.approx(cost)


def test_only_synchronised_statistics_differ_by_rounding_alone(normalised: Result) -> None:
    result = normalised
    per_device = result.metrics["per_device_difference_fraction"]
    assert result.series["rows"] == (8, 16)
    assert result.series["difference"][-1] == per_device
    assert result.metrics["synchronised_difference_fraction"] < 1e-6 < per_device
    assert result.bands["per_device_difference_fraction"] == "different"
    assert result.bands["synchronised_difference_fraction"] == "rounding"
    assert all(len(case.bare_seconds) == len(case.seconds) for case in result.cases)


@pytest.mark.parametrize(
    ("wrong_way", "wrong_rows", "wrong_devices", "error"),
    [
        (SYNCHRONISED, 24, 1, 1e-3),
        (SYNCHRONISED, 26, 1, math.nan),
        (PER_DEVICE, 24, 3, 1e-3),
    ],
)
def test_a_step_that_is_wrong_makes_the_result_invalid(
    backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
    wrong_way: str,
    wrong_rows: int,
    wrong_devices: int,
    error: float,
) -> None:
    def pretended_difference(_: Backend, way: str, rows: int, devices: int = 1) -> float:
        is_wrong = (way, rows, devices) == (wrong_way, wrong_rows, wrong_devices)
        return error if is_wrong else 0.0

    monkeypatch.setattr(batch_norm, "difference", pretended_difference)
    (problem,) = parallel_core.run_batch_norm(backend, rows=8, rounds=1).problems
    assert problem == values_differ("changes of the parameters", error)


NAMES = list(strategies(2))
FEATURES, UNITS, CLASSES, ITEM = 8 * 144, 32, 10, 4


def error_of_steps(
    backend: Backend, ways: Mapping[str, Strategy], batch: Batch, seed: int = 0
) -> float:
    """Return the largest error of a step, divided in each of the ways."""
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
def test_a_step_of_any_batch_is_that_of_one_device(
    backend: Backend, rows: int, micro_batches: int, seed: int
) -> None:
    batch = network.synthetic_batch(rows, seed)
    assert error_of_steps(backend, strategies(micro_batches), batch, seed) < 1e-6


def test_each_device_holds_its_part(backend: Backend) -> None:
    initial = network.initial_parameters(1)
    sizes = [parameter.size for parameter in initial]

    def held(name: str) -> list[int]:
        """Return how many numbers each device holds where the network is divided by a strategy."""
        placed = backend.to_numpy(tuple(strategies(2)[name].place(backend, initial)))
        return [sum(leaf.size for leaf in tree_leaves(parameters)) for parameters in placed]

    assert held(partitioning.DIVIDED_BATCH) == [sum(sizes)] * 3
    assert held(partitioning.WHOLE) == [sum(sizes[:2]), sum(sizes[2:4]), sum(sizes[4:])]
    # Of the last bias alone everyone has a copy.
    assert sum(held(partitioning.DIVIDED_LAYERS)) == sum(sizes) + 2 * CLASSES
    assert max(held(partitioning.DIVIDED_LAYERS)) < 0.36 * sum(sizes)


@pytest.mark.parametrize(
    ("devices", "parameters_of_devices"), [(2, [2, 4]), (3, [2, 2, 2]), (4, [2, 2, 2])]
)
def test_layers_are_shared_out_and_the_last_devices_take_more(
    load: Callable[[int], Backend], devices: int, parameters_of_devices: list[int]
) -> None:
    backend = load(devices)
    way = strategies(2)[partitioning.WHOLE]
    placed = way.place(backend, network.initial_parameters(1))
    counts = [len(backend.to_numpy(parameters)) for parameters in placed]
    assert counts == parameters_of_devices


def recorded(backend: Backend, name: str, rows: int, micro_batches: int) -> tuple[Task, ...]:
    """Return the tasks of a step that is divided by a strategy."""
    way = strategies(micro_batches)[name]
    parameters, batch = network.initial_parameters(1), network.synthetic_batch(rows)
    step = way.in_single_precision(parameters, batch, rate=0.1)
    return without_loads(record(backend, step))


def test_what_is_moved_and_waited_for_is_that_of_layers_pieces_or_gradients(
    backend: Backend,
) -> None:
    rows, devices, others, there_and_back = 7, 3, 2, 2
    parameters = sum(parameter.size for parameter in network.initial_parameters(1))
    activations_bytes = there_and_back * rows * (FEATURES + UNITS) * ITEM
    pieces_bytes = there_and_back * others * rows * (FEATURES + CLASSES) * ITEM
    gradients_bytes = there_and_back * others * parameters * ITEM
    waits_of_everyone_for_others, waits_for_the_first = devices * others, there_and_back * others
    expected_bytes_and_waits = {
        partitioning.UNDIVIDED: (0, 0),
        partitioning.WHOLE: (activations_bytes, 2 * 2),
        partitioning.CUT: (activations_bytes, 2 * 2 * 2),
        partitioning.DIVIDED_LAYERS: (
            pieces_bytes,
            2 * waits_of_everyone_for_others + waits_for_the_first,
        ),
        partitioning.DIVIDED_BATCH: (gradients_bytes, waits_for_the_first),
    }
    assert list(expected_bytes_and_waits) == NAMES
    for name, expected in expected_bytes_and_waits.items():
        tasks = recorded(backend, name, rows, 2)
        moved_bytes = sum(task.bytes for task in tasks)
        assert (moved_bytes, crossings(tasks)) == expected, name


def test_the_first_device_goes_on_before_the_others_have_begun(
    load: Callable[[int], Backend],
) -> None:
    backend = load(2)
    first_device = str(backend.devices[0])
    computed = [
        task
        for task in recorded(backend, partitioning.CUT, 8, 4)
        if task.device == first_device and task.kind == "compute"
    ]
    # Four micro-batches forward, which wait for nothing, four back, and the update.
    assert len(computed) == 9
    forward, later = computed[:4], computed[4:]
    assert all(task.after == () for task in forward)
    assert all(task.after for task in later)


def test_widths_are_doublings_and_each_has_its_figures(backend: Backend) -> None:
    result = parallel_core.run_partitioning(backend, wide=2, batch=4, micro_batches=2, rounds=1)
    medians = {case.name: case.median for case in result.cases}
    assert result.series["width"] == (1, 2)
    assert list(medians) == [f"{name}, width {width}" for width in (1, 2) for name in NAMES]
    assert all(len(case.bare_seconds) == len(case.seconds) for case in result.cases)
    for name in NAMES:
        curve = (medians[f"{name}, width 1"], medians[f"{name}, width 2"])
        assert result.series[f"seconds {name}"] == curve
    rivals = (partitioning.WHOLE, partitioning.CUT, partitioning.DIVIDED_LAYERS)
    fastest_rival = min(medians[f"{name}, width 2"] for name in rivals)
    advantage = fastest_rival / medians["data parallelism, width 2"]
    assert result.metrics["data_parallel_advantage"] == pytest.approx(advantage)
    assert result.metrics["data_parallelism_bytes"] == result.series["bytes data parallelism"][-1]
    assert result.metrics["layer_wise_partitioning_waits"] == 16
    assert result.bands.keys() == {
        "data_parallel_advantage",
        "data_parallel_speedup",
        "micro_batch_speedup",
    }
