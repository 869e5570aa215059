"""Messages between processes arrive as they were sent, whatever is in them and however long they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.process_groups import Group, barrier, broadcast, gather
from tests.backends.process_groups.threads import together

CONTENTS = st.lists(st.binary(max_size=300), min_size=1, max_size=4)


@given(CONTENTS)
def test_all_get_what_each_one_said(contents: list[bytes]) -> None:
    received = together(len(contents), lambda group: gather(group, contents[group.rank]))
    assert received == [tuple(contents)] * len(contents)


@given(CONTENTS)
def test_all_get_what_rank_0_said(contents: list[bytes]) -> None:
    received = together(len(contents), lambda group: broadcast(group, contents[group.rank]))
    assert received == [contents[0]] * len(contents)


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
