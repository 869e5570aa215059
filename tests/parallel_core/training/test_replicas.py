"""A device whose parameters differ is found, on this process or on another."""

import numpy as np
import pytest

import backends
from backends.process_groups import Group, GroupedBackend
from parallel_core.training.step import largest_replica_difference
from tests.backends.process_groups.threads import together

COUNTS = (2, 1)


def difference(changed: tuple[int, int] | None) -> list[float]:
    """Return what each rank finds where the device `changed`, a rank and a place in it, holds other parameters."""

    def program(group: Group) -> float:
        local = backends.load("numpy", COUNTS[group.rank], threads_per_device=1)
        backend = GroupedBackend(local, group, COUNTS, lambda _: None)
        params = [
            backend.asarray((np.full(3, 2 if (group.rank, place) == changed else 1, np.float32),), device)
            for place, device in enumerate(backend.devices)
        ]
        return largest_replica_difference(backend, params)

    return together(len(COUNTS), program)


def test_equal_parameters_differ_by_nothing() -> None:
    assert difference(None) == [0, 0]


@pytest.mark.parametrize("changed", [(0, 0), (0, 1), (1, 0)])
def test_every_rank_finds_a_device_that_differs(changed: tuple[int, int]) -> None:
    assert all(found > 0 for found in difference(changed))
