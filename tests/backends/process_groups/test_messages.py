"""Messages between processes arrive as they were sent, whatever is in them and however long they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.process_groups import DisagreementError, Group, agree, barrier, broadcast, gather
from backends.process_groups.agreement import agree_on_exchange, differences
from tests.backends.process_groups.threads import together

CONTENTS = st.lists(st.binary(max_size=300), min_size=1, max_size=4)


@given(CONTENTS)
def test_all_get_what_each_one_said(contents: list[bytes]) -> None:
    found = together(len(contents), lambda group: gather(group, contents[group.rank]))
    assert found == [tuple(contents)] * len(contents)


@given(CONTENTS)
def test_all_get_what_rank_0_said(contents: list[bytes]) -> None:
    found = together(len(contents), lambda group: broadcast(group, contents[group.rank]))
    assert found == [contents[0]] * len(contents)


@pytest.mark.parametrize("length", [2**16 - 1, 2**16, 3 * 2**16 + 5])
def test_long_contents_arrive_whole(length: int) -> None:
    content = np.random.default_rng(0).bytes(length)
    assert together(2, lambda group: broadcast(group, content)) == [content] * 2


def test_a_barrier_waits_for_all() -> None:
    came: list[int] = []

    def program(group: Group) -> int:
        came.append(group.rank)
        barrier(group)
        return len(came)

    assert together(3, program) == [3, 3, 3]


def test_equal_statements_agree() -> None:
    together(3, lambda group: agree(group, {"batch_size": 256, "versions": ["1", "2"]}))


def test_all_ranks_hear_who_says_what() -> None:
    def program(group: Group) -> str:
        with pytest.raises(DisagreementError) as raised:
            agree(group, {"batch_size": 128 if group.rank == 1 else 256, "seed": 0})
        return str(raised.value)

    said = "the ranks disagree on batch_size (256 on ranks 0, 2; 128 on rank 1): start all of them alike"
    assert together(3, program) == [said] * 3


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)), min_size=1, max_size=4))
def test_differences_are_named_where_there_are_any(said: list[dict[str, int]]) -> None:
    found = differences(said)
    for name in "abc":
        values = {one.get(name) for one in said}
        assert (f"{name} (" in found) == (len(values) > 1)


@given(st.lists(st.sampled_from(["float32 [3]", "float32 [4]", "int32 [3]"]), min_size=1, max_size=4))
def test_an_exchange_of_unlike_shapes_is_found_by_all(shapes: list[str]) -> None:
    def program(group: Group) -> bool:
        try:
            agree_on_exchange(group.sum_on_host, group.rank, group.hosts, 1, shapes[group.rank])
        except DisagreementError as error:
            return all(one in str(error) for one in shapes)
        return len(set(shapes)) == 1

    assert all(together(len(shapes), program))
