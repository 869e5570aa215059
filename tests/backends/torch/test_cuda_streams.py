"""PyTorch on GPUs, whole, as streams, beside CPUs, and among processes: right numbers and no races
on made-up GPUs, whose streams lag.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import backends
from backends import HOST, Backend, BackendError
from backends.conformance.drawing import draw_program
from backends.devices import Device
from backends.protocol import DelegatingBackend
from tests.backends.conformance.in_this_process import fault_in
from tests.backends.protocol.arrays import full
from tests.backends.protocol.test_foreign_devices import WITH_VALUE, refused

PLACES = (
    "gpu:0/0,gpu:0/1",
    "cpu:1,gpu:0",
    "gpu:1,cpu:2,gpu:0/0,gpu:0/1,cpu:1",
    "gpu:0",
    "gpu:1,gpu:0",
)

Loaded = tuple[Backend, Any]


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
    on_made_up_gpus: Callable[..., Loaded],
    names: str,
    number: int,
    seed: int,
    variants: tuple[str, ...],
    with_host: bool,
) -> None:
    backend, cuda = on_made_up_gpus(names, seed, variants if "cpu" not in names else ())
    # Without a queue a tensor on a CPU does not know whether its device is HOST.
    used: Any = WithHost(backend) if with_host and backend.engine == "async" else backend
    assert fault_in(draw_program(Random(f"0/{number}"), len(used.devices)), used) is None
    assert cuda.races == []


def test_streams_of_one_gpu_read_each_other_s_arrays_and_let_them_go(
    on_made_up_gpus: Callable[..., Loaded],
) -> None:
    backend, cuda = on_made_up_gpus("gpu:0/0,gpu:0/1")
    first, second = backend.devices
    for step in range(20):
        x = backend.asarray(np.full(3, step, dtype=np.float32), first)
        y = backend.copy_to(backend.launch(backend.ops.add, x, 1.0), second)
        total = backend.launch(backend.ops.add, y, x)
    assert backend.to_numpy(total).tolist() == [39, 39, 39]
    del x, y, total
    backend.waitall()
    assert sum(cuda.users[memory] > 0 for memory in cuda.allocated_on) < 40
    assert cuda.races == []


@pytest.mark.parametrize("profiled", [False, True])
@pytest.mark.parametrize("names", PLACES)
def test_what_was_read_by_a_name_that_is_gone_is_not_overwritten(
    on_made_up_gpus: Callable[..., Loaded], names: str, profiled: bool
) -> None:
    for place in range(len(names.split(",")) + 1):
        backend, cuda = on_made_up_gpus(names)
        there = (*backend.devices, HOST)[place]
        with ExitStack() as profile:
            for stream in backend.streams if profiled else ():  # type: ignore[attr-defined]
                profile.enter_context(stream.submitting(lambda fn: lambda *args: fn(*args)))
            x, new = (backend.asarray(np.float32([k, 1, 2, 3]), there) for k in (0, 4))
            parts = backend.launch(backend.ops.split, x, (2, 2))
            copies = [backend.copy_to(parts[-1], device) for device in backend.devices]
            backend.wait(parts)
            del parts
            x = backend.copy_to(new, there, out=x)
            for copy in copies:
                np.testing.assert_array_equal(backend.to_numpy(copy), [2, 3])
            np.testing.assert_array_equal(backend.to_numpy(x), [4, 1, 2, 3])
        assert cuda.races == []


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("names", PLACES)
def test_a_value_of_several_devices_is_copied_as_its_arrays_are(
    on_made_up_gpus: Callable[..., Loaded], names: str, turned: bool
) -> None:
    for place in range(len(names.split(",")) + 1):
        backend, cuda = on_made_up_gpus(names)
        everywhere = (*backend.devices, HOST)
        loaded = [
            backend.asarray(np.float32([k, k]), device) for k, device in enumerate(everywhere)
        ]
        # What lies on the host has arrived there by a copy that is still under way.
        loaded[-1] = backend.copy_to(backend.copy_to(loaded[-1], backend.devices[-1]), HOST)
        x = tuple(reversed(loaded) if turned else loaded)
        out = backend.asarray(tuple(np.zeros(2, np.float32) for _ in x), everywhere[place])
        for copy in (
            backend.copy_to(x, everywhere[place]),
            backend.copy_to(x, everywhere[place], out=out),
        ):
            found = [part[0] for part in backend.to_numpy(copy)]
            assert found == sorted(range(len(x)), reverse=turned)
        assert cuda.races == []


SHAPES = st.lists(st.integers(0, 7), max_size=3)
DTYPES = st.sampled_from(["float32", "float64", "uint8", "bool", "int64"])


@settings(max_examples=40)
@given(copies=st.lists(st.tuples(SHAPES, DTYPES, st.booleans(), st.booleans()), max_size=6))
def test_arrays_of_any_shape_cross_between_cpus_and_gpus(
    on_made_up_gpus: Callable[..., Loaded], copies: list[tuple[list[int], str, bool, bool]]
) -> None:
    backend, cuda = on_made_up_gpus("cpu:1,gpu:0")
    cpu, gpu = backend.devices
    for shape, dtype, transposed, into in copies:
        x = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
        x = x.T if transposed else x
        for start, there in ((cpu, gpu), (gpu, cpu)):
            out = backend.asarray(np.zeros_like(x), there) if into else None
            copy = backend.copy_to(backend.asarray(x, start), there, out=out)
            back = backend.copy_to(copy, start)
            for found in map(backend.to_numpy, (copy, back)):
                np.testing.assert_array_equal(found, x)
                assert found.dtype == x.dtype
    assert cuda.races == []


Alone = tuple[Any, Backend]


@pytest.fixture
def alone(
    on_made_up_gpus: Callable[..., Loaded], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Alone]:
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
    (device,) = backend.devices
    for step in range(3):
        term = backend.launch(
            backend.ops.add, backend.asarray(np.full(2, step, np.float32), device), 1.0
        )
        pair = group.sum((term, backend.asarray(np.float32([step]), device)))
        doubled = backend.launch(lambda first, second: (first + first, second), pair[0], pair[1])
        summed, other = backend.to_numpy(doubled)
        assert (summed.tolist(), other.tolist()) == ([2 * step + 2] * 2, [step])
    assert group.sum_on_host(np.float32([5])).tolist() == [5]
    group.waitall()


def test_a_sum_waits_for_what_read_its_memory_by_a_name_that_is_gone(alone: Alone) -> None:
    group, backend = alone
    (device,) = backend.devices
    if backend.engine == "sync":
        pytest.skip("nothing is queued behind a reader")
    # Two arrays: they are summed in other memory, and the sum is then copied to theirs.
    x, y = (backend.asarray(np.arange(4, dtype=np.float32), device) for _ in range(2))
    parts = backend.launch(backend.ops.split, x, (2, 2))
    copy = backend.copy_to(parts[-1], HOST)
    del parts
    summed = group.sum((x, y))
    group.waitall()
    assert backend.to_numpy(copy).tolist() == [2, 3]
    assert backend.to_numpy(summed[0]).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("of_other", "hosts", "refused"),
    [
        ("GPU-1", ("here", "here"), True),
        ("GPU-2", ("here", "here"), False),
        ("GPU-1", ("here", "there"), False),
    ],
)
def test_ranks_on_one_gpu_are_refused(of_other: str, hosts: tuple[str, str], refused: bool) -> None:
    torch = pytest.importorskip("torch")
    from backends.torch.process_group import check_gpus

    store = torch.distributed.HashStore()
    store.set("GPU of 1", f"{hosts[1]}: {of_other}")
    with pytest.raises(BackendError, match="ranks 0, 1 share a GPU") if refused else nullcontext():
        check_gpus(store, 0, hosts, "GPU-1")


@pytest.mark.parametrize("length", [0, 2])
def test_a_made_up_array_is_where_it_was_made(
    made_up_torch: Callable[..., Any], length: int
) -> None:
    """Those without elements have one address."""
    torch, places = made_up_torch(2), {"cuda:1": 1, "cpu": None, "cuda:0": 0}
    made = [torch.tensor(np.zeros(length), device=place) for place in places]
    for arrays in (made, [x.view(-1, 1) for x in made], [torch.cat([x, x]) for x in made]):
        assert [x.device.index for x in arrays] == list(places.values())
    assert torch.cuda.unfinished() == {"cat"}


def test_a_made_up_stream_computes_later_than_it_is_issued(
    made_up_torch: Callable[..., Any],
) -> None:
    torch = made_up_torch(1)
    x = torch.tensor(np.ones(3, np.float32), device="cuda:0")
    late = 0
    for _ in range(30):
        y = x + 1
        with torch._C.DisableTorchFunctionSubclass():
            late += int(y.isnan().all())
            torch.cuda.synchronize(0)
            assert y.tolist() == [2, 2, 2]
    assert 0 < late < 30


@pytest.mark.parametrize("engine", ["async", "sync"])
@pytest.mark.parametrize("verb", WITH_VALUE)
def test_an_array_on_a_gpu_that_was_not_loaded_is_refused(
    made_up_torch: Callable[..., Any], engine: str, verb: str
) -> None:
    made_up_torch(2)
    backend, other = (
        backends.load("torch", name, "gpu", engine, 1) for name in ("gpu:0/0,gpu:0/1", "gpu:1")
    )
    y = full(other, 1, 2, 2)
    assert "gpu:1" in refused(backend, lambda x: WITH_VALUE[verb](backend, x, y))
