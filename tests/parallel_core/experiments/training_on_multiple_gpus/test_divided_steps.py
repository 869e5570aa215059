"""However a network is divided, a step is the step of one device: `partitioning`.

What moves and who waits is what the theory says.
"""

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

import parallel_core
from backends import Backend
from backends.arrays import tree_leaves
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus import partitioning
from parallel_core.experiments.training_on_multiple_gpus.partitioning import network, strategies
from parallel_core.experiments.training_steps import Batch, Strategy
from parallel_core.experiments.workloads import record
from parallel_core.measurement.task_graph import Task, crossings, without_loads

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
    assert len(medians) == 2 * len(NAMES)
    assert all(len(case.bare_seconds) == len(case.seconds) for case in result.cases)
    at_width_2 = {name: medians[f"{name}, width 2"] for name in NAMES}
    for name in NAMES:
        assert result.series[f"seconds {name}"] == (medians[f"{name}, width 1"], at_width_2[name])
    rivals = (partitioning.WHOLE, partitioning.CUT, partitioning.DIVIDED_LAYERS)
    fastest_rival = min(at_width_2[name] for name in rivals)
    advantage = fastest_rival / at_width_2[partitioning.DIVIDED_BATCH]
    assert result.metrics["data_parallel_advantage"] == pytest.approx(advantage)
    assert result.metrics["data_parallelism_bytes"] == result.series["bytes data parallelism"][-1]
    assert result.metrics["layer_wise_partitioning_waits"] == 16
    assert result.bands.keys() == {
        "data_parallel_advantage",
        "data_parallel_speedup",
        "micro_batch_speedup",
    }
