"""However a network is divided, a step is the step of one device; what moves and who waits is what the theory says."""

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

import parallel_core
from backends import Backend
from backends.arrays import tree_leaves
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus.partitioning import (
    CUT,
    DIVIDED_BATCH,
    DIVIDED_LAYERS,
    UNDIVIDED,
    WHOLE,
    check_steps,
    divisions,
    strategies,
)
from parallel_core.experiments.training_steps import Batch, Strategy
from parallel_core.experiments.works import record
from parallel_core.measurement.task_graph import Task, crossings, without_loads

NAMES = list(strategies(2))
FEATURES, UNITS, CLASSES, ITEM = 8 * 144, 32, 10, 4


def error_of_steps(backend: Backend, ways: Mapping[str, Strategy], batch: Batch, seed: int = 0) -> float:
    trial = Trial(backend, {})
    check_steps(trial, ways, divisions.initial_parameters(1, seed), batch)
    (error,) = trial.errors.values()
    return error


# A framework may see to slices, promises and copies in another way than NumPy.
@pytest.mark.parametrize("devices", [2, 3, 5])
def test_a_step_is_that_of_one_device(load_any: Callable[[int], Backend], devices: int) -> None:
    assert error_of_steps(load_any(devices), strategies(3), divisions.synthetic_batch(7)) < 1e-6


@settings(max_examples=8)
@given(rows=draw.integers(4, 9), micro_batches=draw.integers(1, 4), seed=draw.integers(0, 99))
def test_it_is_for_any_batch(backend: Backend, rows: int, micro_batches: int, seed: int) -> None:
    ways = strategies(micro_batches)
    assert error_of_steps(backend, ways, divisions.synthetic_batch(rows, seed), seed) < 1e-6


def test_each_device_holds_its_part(backend: Backend, load: Callable[[int], Backend]) -> None:
    initial = divisions.initial_parameters(1)
    sizes = [parameter.size for parameter in initial]

    def held(name: str) -> list[int]:
        placed = strategies(2)[name].place(backend, initial)
        return [sum(x.size for x in tree_leaves(backend.to_numpy(own))) for own in placed]

    assert held(DIVIDED_BATCH) == [sum(sizes)] * 3
    assert held(WHOLE) == [sum(sizes[:2]), sum(sizes[2:4]), sum(sizes[4:])]
    # Of the last bias alone everyone has a copy.
    assert sum(held(DIVIDED_LAYERS)) == sum(sizes) + 2 * CLASSES
    assert max(held(DIVIDED_LAYERS)) < 0.36 * sum(sizes)
    # Layers are shared out, and the last devices take more.
    for devices, layers in ((2, [2, 4]), (3, [2, 2, 2]), (4, [2, 2, 2])):
        backend = load(devices)
        placed = strategies(2)[WHOLE].place(backend, initial)
        assert [len(backend.to_numpy(own)) for own in placed] == layers


def recorded(backend: Backend, name: str, rows: int, micro_batches: int) -> tuple[Task, ...]:
    way = strategies(micro_batches)[name]
    drawn = divisions.initial_parameters(1), divisions.synthetic_batch(rows)
    return without_loads(record(backend, way.in_single_precision(*drawn, rate=0.1)))


def test_bytes_are_those_of_activations_or_of_gradients_and_devices_wait_as_layers_and_pieces_say(
    backend: Backend,
) -> None:
    tasks = {name: recorded(backend, name, 7, 2) for name in NAMES}
    moved = {name: sum(task.bytes for task in each) for name, each in tasks.items()}
    parameters = sum(parameter.size for parameter in divisions.initial_parameters(1))
    there_and_back, others = 2, 2
    assert moved == {
        UNDIVIDED: 0,
        WHOLE: there_and_back * 7 * (FEATURES + UNITS) * ITEM,
        CUT: there_and_back * 7 * (FEATURES + UNITS) * ITEM,
        DIVIDED_LAYERS: there_and_back * others * 7 * (FEATURES + CLASSES) * ITEM,
        DIVIDED_BATCH: there_and_back * others * parameters * ITEM,
    }
    waits = {name: crossings(each) for name, each in tasks.items()}
    to_and_from_all_others, to_and_from_the_first = 3 * 2, 2 * 2
    assert waits == {
        UNDIVIDED: 0,
        WHOLE: 2 * 2,
        CUT: 2 * 2 * 2,
        DIVIDED_LAYERS: 2 * to_and_from_all_others + to_and_from_the_first,
        DIVIDED_BATCH: to_and_from_the_first,
    }


def test_the_first_device_goes_on_before_the_others_have_begun(load: Callable[[int], Backend]) -> None:
    backend = load(2)
    tasks = recorded(backend, CUT, 8, 4)
    first = [task for task in tasks if task.device == str(backend.devices[0]) and task.kind == "compute"]
    # Four micro-batches forward, which wait for nothing, four back, and the update.
    assert len(first) == 9
    assert [task.after for task in first[:4]] == [()] * 4
    assert all(task.after for task in first[4:])


def test_widths_are_doublings_and_each_has_its_figures(backend: Backend) -> None:
    result = parallel_core.run_partitioning(backend, wide=3, batch=4, micro_batches=2, rounds=1)
    assert result.series["width"] == (1, 2)
    assert [case.name for case in result.cases] == [f"{name}, width {width}" for width in (1, 2) for name in NAMES]
    assert all(len(case.bare_seconds) == len(case.seconds) for case in result.cases)
    medians = {case.name: case.median for case in result.cases}
    for name in NAMES:
        assert result.series[f"seconds {name}"] == tuple(medians[f"{name}, width {width}"] for width in (1, 2))
    others = (WHOLE, CUT, DIVIDED_LAYERS)
    assert result.metrics["data_parallel_advantage"] == pytest.approx(
        min(medians[f"{name}, width 2"] for name in others) / medians["data parallelism, width 2"]
    )
    assert result.metrics["data_parallelism_bytes"] == result.series["bytes data parallelism"][-1]
    assert result.metrics["layer_wise_partitioning_waits"] == 16
