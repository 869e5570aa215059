"""A recording gives the results of the backend that it wraps, and the dependencies that the values have."""

from fractions import Fraction
from functools import partial
from numbers import Real

import numpy as np
import pytest

from backends import Array, Backend, Ops
from parallel_core.measurement.recording import Recording, labelled
from parallel_core.measurement.task_graph import Task, crossings, without_loads

ONES = np.ones((2, 3), dtype=np.float32)


def both(ops: Ops, x: Array) -> Array:
    return ops.add(x, 1.0), (ops.add(x, 2.0), ops.add(x, 3.0))


def after(tasks: tuple[Task, ...]) -> dict[str, set[str]]:
    """Return what each task comes after, by names; loads are left out."""
    tasks = without_loads(tasks)
    return {task.name: {tasks[earlier].name for earlier in task.after} for task in tasks}


@pytest.mark.parametrize("one_by_one", [False, True])
def test_operations_depend_on_what_made_their_values(backend: Backend, one_by_one: bool) -> None:
    recording = Recording(backend, one_by_one)
    first, second, _ = backend.devices
    x = recording.asarray(ONES, first)
    a = labelled("a", recording.launch(backend.ops.add, x, 1.0))
    b = labelled("b", recording.launch(backend.ops.add, x, a))
    c = recording.copy_to(a, second)
    d = labelled("d", recording.launch(backend.ops.add, c, recording.copy_to(b, second)))
    assert np.array_equal(recording.to_numpy(recording.wait(d)), 5 * ONES)
    recording.waitall()
    tasks = recording.tasks
    assert [task.name for task in tasks] == ["asarray", "a", "b", "copy", "copy", "d"]
    assert [task.after for task in tasks] == [(), (0,), (0, 1), (1,), (2,), (3, 4)]
    assert [task.device for task in tasks] == [*[str(first)] * 3, *[str(second)] * 3]
    assert [task.kind for task in tasks] == ["load", "compute", "compute", "copy", "copy", "compute"]
    assert [task.bytes for task in tasks] == [0, 0, 0, 24, 24, 0]
    assert crossings(tasks) == 2
    assert all((task.seconds > 0) == one_by_one for task in tasks)


def test_items_of_a_tuple_lead_to_the_task_that_made_it(backend: Backend) -> None:
    recording = Recording(backend)
    x = recording.asarray(ONES, backend.devices[0])
    made = recording.launch(partial(both, backend.ops), x)
    inner = recording.launch(backend.ops.add, made[1][0], made[0])
    assert np.array_equal(recording.to_numpy(inner), 5 * ONES)
    assert after(recording.tasks) == {"both": set(), "add": {"both"}}


def test_what_consumes_a_value_comes_after_its_readers(backend: Backend) -> None:
    recording = Recording(backend)
    first, second, _ = backend.devices
    buffer = recording.asarray(ONES, second)
    labelled("reader", recording.launch(backend.ops.add, buffer, 1.0))
    x = labelled("source", recording.launch(backend.ops.add, recording.asarray(ONES, first), 1.0))
    recording.copy_to(x, second, out=buffer)
    assert after(recording.tasks) == {"reader": set(), "source": set(), "copy": {"reader", "source"}}


def test_a_consumed_item_does_not_wait_for_those_who_read_another(backend: Backend) -> None:
    recording = Recording(backend)
    first, second, _ = backend.devices
    made = recording.launch(partial(both, backend.ops), recording.asarray(ONES, first))
    labelled("reads first", recording.launch(backend.ops.add, made[0], 1.0))
    labelled("reads second", recording.launch(backend.ops.add, made[1][0], 1.0))
    recording.copy_to(recording.asarray(ONES, second), first, out=made[1][0])
    assert after(recording.tasks)["copy"] == {"both", "reads second"}


def test_an_item_is_the_same_when_it_is_counted_from_the_end(backend: Backend) -> None:
    recording = Recording(backend)
    first, second, _ = backend.devices
    made = recording.launch(partial(both, backend.ops), recording.asarray(ONES, first))
    labelled("reads first", recording.launch(backend.ops.add, made[0], 1.0))
    labelled("reads last", recording.launch(backend.ops.add, made[-1][-1], 1.0))
    recording.copy_to(recording.asarray(ONES, second), first, out=made[1][1])
    assert {"both", "reads last"} <= after(recording.tasks)["copy"]


def test_a_differentiated_function_is_named_alike_on_every_backend(backend: Backend) -> None:
    recording = Recording(backend)
    parameters = recording.asarray((ONES,), backend.devices[0])
    recording.launch(backend.ops.value_and_grad(lambda p: backend.ops.total(p[0])), parameters)
    assert recording.tasks[-1].name == "value_and_gradients"


@pytest.mark.parametrize("rate", [np.float32(0.5), np.float64(0.5), Fraction(1, 2), np.int64(1), True])
def test_any_real_number_may_be_an_argument(backend: Backend, rate: Real) -> None:
    recording = Recording(backend)
    parameters, gradients = (recording.asarray((ONES,), backend.devices[0]) for _ in range(2))
    sgd = backend.ops.sgd
    (updated,) = recording.to_numpy(recording.launch(lambda p, g, r: sgd(p, g, float(r)), parameters, gradients, rate))
    np.testing.assert_allclose(updated, (1 - float(rate)) * ONES)


def test_updated_parameters_come_after_all_that_used_the_old_ones(backend: Backend) -> None:
    recording = Recording(backend)
    device = backend.devices[0]
    parameters = recording.asarray((ONES, ONES), device)
    gradients = labelled("gradients", recording.launch(backend.ops.zeros_like, parameters))
    labelled("metric", recording.launch(backend.ops.total, parameters[0]))
    updated = labelled("update", recording.launch(partial(backend.ops.sgd, rate=0.5), parameters, gradients))
    assert np.array_equal(recording.to_numpy(updated)[1], ONES)
    assert after(recording.tasks)["update"] == {"gradients", "metric"}


def test_an_allreduce_is_one_task_that_all_devices_wait_for(backend: Backend) -> None:
    recording = Recording(backend)
    shards = recording.split_and_load(np.ones((3, 2), dtype=np.float32), backend.devices)
    own = [labelled(f"own {k}", recording.launch(backend.ops.add, shard, 1.0)) for k, shard in enumerate(shards)]
    sums = recording.allreduce(own)
    last = labelled("last", recording.launch(backend.ops.add, sums[2], 1.0))
    assert np.array_equal(recording.to_numpy(last), np.full((1, 2), 7, dtype=np.float32))
    assert after(recording.tasks) == {
        "own 0": set(),
        "own 1": set(),
        "own 2": set(),
        "allreduce": {"own 0", "own 1", "own 2"},
        "last": {"allreduce"},
    }
    *_, exchange, end = recording.tasks
    assert exchange.kind == "allreduce"
    assert exchange.device == str(backend.devices[0])
    # Two of three values of 8 bytes to the first device, and two back.
    assert exchange.bytes == 2 * 2 * 8
    assert end.device == str(backend.devices[2])
    # Two in, one out; the devices' own loads are on the devices themselves.
    assert crossings(recording.tasks) == 3


def test_a_copy_on_one_device_moves_nothing_between_devices(backend: Backend) -> None:
    recording = Recording(backend)
    device = backend.devices[0]
    recording.copy_to(recording.asarray(ONES, device), device)
    assert recording.tasks[-1].bytes == 0


def test_values_made_elsewhere_are_refused(backend: Backend) -> None:
    recording = Recording(backend)
    foreign = backend.asarray(ONES, backend.devices[0])
    with pytest.raises(ValueError, match="only its own values"):
        recording.launch(backend.ops.add, recording.asarray(ONES, backend.devices[0]), foreign)
    with pytest.raises(ValueError, match="determines the device"):
        recording.launch(backend.ops.add, foreign, 1.0)


def test_a_recording_is_described_as_its_backend_is(backend: Backend) -> None:
    recording = Recording(backend)
    described = ("name", "version", "engine", "devices", "cores", "scheduler", "settings", "variants", "ops")
    for name in (*described, "threads_per_device", "workers_per_device"):
        assert getattr(recording, name) == getattr(backend, name)
