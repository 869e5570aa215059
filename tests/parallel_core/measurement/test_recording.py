"""A recording gives the results of the backend that it wraps, and the dependencies that the values have."""

from fractions import Fraction
from functools import partial, reduce
from numbers import Real
from operator import getitem

import numpy as np
import pytest

from backends import Array, Backend, Ops
from parallel_core.measurement.recording import Recording, labelled
from parallel_core.measurement.task_graph import Task, crossings, without_loads

ONES = np.ones((2, 3), dtype=np.float32)


@pytest.fixture
def recording(backend: Backend) -> Recording:
    return Recording(backend)


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


def test_items_of_a_tuple_lead_to_the_task_that_made_it(recording: Recording) -> None:
    x = recording.asarray(ONES, recording.devices[0])
    made = recording.launch(partial(both, recording.ops), x)
    inner = recording.launch(recording.ops.add, made[1][0], made[0])
    assert np.array_equal(recording.to_numpy(inner), 5 * ONES)
    assert after(recording.tasks) == {"both": set(), "add": {"both"}}


@pytest.mark.parametrize(
    ("consumed", "conflicting"),
    [((0,), {"reads first"}), ((1, 0), {"reads inner"}), ((1, 1), {"reads last"}), ((1, -1), {"reads last"})],
)
def test_what_consumes_an_item_comes_after_those_who_read_it_and_no_others(
    recording: Recording, consumed: tuple[int, ...], conflicting: set[str]
) -> None:
    add, (first, second, _) = recording.ops.add, recording.devices
    made = recording.launch(partial(both, recording.ops), recording.asarray(ONES, first))
    for name, read in (("reads first", made[0]), ("reads inner", made[1][0]), ("reads last", made[-1][-1])):
        labelled(name, recording.launch(add, read, 1.0))
    recording.copy_to(recording.asarray(ONES, second), first, out=reduce(getitem, consumed, made))
    # An item that is counted from the end may be any other one that is not.
    last = {"reads last"} if consumed[-1] >= 0 or len(consumed) == 1 else {"reads inner", "reads first"}
    assert {"both"} | conflicting <= after(recording.tasks)["copy"] <= {"both"} | conflicting | last


def test_a_differentiated_function_is_named_alike_on_every_backend(recording: Recording) -> None:
    parameters = recording.asarray((ONES,), recording.devices[0])
    recording.launch(recording.ops.value_and_grad(lambda p: recording.ops.total(p[0])), parameters)
    assert recording.tasks[-1].name == "value_and_gradients"


@pytest.mark.parametrize("rate", [np.float32(0.5), np.float64(0.5), Fraction(1, 2), np.int64(1), True])
def test_any_real_number_may_be_an_argument(recording: Recording, rate: Real) -> None:
    parameters, gradients = (recording.asarray((ONES,), recording.devices[0]) for _ in range(2))
    sgd = recording.ops.sgd
    (updated,) = recording.to_numpy(recording.launch(lambda p, g, r: sgd(p, g, float(r)), parameters, gradients, rate))
    np.testing.assert_allclose(updated, (1 - float(rate)) * ONES)


def test_updated_parameters_come_after_all_that_used_the_old_ones(recording: Recording) -> None:
    device = recording.devices[0]
    parameters = recording.asarray((ONES, ONES), device)
    gradients = labelled("gradients", recording.launch(recording.ops.zeros_like, parameters))
    labelled("metric", recording.launch(recording.ops.total, parameters[0]))
    updated = labelled("update", recording.launch(partial(recording.ops.sgd, rate=0.5), parameters, gradients))
    assert np.array_equal(recording.to_numpy(updated)[1], ONES)
    assert after(recording.tasks)["update"] == {"gradients", "metric"}


def test_an_allreduce_is_one_task_that_all_devices_wait_for(recording: Recording) -> None:
    shards = recording.split_and_load(np.ones((3, 2), dtype=np.float32), recording.devices)
    own = [labelled(f"own {k}", recording.launch(recording.ops.add, shard, 1.0)) for k, shard in enumerate(shards)]
    sums = recording.allreduce(own)
    last = labelled("last", recording.launch(recording.ops.add, sums[2], 1.0))
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
    assert exchange.device == str(recording.devices[0])
    # Two of three values of 8 bytes to the first device, and two back.
    assert exchange.bytes == 2 * 2 * 8
    assert end.device == str(recording.devices[2])
    # Two in, one out; the devices' own loads are on the devices themselves.
    assert crossings(recording.tasks) == 3


def test_a_copy_on_one_device_moves_nothing_between_devices(recording: Recording) -> None:
    device = recording.devices[0]
    recording.copy_to(recording.asarray(ONES, device), device)
    assert recording.tasks[-1].bytes == 0


def test_values_made_elsewhere_are_refused(backend: Backend, recording: Recording) -> None:
    foreign = backend.asarray(ONES, backend.devices[0])
    with pytest.raises(ValueError, match="only its own values"):
        recording.launch(backend.ops.add, recording.asarray(ONES, backend.devices[0]), foreign)
    with pytest.raises(ValueError, match="determines the device"):
        recording.launch(backend.ops.add, foreign, 1.0)
