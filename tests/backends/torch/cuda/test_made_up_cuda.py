"""The made-up GPUs themselves: whose an array is, and what an operator reads."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

PLACES = {"cuda:1": 1, "cpu": None, "cuda:0": 0}


@pytest.mark.parametrize("length", [0, 2])
def test_an_array_is_where_it_was_made(made_up_torch: Callable[..., Any], length: int) -> None:
    """Those without elements have one address."""
    torch = made_up_torch(2)
    made = [torch.tensor(np.zeros(length), device=place) for place in PLACES]
    assert [x.device.index for x in made] == list(PLACES.values())
    assert [x.view(-1, 1).device.index for x in made] == list(PLACES.values())


def test_an_operator_reads_the_arrays_in_a_list_too(made_up_torch: Callable[..., Any]) -> None:
    torch = made_up_torch(2)
    x = torch.tensor(np.ones(2), device="cuda:1")
    joined = torch.cat([x, x])
    assert joined.device.index == 1
    assert torch.cuda.unfinished() == {"cat"}
