"""Processes of a group: messages arrive as they were sent, differing ranks are refused, and sums
are of all devices.
"""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import backends
from backends import Array, Backend, BackendError, ComputationError
from backends.process_groups import DisagreementError, Group, GroupedBackend, agree, check_group
from backends.process_groups.group import (
    COMPARED_EXCHANGES,
    agree_on_exchange,
    barrier,
    broadcast,
    differences,
    gather,
)
from backends.protocol import VERBS
from tests.backends.process_groups.threads import together
from tests.backends.protocol.arrays import full
from tests.backends.protocol.test_errors import arrays_know_devices

CONTENTS = st.lists(st.binary(max_size=300), min_size=1, max_size=4)
LONG = np.random.default_rng(0).bytes(3 * 2**16 + 5)


@example([LONG[: 2**16 - 1], b""])
@example([LONG[: 2**16], b""])
@example([LONG, b""])
@given(CONTENTS)
def test_all_get_what_each_one_said_and_what_rank_0_said(contents: list[bytes]) -> None:
    def program(group: Group) -> tuple[tuple[bytes, ...], bytes]:
        own_content = contents[group.rank]
        return gather(group, own_content), broadcast(group, own_content)

    for gathered, broadcast_content in together(len(contents), program):
        assert gathered == tuple(contents)
        assert broadcast_content == contents[0]


def test_a_barrier_waits_for_all() -> None:
    ranks_that_came: list[int] = []

    def program(group: Group) -> int:
        """Return how many ranks had come when the barrier let this one go on."""
        ranks_that_came.append(group.rank)
        barrier(group)
        return len(ranks_that_came)

    assert together(3, program) == [3, 3, 3]


def test_all_ranks_get_the_same_message() -> None:
    def program(group: Group) -> str:
        agree(group, {"batch_size": 256, "versions": ["1", "2"]})
        batch_size = 128 if group.rank == 1 else 256
        with pytest.raises(DisagreementError) as raised:
            agree(group, {"batch_size": batch_size, "seed": 0})
        return str(raised.value)

    message = (
        "the ranks disagree on batch_size (256 on ranks 0, 2; 128 on rank 1): start all of them "
        "alike"
    )
    assert together(3, program) == [message, message, message]


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)), min_size=1, max_size=4))
def test_differences_are_named_if_there_are_any(statements: list[dict[str, int]]) -> None:
    message = differences(statements)
    for name in "abc":
        values = {statement.get(name) for statement in statements}
        is_named = f"{name} (" in message
        assert is_named == (len(values) > 1)


SUMMED = {
    "float32 [3]": np.ones(3, np.float32),
    "float32 [4]": np.ones(4, np.float32),
    "int32 [3]": np.ones(3, np.int32),
}


@given(st.lists(st.sampled_from(sorted(SUMMED)), min_size=1, max_size=4))
def test_all_ranks_notice_a_first_exchange_of_different_shapes(shapes: list[str]) -> None:
    def program(group: Group, number: int) -> str:
        arrays = [SUMMED[shapes[group.rank]]]
        try:
            agree_on_exchange(group.sum_on_host, group.rank, group.hosts, number, arrays)
        except DisagreementError as error:
            return str(error)
        return "no difference"

    are_different = len(set(shapes)) > 1
    for number in (1, COMPARED_EXCHANGES, COMPARED_EXCHANGES + 1):
        is_compared = number <= COMPARED_EXCHANGES
        for message in together(len(shapes), partial(program, number=number)):
            if are_different and is_compared:
                assert all(shape in message for shape in shapes)
            else:
                assert message == "no difference"


def grouped(group: Group, counts: tuple[int, ...]) -> GroupedBackend:
    """Return a rank's backend in a group whose ranks have these numbers of devices."""
    local = backends.load("numpy", counts[group.rank], threads_per_device=1)
    return GroupedBackend(local, group, counts, lambda _: None)


COUNTS = st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple)


@given(COUNTS, st.integers(0, 20))
def test_the_shards_of_all_ranks_are_those_of_as_many_devices(
    counts: tuple[int, ...], rows: int
) -> None:
    x = np.arange(rows, dtype=np.float32)

    def program(group: Group) -> list[np.ndarray]:
        backend = grouped(group, counts)
        return [backend.to_numpy(shard) for shard in backend.split_and_load(x, backend.devices)]

    shards: list[np.ndarray] = []
    for shards_of_rank in together(len(counts), program):
        shards += shards_of_rank
    one_process = backends.load("numpy", sum(counts), threads_per_device=1)
    expected = [
        one_process.to_numpy(shard) for shard in one_process.split_and_load(x, one_process.devices)
    ]
    assert [shard.tolist() for shard in shards] == [shard.tolist() for shard in expected]


@given(COUNTS)
def test_every_device_of_every_rank_gets_the_sum_of_all(counts: tuple[int, ...]) -> None:
    def program(group: Group) -> list[np.ndarray]:
        backend = grouped(group, counts)
        devices_before = sum(counts[: group.rank])
        # Each device of the job has another power of ten.
        terms = [
            full(backend, 10.0 ** (devices_before + device), 3, device=device)
            for device in range(len(backend.devices))
        ]
        return [backend.to_numpy(total) for total in backend.allreduce(terms)]

    expected_sum = sum(10.0**device for device in range(sum(counts)))
    for sums in together(len(counts), program):
        for total in sums:
            np.testing.assert_allclose(total, np.full(3, expected_sum))


@pytest.mark.parametrize("devices", [(2, 0), (1,), (1, 2, 0)])
def test_sums_go_to_the_devices_of_their_values(backend: Backend, devices: tuple[int, ...]) -> None:
    """The value that is summed between processes lies on the first device."""
    summed_by_group: list[Array] = []

    def sum_between_processes(x: Array) -> Array:
        summed_by_group.append(x)
        return x

    group: Any = SimpleNamespace(sum=sum_between_processes)
    terms = [(full(backend, device, 2, device=device),) for device in devices]

    totals = GroupedBackend(backend, group, (3,), lambda _: None).allreduce(terms)

    for total in totals:
        np.testing.assert_array_equal(backend.to_numpy(total)[0], np.full(2, sum(devices)))
    if arrays_know_devices(backend):
        values = (*summed_by_group, *totals)
        found = [backend.device_of(value[0]) for value in values]  # type: ignore[attr-defined]
        assert found == [backend.devices[device] for device in (0, *devices)]


def test_what_it_does_not_define_is_the_inner_backend_s_own_without_a_call_in_between() -> None:
    def program(group: Group) -> None:
        backend = grouped(group, (2,))
        inner = backend.inner
        names_of_protocol = {*Backend.__annotations__, *VERBS}
        defined_names = set(vars(GroupedBackend))
        for name in names_of_protocol - defined_names:
            assert getattr(backend, name) == getattr(inner, name), name
        x = full(backend, 1, 2)
        with pytest.raises(ComputationError):
            backend.launch(backend.ops.matmul, x, x)
        with pytest.raises(ComputationError, match="refuses further work"):
            backend.wait(x)

    together(1, program)


@pytest.mark.parametrize("name", ["jax", "numpy"])
def test_a_backend_without_an_engine_between_processes_is_refused(name: str) -> None:
    with pytest.raises(BackendError, match=f"^{name} runs in one process here: .* mxnet or torch$"):
        check_group(name)
