"""What programs find to be wrong reaches whoever waits, whatever other devices and threads do meanwhile."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from types import SimpleNamespace
from typing import Any, final

import numpy as np
import pytest

from backends import Array, Backend, ComputationError


@final
class Asked:
    """What stands for an array that a device computes: two threads that may ask it at the same time do so."""

    def __init__(self, *, ready: bool, value: bool = False) -> None:
        self._ready, self._value, self._both = ready, value, Barrier(2)

    def is_ready(self) -> bool:
        with suppress(BrokenBarrierError):
            self._both.wait(timeout=0.3)
        return self._ready

    def __bool__(self) -> bool:
        return self._value


def test_a_wrong_label_is_found_while_another_device_is_busy(jax_backend: Backend) -> None:
    busy, other = jax_backend.devices
    checks: Any = jax_backend._checks  # type: ignore[attr-defined]
    checks.append((SimpleNamespace(failed=Asked(ready=False), message="made up"), busy))
    scores = jax_backend.asarray(np.ones((2, 3), np.float32), other)
    wrong = jax_backend.asarray(np.full(2, 3), other)
    with pytest.raises(ComputationError, match="cross_entropy takes labels from 0 to 2"):
        jax_backend.wait(jax_backend.launch(jax_backend.ops.cross_entropy, scores, wrong))


def in_two_threads(fn: Callable[[Array], object], x: Array) -> list[object]:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(fn, [x, x]))


def test_two_threads_that_wait_forget_only_what_is_computed(jax_backend: Backend) -> None:
    device = jax_backend.devices[0]
    x = jax_backend.wait(jax_backend.asarray(np.ones(2), device))
    under_way: Any = jax_backend._under_way[device]  # type: ignore[attr-defined]
    later = Asked(ready=False)
    under_way.extend([Asked(ready=True), later])
    in_two_threads(jax_backend.wait, x)
    assert list(under_way) == [later]


def test_each_of_two_threads_that_wait_hears_of_a_failure(jax_backend: Backend) -> None:
    device = jax_backend.devices[0]
    x = jax_backend.wait(jax_backend.asarray(np.ones(2), device))
    outcomes = Asked(ready=True), Asked(ready=True, value=True)
    checks: Any = jax_backend._checks  # type: ignore[attr-defined]
    checks.extend((SimpleNamespace(failed=failed, message="made up"), device) for failed in outcomes)
    wait = jax_backend.wait

    def found(x: Array) -> str:
        try:
            wait(x)
        except ComputationError as error:
            return str(error)
        return "nothing"

    assert in_two_threads(found, x) == [f"jax on {device}: ValueError: made up"] * 2
