"""PyTorch on GPUs, whole, as streams, beside CPUs, and among processes: right numbers and no races
on made-up GPUs, whose streams lag.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import backends
from backends import HOST, Backend, BackendError
from backends.base import DelegatingBackend
from backends.conformance.drawing import draw_program
from backends.devices import Device
from tests.backends.conformance.in_this_process import fault_in
from tests.backends.protocol.arrays import assert_equal, full
from tests.backends.protocol.test_errors import refuse
from tests.backends.protocol.test_foreign_devices import WITH_VALUE

PLACES = (
    "gpu:0/0,gpu:0/1",
    "cpu:1,gpu:0",
    "gpu:1,cpu:2,gpu:0/0,gpu:0/1,cpu:1",
    "gpu:0",
    "gpu:1,gpu:0",
)

Load = Callable[..., tuple[Backend, Any]]


class WithHost(DelegatingBackend):
    """A backend whose last device is the memory that GPUs copy from and to."""

    @property
    def devices(self) -> tuple[Device, ...]:
        return (*self.inner.devices, HOST)


@settings(max_examples=40)
@given(
    names=st.sampled_from(PLACES),
    number=st.integers(0, 10**6),
    seed=st.integers(0, 99),
    variants=st.sampled_from([(), ("copy-on-compute-queue",)]),
    with_host=st.booleans(),
)
@example(names="cpu:1,gpu:0", number=1699, seed=0, variants=(), with_host=True)
@example(names="gpu:0/0,gpu:0/1", number=1699, seed=0, variants=(), with_host=True)
def test_random_programs_have_no_races_and_give_numpy_s_numbers(
    on_made_up_gpus: Load,
    names: str,
    number: int,
    seed: int,
    variants: tuple[str, ...],
    with_host: bool,
) -> None:
    variants_on_gpus = () if "cpu" in names else variants
    backend, cuda = on_made_up_gpus(names, seed, variants_on_gpus)
    # Without a queue a tensor on a CPU does not know whether its device is HOST.
    if with_host and backend.engine == "async":
        backend = WithHost(backend)
    program = draw_program(Random(f"0/{number}"), len(backend.devices))
    assert fault_in(program, backend) is None
    assert cuda.races == []


def test_streams_of_one_gpu_read_each_other_s_arrays_and_let_them_go(
    on_made_up_gpus: Load,
) -> None:
    backend, cuda = on_made_up_gpus("gpu:0/0,gpu:0/1")
    for step in range(20):
        x = full(backend, step, 3)
        y = backend.copy_to(backend.launch(backend.ops.add, x, 1.0), backend.devices[1])
        total = backend.launch(backend.ops.add, y, x)
    last_step = 19
    assert_equal(backend, total, [last_step + 1 + last_step] * 3)
    del x, y, total
    backend.waitall()
    kept_memories = [memory for memory in cuda.allocated_on if cuda.users[memory] > 0]
    # Four arrays of each step would be eighty.
    assert len(kept_memories) < 40
    assert cuda.races == []


def count_places(names: str) -> int:
    """Return the number of places of devices with these names and the host."""
    return len(names.split(",")) + 1


@pytest.mark.parametrize("profiled", [False, True])
@pytest.mark.parametrize("names", PLACES)
def test_what_was_read_by_a_name_that_is_gone_is_not_overwritten(
    on_made_up_gpus: Load, names: str, profiled: bool
) -> None:
    def changed(fn: Callable[..., Any]) -> Callable[..., Any]:
        """Change a function that is submitted to another one, as a profiler does."""
        return lambda *args: fn(*args)

    for place in range(count_places(names)):
        backend, cuda = on_made_up_gpus(names)
        device = (*backend.devices, HOST)[place]
        with ExitStack() as profile:
            if profiled:
                for stream in backend.streams:  # type: ignore[attr-defined]
                    profile.enter_context(stream.submitting(changed))
            x = backend.asarray(np.float32([0, 1, 2, 3]), device)
            new = backend.asarray(np.float32([4, 1, 2, 3]), device)
            halves = backend.launch(backend.ops.split, x, (2, 2))
            copies = [backend.copy_to(halves[-1], target) for target in backend.devices]
            backend.wait(halves)
            del halves

            x = backend.copy_to(new, device, out=x)

            for copy in copies:
                assert_equal(backend, copy, [2, 3])
            assert_equal(backend, x, [4, 1, 2, 3])
        assert cuda.races == []


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("names", PLACES)
def test_a_value_of_several_devices_is_copied_as_its_arrays_are(
    on_made_up_gpus: Load, names: str, is_reversed: bool
) -> None:
    for place in range(count_places(names)):
        backend, cuda = on_made_up_gpus(names)
        everywhere = (*backend.devices, HOST)
        # Each array holds the number of its device.
        arrays = [
            backend.asarray(np.float32([number, number]), device)
            for number, device in enumerate(everywhere)
        ]
        # What lies on the host has arrived there by a copy that is still under way.
        on_gpu = backend.copy_to(arrays[-1], backend.devices[-1])
        arrays[-1] = backend.copy_to(on_gpu, HOST)
        expected = list(range(len(arrays)))
        if is_reversed:
            arrays.reverse()
            expected.reverse()
        value = tuple(arrays)
        zeros = tuple(np.zeros(2, np.float32) for _ in arrays)
        out = backend.asarray(zeros, everywhere[place])

        copy = backend.copy_to(value, everywhere[place])
        copy_to_out = backend.copy_to(value, everywhere[place], out=out)

        assert [array[0] for array in backend.to_numpy(copy)] == expected
        assert [array[0] for array in backend.to_numpy(copy_to_out)] == expected
        assert cuda.races == []


Alone = tuple[Any, Backend]


@pytest.fixture
def alone(on_made_up_gpus: Load, monkeypatch: pytest.MonkeyPatch) -> Iterator[Alone]:
    """A group of one process, over gloo, and its backend of one GPU, which sees no race."""
    torch = pytest.importorskip("torch")
    from backends.torch.process_group import TorchGroup

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    backend, cuda = on_made_up_gpus("gpu:0")
    yield TorchGroup(backend._torch, backend, 0, ("here",)), backend  # type: ignore[attr-defined]
    torch.distributed.destroy_process_group()
    assert cuda.races == []


def test_a_value_of_a_gpu_is_summed_when_it_is_computed(alone: Alone) -> None:
    group, backend = alone
    for step in range(3):
        increased = backend.launch(backend.ops.add, full(backend, step, 2), 1.0)
        # In a group of one process a sum is its only term.
        sums = group.sum((increased, full(backend, step, 1)))
        doubled = backend.launch(backend.ops.add, sums[0], sums[0])
        assert_equal(backend, doubled, [2 * (step + 1)] * 2)
        assert_equal(backend, sums[1], [step])
    assert group.sum_on_host(np.float32([5])).tolist() == [5]
    group.waitall()


def test_a_sum_waits_for_what_read_its_memory_by_a_name_that_is_gone(alone: Alone) -> None:
    group, backend = alone
    (device,) = backend.devices
    if backend.engine == "sync":
        pytest.skip("nothing is queued behind a reader")
    numbers = np.arange(4, dtype=np.float32)
    # Two arrays: they are summed in other memory, and the sum is then copied to theirs.
    x, y = backend.asarray(numbers, device), backend.asarray(numbers, device)
    halves = backend.launch(backend.ops.split, x, (2, 2))
    copy = backend.copy_to(halves[-1], HOST)
    del halves
    sums = group.sum((x, y))
    group.waitall()
    assert_equal(backend, copy, [2, 3])
    assert_equal(backend, sums[0], [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("gpu_of_other", "host_of_other", "is_refused"),
    [("GPU-1", "here", True), ("GPU-2", "here", False), ("GPU-1", "there", False)],
)
def test_ranks_on_one_gpu_are_refused(
    gpu_of_other: str, host_of_other: str, is_refused: bool
) -> None:
    torch = pytest.importorskip("torch")
    from backends.torch.process_group import check_gpus

    store = torch.distributed.HashStore()
    store.set("GPU of 1", f"{host_of_other}: {gpu_of_other}")
    expectation = (
        pytest.raises(BackendError, match="ranks 0, 1 share a GPU") if is_refused else nullcontext()
    )
    with expectation:
        check_gpus(store, 0, ("here", host_of_other), "GPU-1")


def test_a_made_up_stream_computes_later_than_it_is_issued(
    made_up_torch: Callable[..., Any],
) -> None:
    torch = made_up_torch(1)
    x = torch.tensor(np.ones(3, np.float32), device="cuda:0")
    count_of_late = 0
    for _ in range(30):
        y = x + 1
        with torch._C.DisableTorchFunctionSubclass():
            # Until it is computed it holds no numbers.
            if y.isnan().all():
                count_of_late += 1
            torch.cuda.synchronize(0)
            assert y.tolist() == [2, 2, 2]
    assert 0 < count_of_late < 30


@pytest.mark.parametrize("engine", ["async", "sync"])
@pytest.mark.parametrize("verb", WITH_VALUE)
def test_an_array_on_a_gpu_that_was_not_loaded_is_refused(
    made_up_torch: Callable[..., Any], engine: str, verb: str
) -> None:
    made_up_torch(2)
    backend = backends.load("torch", "gpu:0/0,gpu:0/1", "gpu", engine, 1)
    other = backends.load("torch", "gpu:1", "gpu", engine, 1)
    y = full(other, 1, 2, 2)
    assert "gpu:1" in refuse(backend, partial(WITH_VALUE[verb], y=y))
