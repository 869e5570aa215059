"""The frameworks' own profilers, run over real work: every operation is recorded on the queue where
it ran.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from backends import Array, Backend, ComputationError
from backends.profiling import Timeline, case_text, read_trace, run_profiler, timeline_from
from backends.profiling.marks import MARKED_VERBS
from parallel_core.training.step import get_params, guards, train_batch
from tests.backends.profiling.work import (
    COUNT,
    matrix,
    named,
    overlapping,
    products,
    queues_of,
    see,
)

Record = Callable[..., Timeline]


@pytest.fixture
def any_profiled(load: Callable[[int], Backend], backend_name: str) -> Backend:
    """A backend that has a profiler, with two devices: MXNet's has rows for few more than there are
    cores.
    """
    if backend_name == "numpy":
        pytest.skip("NumPy has no profiler")
    return load(2)


@pytest.fixture
def profiled(any_profiled: Backend) -> Backend:
    """A backend whose profiler says which call launched an operator: JAX's does not."""
    if any_profiled.name == "jax":
        pytest.skip("a program of JAX's has no operators, and its copies are linked to no call")
    return any_profiled


@pytest.fixture
def record(profiled: Backend, tmp_path: Path) -> Record:
    """Run cases, which are named, under the profiler, and read what it wrote."""
    return partial(see, profiled, tmp_path / "trace.json")


def test_every_product_is_seen_where_it_ran_and_after_it_was_launched(
    any_profiled: Backend, tmp_path: Path
) -> None:
    xs = [matrix(any_profiled, device) for device in any_profiled.devices]

    def multiply_on_all_devices() -> list[list[Array]]:
        return [products(any_profiled, x) for x in xs]

    timeline = see(any_profiled, tmp_path / "trace.json", products=multiply_on_all_devices)

    multiplications = named(timeline, "matmul")
    assert len(multiplications) == COUNT * len(xs)
    assert {span.kind for span in multiplications} == {"compute"}
    launch_times = set()
    for span in multiplications:
        assert span.launched is not None
        assert 0 <= span.launched <= span.start < span.end
        launch_times.add(span.launched)
    assert len(launch_times) == len(multiplications)
    calls = named(timeline, "launch matmul")
    assert {call.start for call in calls} == launch_times
    assert {(call.device, call.kind) for call in calls} == {("host", "host")}

    if (any_profiled.name, any_profiled.engine) == ("torch", "sync"):
        assert queues_of(multiplications) == {("cpu", "calling thread")}
    else:
        count_by_device = Counter(span.device for span in multiplications)
        assert count_by_device == {str(device): COUNT for device in any_profiled.devices}
    if any_profiled.engine == "sync":
        operations = [span for span in timeline.spans if span.kind != "host"]
        for operation, next_operation in pairwise(operations):
            assert operation.end <= next_operation.start


def test_copies_are_seen_as_copies_and_never_before_what_they_copy(
    profiled: Backend, record: Record
) -> None:
    first, second = profiled.devices
    x = matrix(profiled, first)

    def run() -> Sequence[Array]:
        return [profiled.copy_to(product, device=second) for product in products(profiled, x)]

    timeline = record(run=run)

    copies, multiplications = named(timeline, "copy"), named(timeline, "matmul")
    assert len(copies) == COUNT
    assert len(multiplications) == COUNT
    assert {span.kind for span in copies} == {"copy"}
    for copy, multiplication in zip(copies, multiplications, strict=True):
        assert copy.start >= multiplication.end
    starts_of_calls = [call.start for call in named(timeline, "copy_to")]
    assert [copy.launched for copy in copies] == starts_of_calls
    if profiled.engine == "async":
        assert queues_of(copies) == {(str(second), "copy")}


def test_a_copy_the_book_s_way_stands_on_the_queue_that_computes(
    profiled: Backend, record: Record
) -> None:
    x = matrix(profiled, profiled.devices[0])

    def run() -> Sequence[Array]:
        return [profiled.launch(profiled.ops.to_host, product) for product in products(profiled, x)]

    timeline = record(run=run)

    copies = named(timeline, "copy")
    assert len(copies) == COUNT
    assert queues_of(copies) == queues_of(named(timeline, "matmul"))


def test_operations_that_begin_in_another_order_are_linked_with_their_own_calls(
    profiled: Backend, record: Record
) -> None:
    ops = profiled.ops
    first, second = profiled.devices
    x, y = matrix(profiled, first), matrix(profiled, second)
    large = matrix(profiled, second, 900)

    def run() -> Sequence[Array]:
        # What waits for the other device is launched first, and begins last where a device has a
        # queue of its own.
        product = profiled.launch(ops.matmul, large, large)
        copy = profiled.copy_to(product, first)
        rectified = profiled.launch(ops.relu, x)
        total = profiled.launch(ops.total, x)
        increased = profiled.launch(ops.add, y, 1.0)
        return [copy, increased, rectified, total]

    timeline = record(run=run)

    call_names: dict[int, str] = {}
    for span in timeline.spans:
        if span.name.startswith(("launch", "copy_to")):
            call_names[span.start] = span.name
    operation_by_call: dict[str, str] = {}
    for span in timeline.spans:
        if span.launched is not None:
            assert span.launched <= span.start
            operation_by_call[call_names[span.launched]] = span.name
    assert operation_by_call.pop("launch add").startswith("add")
    assert operation_by_call == {
        "launch matmul": "matmul",
        "launch relu": "relu",
        "launch total": "sum",
        "copy_to": "copy",
    }


def test_what_is_copied_on_a_device_in_a_computation_is_no_communication(
    profiled: Backend, record: Record
) -> None:
    scores = matrix(profiled, profiled.devices[0], 9)
    labels = profiled.asarray(np.zeros(9, dtype=np.int32), profiled.devices[0])
    timeline = record(run=lambda: profiled.launch(profiled.ops.cross_entropy, scores, labels))
    kinds_on_devices = {span.kind for span in timeline.spans if span.device != "host"}
    assert kinds_on_devices == {"compute"}


def test_a_sum_over_devices_is_an_exchange(profiled: Backend, record: Record) -> None:
    # Long enough that both backends sum in shards, each device its own.
    vector = np.ones(2**20, dtype=np.float32)
    vectors = [profiled.asarray(vector, device) for device in profiled.devices]

    timeline = record(allreduce=lambda: profiled.allreduce(vectors))

    kinds = {span.kind for span in timeline.spans}
    assert "exchange" in kinds
    assert not kinds & {"compute", "copy"}
    if profiled.engine == "async":
        exchanging = {span.device for span in timeline.spans if span.kind == "exchange"}
        assert exchanging == {str(device) for device in profiled.devices}
    assert named(timeline, "allreduce")


def test_operators_of_a_step_are_seen_and_no_two_overlap_on_a_queue(
    profiled: Backend, record: Record
) -> None:
    params = [get_params(profiled, device) for device in profiled.devices]
    images, labels = np.ones((8, 1, 28, 28), dtype=np.float32), np.zeros(8, dtype=np.int32)

    def steps() -> object:
        nonlocal params
        for _ in range(3):
            params, _, losses = train_batch(
                profiled, params, images, labels, 0.1, guards(profiled, params)
            )
        return losses

    timeline = record(steps=steps)

    names = {span.name for span in timeline.spans}
    assert names >= {
        "conv2d",
        "conv2d backward",
        "avg_pool2d",
        "relu backward",
        "matmul",
        "matmul backward",
    }
    assert names >= {"launch value_and_gradients", "launch sgd_while_finite", "allreduce"}
    assert overlapping(timeline) == []
    # Of a call's many operators the first one of each device waited for its turn.
    call_and_device = [
        (span.launched, span.device) for span in timeline.spans if span.launched is not None
    ]
    assert call_and_device
    assert len(set(call_and_device)) == len(call_and_device)


def test_cases_have_windows_of_their_own_and_work_outside_of_them_is_left_out(
    profiled: Backend, tmp_path: Path
) -> None:
    x = matrix(profiled, profiled.devices[0])
    path = tmp_path / "trace.json"
    names = ['the book\'s way: 1 × "α\\β"', "second, 100 %"]
    with run_profiler(profiled, path) as mark:
        # No case.
        products(profiled, x)
        profiled.waitall()
        for name in names:
            with mark(case_text(name)):
                products(profiled, x)
                profiled.waitall()

    timeline = timeline_from(read_trace(path))

    assert [case.name for case in timeline.cases] == names
    first, second = timeline.cases
    assert first.start == 0
    assert first.end <= second.start
    multiplications = named(timeline, "matmul")
    assert len(multiplications) == 2 * COUNT
    for case in timeline.cases:
        in_case = [span for span in multiplications if case.start <= span.start < case.end]
        assert len(in_case) == COUNT


def test_a_process_can_be_profiled_more_than_once(profiled: Backend, record: Record) -> None:
    device = profiled.devices[1]
    x = matrix(profiled, device)
    first_timeline = record(first=lambda: products(profiled, x))
    second_timeline = record(second=lambda: products(profiled, x))
    assert len(named(first_timeline, "matmul")) == COUNT
    assert len(named(second_timeline, "matmul")) == COUNT
    assert [case.name for case in second_timeline.cases] == ["second"]
    if profiled.engine == "async":
        # The rows' names are written once in a process; the second trace needs them too.
        assert {span.device for span in named(second_timeline, "matmul")} == {str(device)}
    # The backend's own verbs are back.
    assert set(MARKED_VERBS).isdisjoint(vars(profiled))


def test_after_a_failure_within_a_profile_every_verb_refuses(
    profiled: Backend, record: Record
) -> None:
    x = matrix(profiled, profiled.devices[0], 3)
    larger = matrix(profiled, profiled.devices[0], 4)

    def fail() -> None:
        profiled.wait(profiled.launch(profiled.ops.matmul, x, larger))

    with pytest.raises(ComputationError):
        record(fail=fail)
    with pytest.raises(ComputationError, match="refuses further work"):
        profiled.launch(profiled.ops.relu, x)
    with pytest.raises(ComputationError, match="refuses further work"):
        profiled.waitall()
    with pytest.raises(ComputationError, match="refuses further work"):
        profiled.wait(x)
