"""What is launched is compiled once for each function and shape; what it captures is never frozen."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from backends import Array, Backend

ONES = np.ones(3, np.float32)
FACTOR = 1.0


class Counter:
    """Counts calls. It is captured by identity: what it has counted is no part of a program."""

    calls = 0

    def __call__(self) -> None:
        self.calls += 1


def test_a_function_that_is_made_anew_is_compiled_once_for_each_shape_and_device(jax_backend: Backend) -> None:
    count, ops = Counter(), jax_backend.ops
    for device in jax_backend.devices:
        for length in (2, 3, 2):
            x = jax_backend.asarray(np.ones(length, np.float32), device)
            jax_backend.launch(lambda x: count() or ops.add(x, 1.0), x)
    assert count.calls == 4


def test_a_rate_that_changes_compiles_nothing_anew(jax_backend: Backend) -> None:
    count, ops = Counter(), jax_backend.ops
    x = jax_backend.asarray(ONES, jax_backend.devices[0])
    for rate in (0.5, 0.25, np.float64(0.125)):
        jax_backend.launch(lambda x, rate: count() or ops.multiply(x, rate), x, rate)
    assert count.calls == 1


def values(backend: Backend, functions: "list[Callable[..., Array]]", *args: Any) -> list[float]:
    x = backend.asarray(ONES, backend.devices[0])
    return [float(backend.to_numpy(backend.launch(fn, x, *args))[0]) for fn in functions]


def test_what_is_captured_is_not_frozen(jax_backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number, that of a partial function or of an object, an item of a list or array of NumPy, and a global name."""
    ops = jax_backend.ops
    one, other = Counter(), Counter()
    other.calls = 1
    assert values(jax_backend, [lambda x, held=held: ops.add(x, float(held.calls)) for held in (one, other)]) == [1, 2]
    assert values(jax_backend, [lambda x, k=k: ops.multiply(x, k) for k in (2.0, 3.0)]) == [2, 3]
    assert values(jax_backend, [partial(lambda k, x: ops.multiply(x, k), k) for k in (4.0, 5.0)]) == [4, 5]
    kept, numbers = [1.0], np.array([1.0])
    functions: list[Callable[..., Array]] = [
        lambda x: ops.multiply(x, kept[0]),
        lambda x: ops.multiply(x, numbers[0]),
        lambda x: ops.multiply(x, FACTOR),
    ]
    assert values(jax_backend, functions) == [1, 1, 1]
    kept[0], numbers[0] = 6.0, 7.0
    monkeypatch.setitem(globals(), "FACTOR", 8.0)
    assert values(jax_backend, functions) == [6, 7, 8]


def test_a_function_may_decide_on_a_number(jax_backend: Backend) -> None:
    ops = jax_backend.ops
    decide = lambda x, k: ops.add(x, 1.0) if k > 0.5 else ops.add(x, -1.0)  # noqa: E731
    assert [values(jax_backend, [decide], k) for k in (1.0, 0.0, 1.0)] == [[2], [0], [2]]
    assert values(jax_backend, [ops.power], 0.5) == [1]


def test_a_function_may_call_itself(jax_backend: Backend) -> None:
    ops = jax_backend.ops

    def doubled(x: Array, times: int) -> Array:
        return doubled(ops.add(x, x), times - 1) if times else x

    assert [values(jax_backend, [doubled], times) for times in (1, 3)] == [[2], [8]]


def test_a_unit_does_all_of_its_operations(jax_backend: Backend) -> None:
    import jax

    from backends.jax.compiling import KEEPING_BARRIERS

    ops = jax_backend.ops
    unit = ops.as_unit(lambda x: tuple(ops.matmul(x, x) for _ in range(3)))
    compiled = jax.jit(unit, compiler_options=KEEPING_BARRIERS).lower(np.ones((2, 2), np.float32)).compile()
    assert compiled.as_text().count(" dot(") == 3


def test_compiling_is_no_part_of_a_budget(jax_backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told once, and said with the scheduler."""
    from backends.jax import compiling

    told: list[float] = []
    monkeypatch.setattr(compiling, "tell_compiling", told.append)
    x = jax_backend.asarray(ONES, jax_backend.devices[0])
    for _ in range(3):
        jax_backend.wait(jax_backend.launch(lambda x: jax_backend.ops.multiply(x, 11.0), x))
    assert len(told) == 1
    assert told[0] > 0
    assert "programs compiled in" in jax_backend.scheduler
