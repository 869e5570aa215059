"""Messages between processes arrive as they were sent, and processes that were started differently are refused."""

from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.process_groups import DisagreementError, Group, agree, barrier, broadcast, gather
from backends.process_groups.group import COMPARED_EXCHANGES, agree_on_exchange, differences
from tests.backends.process_groups.threads import together

CONTENTS = st.lists(st.binary(max_size=300), min_size=1, max_size=4)
LONG = np.random.default_rng(0).bytes(3 * 2**16 + 5)


@example([LONG[: 2**16 - 1], b""])
@example([LONG[: 2**16], b""])
@example([LONG, b""])
@given(CONTENTS)
def test_all_get_what_each_one_said_and_what_rank_0_said(contents: list[bytes]) -> None:
    def program(group: Group) -> tuple[tuple[bytes, ...], bytes]:
        return gather(group, contents[group.rank]), broadcast(group, contents[group.rank])

    assert together(len(contents), program) == [(tuple(contents), contents[0])] * len(contents)


def test_a_barrier_waits_for_all() -> None:
    came: list[int] = []

    def program(group: Group) -> int:
        came.append(group.rank)
        barrier(group)
        return len(came)

    assert together(3, program) == [3, 3, 3]


def test_all_ranks_get_the_same_message() -> None:
    def program(group: Group) -> str:
        agree(group, {"batch_size": 256, "versions": ["1", "2"]})
        with pytest.raises(DisagreementError) as raised:
            agree(group, {"batch_size": 128 if group.rank == 1 else 256, "seed": 0})
        return str(raised.value)

    said = "the ranks disagree on batch_size (256 on ranks 0, 2; 128 on rank 1): start all of them alike"
    assert together(3, program) == [said] * 3


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)), min_size=1, max_size=4))
def test_differences_are_named_if_there_are_any(said: list[dict[str, int]]) -> None:
    message = differences(said)
    for name in "abc":
        values = {one.get(name) for one in said}
        assert (f"{name} (" in message) == (len(values) > 1)


SUMMED = {
    "float32 [3]": np.ones(3, np.float32),
    "float32 [4]": np.ones(4, np.float32),
    "int32 [3]": np.ones(3, np.int32),
}


@given(st.lists(st.sampled_from(sorted(SUMMED)), min_size=1, max_size=4))
def test_all_ranks_notice_a_first_exchange_of_different_shapes(shapes: list[str]) -> None:
    def program(group: Group, number: int) -> bool:
        try:
            agree_on_exchange(group.sum_on_host, group.rank, group.hosts, number, [SUMMED[shapes[group.rank]]])
        except DisagreementError as error:
            return all(one in str(error) for one in shapes)
        return len(set(shapes)) == 1 or number > COMPARED_EXCHANGES

    for number in (1, COMPARED_EXCHANGES, COMPARED_EXCHANGES + 1):
        assert all(together(len(shapes), partial(program, number=number)))
