"""The frameworks' own profilers, run over real work: every operation is recorded on the queue where
it ran.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from backends import Array, Backend, ComputationError
from backends.profiling import Timeline, case_text, read_trace, run_profiler, timeline_from
from backends.profiling.marks import MARKED_VERBS
from parallel_core.training.step import get_params, guards, train_batch
from tests.backends.profiling.work import COUNT, matrix, named, overlapping, products, see

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
    found = see(
        any_profiled,
        tmp_path / "trace.json",
        products=lambda: [products(any_profiled, x) for x in xs],
    )
    seen = named(found, "matmul")
    assert len(seen) == COUNT * len(xs)
    assert {span.kind for span in seen} == {"compute"}
    assert all(
        0 <= span.launched <= span.start < span.end for span in seen if span.launched is not None
    )
    assert len({span.launched for span in seen} - {None}) == len(seen)
    calls = named(found, "launch matmul")
    assert {call.start for call in calls} == {span.launched for span in seen}
    assert {(call.device, call.kind) for call in calls} == {("host", "host")}
    if (any_profiled.name, any_profiled.engine) == ("torch", "sync"):
        assert {(span.device, span.queue) for span in seen} == {("cpu", "calling thread")}
    else:
        counts = {
            device: sum(span.device == str(device) for span in seen)
            for device in any_profiled.devices
        }
        assert counts == dict.fromkeys(any_profiled.devices, COUNT)
    if any_profiled.engine == "sync":
        work = [span for span in found.spans if span.kind != "host"]
        assert all(one.end <= following.start for one, following in itertools.pairwise(work))


def test_copies_are_seen_as_copies_and_never_before_what_they_copy(
    profiled: Backend, record: Record
) -> None:
    first, second = profiled.devices
    x = matrix(profiled, first)

    def run() -> Sequence[Array]:
        return [profiled.copy_to(product, device=second) for product in products(profiled, x)]

    found = record(run=run)
    copies, made = named(found, "copy"), named(found, "matmul")
    assert len(copies) == len(made) == COUNT
    assert {span.kind for span in copies} == {"copy"}
    for copied, product in zip(copies, made, strict=True):
        assert copied.start >= product.end
    assert [copied.launched for copied in copies] == [
        call.start for call in named(found, "copy_to")
    ]
    if profiled.engine == "async":
        assert {(span.device, span.queue) for span in copies} == {(str(second), "copy")}


def test_a_copy_the_book_s_way_stands_on_the_queue_that_computes(
    profiled: Backend, record: Record
) -> None:
    x = matrix(profiled, profiled.devices[0])

    def run() -> Sequence[Array]:
        return [profiled.launch(profiled.ops.to_host, product) for product in products(profiled, x)]

    found = record(run=run)
    assert len(named(found, "copy")) == COUNT
    assert {(s.device, s.queue) for s in named(found, "copy")} == {
        (s.device, s.queue) for s in named(found, "matmul")
    }


def test_operations_that_begin_in_another_order_are_linked_with_their_own_calls(
    profiled: Backend, record: Record
) -> None:
    first, second = profiled.devices
    x, y, long = matrix(profiled, first), matrix(profiled, second), matrix(profiled, second, 900)

    def run() -> Sequence[Array]:
        # What waits for the other device is launched first, and begins last where a device has a
        # queue of its own.
        awaited = profiled.copy_to(profiled.launch(profiled.ops.matmul, long, long), first)
        rest = [profiled.launch(profiled.ops.relu, x), profiled.launch(profiled.ops.total, x)]
        return [awaited, profiled.launch(profiled.ops.add, y, 1.0), *rest]

    found = record(run=run)
    calls = {
        call.start: call.name for call in found.spans if call.name.startswith(("launch", "copy_to"))
    }
    linked = {calls[span.launched]: span.name for span in found.spans if span.launched is not None}
    assert {
        "launch matmul": "matmul",
        "launch relu": "relu",
        "launch total": "sum",
        "copy_to": "copy",
    }.items() <= (linked.items())
    assert linked["launch add"].startswith("add")
    assert all(span.launched <= span.start for span in found.spans if span.launched is not None)


def test_what_is_copied_on_a_device_in_a_computation_is_no_communication(
    profiled: Backend, record: Record
) -> None:
    x = matrix(profiled, profiled.devices[0], 9)
    labels = profiled.asarray(np.zeros(9, dtype=np.int32), profiled.devices[0])
    found = record(run=lambda: profiled.launch(profiled.ops.cross_entropy, x, labels))
    assert {span.kind for span in found.spans if span.device != "host"} == {"compute"}


def test_a_sum_over_devices_is_an_exchange(profiled: Backend, record: Record) -> None:
    # Long enough that both backends sum in shards, each device its own.
    vectors = [
        profiled.asarray(np.ones(2**20, dtype=np.float32), device) for device in profiled.devices
    ]
    found = record(allreduce=lambda: profiled.allreduce(vectors))
    exchanges = [span for span in found.spans if span.kind == "exchange"]
    assert exchanges
    if profiled.engine == "async":
        assert {span.device for span in exchanges} == {str(device) for device in profiled.devices}
    assert not [span for span in found.spans if span.kind in ("compute", "copy")]
    assert len(named(found, "allreduce")) >= 1


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

    found = record(steps=steps)
    names = {span.name for span in found.spans}
    assert {
        "conv2d",
        "conv2d backward",
        "avg_pool2d",
        "relu backward",
        "matmul",
        "matmul backward",
    } <= names
    assert {"launch value_and_gradients", "launch sgd_while_finite", "allreduce"} <= names
    assert overlapping(found) == []
    # Of a call's many operators the first one of each device waited for its turn.
    launched = [(span.launched, span.device) for span in found.spans if span.launched is not None]
    assert len(set(launched)) == len(launched) > 0


def test_cases_have_windows_of_their_own_and_work_outside_of_them_is_left_out(
    profiled: Backend, tmp_path: Path
) -> None:
    x = matrix(profiled, profiled.devices[0])
    path = tmp_path / "trace.json"
    with run_profiler(profiled, path) as mark:
        products(profiled, x)
        profiled.waitall()
        for name in ('the book\'s way: 1 × "α\\β"', "second, 100 %"):
            with mark(case_text(name)):
                products(profiled, x)
                profiled.waitall()
    found = timeline_from(read_trace(path))
    assert [case.name for case in found.cases] == ['the book\'s way: 1 × "α\\β"', "second, 100 %"]
    first, second = found.cases
    assert first.start == 0
    assert first.end <= second.start
    for case in found.cases:
        assert (
            len([span for span in named(found, "matmul") if case.start <= span.start < case.end])
            == COUNT
        )
    assert len(named(found, "matmul")) == 2 * COUNT


def test_a_process_can_be_profiled_more_than_once(profiled: Backend, record: Record) -> None:
    x = matrix(profiled, profiled.devices[1])
    once = record(first=lambda: products(profiled, x))
    again = record(second=lambda: products(profiled, x))
    for found in (once, again):
        assert len(named(found, "matmul")) == COUNT
    assert [case.name for case in again.cases] == ["second"]
    if profiled.engine == "async":
        # The rows' names are written once in a process; the second trace needs them too.
        assert {span.device for span in named(again, "matmul")} == {str(profiled.devices[1])}
    assert not set(MARKED_VERBS) & set(vars(profiled))


def test_after_a_failure_within_a_profile_every_verb_refuses(
    profiled: Backend, record: Record
) -> None:
    x, other = (matrix(profiled, profiled.devices[0], size) for size in (3, 4))

    def fail() -> None:
        profiled.wait(profiled.launch(profiled.ops.matmul, x, other))

    with pytest.raises(ComputationError):
        record(fail=fail)
    for verb in (
        partial(profiled.launch, profiled.ops.relu, x),
        profiled.waitall,
        partial(profiled.wait, x),
    ):
        with pytest.raises(ComputationError, match="refuses further work"):
            verb()
