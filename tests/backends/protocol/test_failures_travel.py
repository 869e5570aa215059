"""A failure reaches all that was computed from it, through sums, copies and updates, short or long."""

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from backends import Array, Backend, ComputationError
from tests.backends.protocol.arrays import assert_equal, full
from tests.backends.protocol.test_errors import arrays_know_devices, failing

SHORT, LONG = 100, 600_001
"""Backends may sum long arrays in another way than short ones."""


def ones(backend: Backend, length: int) -> list[Array]:
    return [full(backend, 1, length, device=place) for place in range(len(backend.devices))]


@pytest.mark.parametrize("length", [SHORT, LONG])
@pytest.mark.parametrize("broken", [0, 1, 2])
@pytest.mark.parametrize("read", [0, 1, 2, "all"])
def test_every_sum_of_a_failed_array_fails(
    load: Callable[[int], Backend], length: int, broken: int, read: int | str
) -> None:
    backend = load(3)
    terms = ones(backend, length)
    device = r"cpu:\d.*" if arrays_know_devices(backend) else ""
    with pytest.raises(ComputationError, match=rf"{backend.name}\b.*{device}\w+Error"):
        terms[broken] = backend.launch(failing(backend), terms[broken])
        sums = backend.allreduce(terms)
        if read == "all":
            backend.waitall()
        else:
            backend.to_numpy(sums[int(read)])
    with pytest.raises(ComputationError, match="refuses further work"):
        backend.to_numpy(terms[0])


@pytest.mark.parametrize("read", [0, 1])
def test_one_exchange_fails_if_one_of_its_arrays_has_failed(load: Callable[[int], Backend], read: int) -> None:
    backend = load(2)
    long, short = ones(backend, LONG), ones(backend, SHORT)
    with pytest.raises(ComputationError):
        short[0] = backend.launch(failing(backend), short[0])
        sums = backend.allreduce(list(zip(long, short, strict=True)))
        backend.wait(sums[read][1])


@pytest.mark.parametrize("length", [SHORT, LONG])
def test_what_is_computed_from_a_failed_sum_fails(load: Callable[[int], Backend], length: int) -> None:
    backend = load(2)
    terms = ones(backend, length)
    with pytest.raises(ComputationError):
        terms[1] = backend.launch(failing(backend), terms[1])
        total = backend.allreduce(terms)[0]
        copy = backend.copy_to(backend.launch(backend.ops.add, total, 1.0), backend.devices[1])
        updated = backend.launch(backend.ops.sgd, (copy,), (ones(backend, length)[1],), 1.0)
        backend.to_numpy(updated)


def test_a_failure_that_nobody_kept_is_told_at_the_end(load: Callable[[int], Backend]) -> None:
    backend = load(2)
    with pytest.raises(ComputationError):
        backend.launch(failing(backend), ones(backend, SHORT)[1])
        backend.waitall()


def test_an_unread_failure_does_not_reach_a_backend_that_is_loaded_later(load: Callable[[int], Backend]) -> None:
    broken = load(2)
    kept = None
    with suppress(ComputationError):
        kept = broken.launch(failing(broken), ones(broken, SHORT)[0])
    fresh = load(2)
    fresh.waitall()
    assert_equal(fresh, full(fresh, 1, 2), np.ones(2))
    # Nor is it lost.
    with pytest.raises(ComputationError):
        broken.wait(kept)
        broken.waitall()


def test_a_failure_is_not_lost_if_another_backend_waits_first(load: Callable[[int], Backend]) -> None:
    broken, other = load(2), load(2)
    kept = None
    with suppress(ComputationError):
        kept = broken.launch(failing(broken), ones(broken, SHORT)[0])
    with suppress(ComputationError):
        # MXNet does not say whose failure it is.
        other.waitall()
    with pytest.raises(ComputationError):
        broken.to_numpy(kept)
