"""What JAX compiles, once for each function and shape; what its programs find to be wrong; kernels
and profile.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from types import SimpleNamespace
from typing import Any, final

import numpy as np
import pytest

import backends
from backends import Array, Backend, ComputationError, Ops
from backends.host import threads_named
from backends.jax.kernels import POOL, libraries, one_thread
from backends.jax.profiler import parse_program, program_name
from tests.backends.conftest import Require
from tests.conftest import RunPython

ONES = np.ones(3, np.float32)
FACTOR = 1.0


@pytest.fixture
def jax_backend(require: Require, engine: str) -> Any:
    require("jax")
    return backends.load("jax", 2, "cpu", engine, 1)


class Counter:
    """Counts calls. It is captured by identity: neither what it has counted nor equality is part of
    a program.
    """

    def __init__(self, calls: float = 0) -> None:
        self.calls = calls

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counter)

    def __hash__(self) -> int:
        return 0

    def count(self) -> None:
        self.calls += 1


def test_a_function_that_is_made_anew_is_compiled_once_for_each_shape_and_device(
    jax_backend: Backend,
) -> None:
    compiled = Counter()
    for device in jax_backend.devices:
        for length in (2, 3, 2):
            x = jax_backend.asarray(np.ones(length, np.float32), device)

            def increment(x: Array) -> Array:
                # Python runs it only when JAX compiles it.
                compiled.count()
                return jax_backend.ops.add(x, 1.0)

            jax_backend.launch(increment, x)
    # Two devices, and two different shapes on each.
    assert compiled.calls == 4


def test_a_rate_that_changes_compiles_nothing_anew(jax_backend: Backend) -> None:
    compiled = Counter()
    x = jax_backend.asarray(ONES, jax_backend.devices[0])
    for rate in (0.5, 0.25, np.float64(0.125)):

        def scale(x: Array, rate: float) -> Array:
            compiled.count()
            return jax_backend.ops.multiply(x, rate)

        jax_backend.launch(scale, x, rate)
    assert compiled.calls == 1


def value(backend: Backend, fn: Callable[..., Array], *args: object) -> float:
    """Launch a function of ones and further arguments; return its result's first element."""
    x = backend.asarray(ONES, backend.devices[0])
    result = backend.to_numpy(backend.launch(fn, x, *args))
    return float(result[0])


def of_counter(ops: Ops, counter: Counter) -> Callable[..., Array]:
    """Make a function that multiplies by what a captured object has counted."""
    return lambda x: ops.multiply(x, float(counter.calls))


CAPTURING: dict[str, Callable[[Ops, float], Callable[..., Array]]] = {
    "a variable": lambda ops, factor: lambda x: ops.multiply(x, factor),
    "a default": lambda ops, factor: lambda x, factor=factor: ops.multiply(x, factor),
    "a partial function": lambda ops, factor: partial(lambda by, x: ops.multiply(x, by), factor),
    "an object": lambda ops, factor: of_counter(ops, Counter(factor)),
}
"""Makes a function that multiplies by a number which it has captured, in each of these ways."""


@pytest.mark.parametrize("name", CAPTURING)
def test_a_captured_number_is_not_frozen(jax_backend: Backend, name: str) -> None:
    for factor in (2.0, 3.0):
        assert value(jax_backend, CAPTURING[name](jax_backend.ops, factor)) == factor


def test_what_is_changed_after_it_was_captured_is_not_frozen(
    jax_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = jax_backend.ops
    item_of_list, item_of_array = [1.0], np.array([1.0])

    def multiply_by_item_of_list(x: Array) -> Array:
        return ops.multiply(x, item_of_list[0])

    def multiply_by_item_of_array(x: Array) -> Array:
        return ops.multiply(x, item_of_array[0])

    def multiply_by_global(x: Array) -> Array:
        return ops.multiply(x, FACTOR)

    assert value(jax_backend, multiply_by_item_of_list) == 1
    assert value(jax_backend, multiply_by_item_of_array) == 1
    assert value(jax_backend, multiply_by_global) == 1
    item_of_list[0] = 6.0
    item_of_array[0] = 7.0
    monkeypatch.setitem(globals(), "FACTOR", 8.0)
    assert value(jax_backend, multiply_by_item_of_list) == 6
    assert value(jax_backend, multiply_by_item_of_array) == 7
    assert value(jax_backend, multiply_by_global) == 8


def test_a_function_may_decide_on_a_number_and_call_itself(jax_backend: Backend) -> None:
    ops = jax_backend.ops

    def add_or_subtract_one(x: Array, number: float) -> Array:
        return ops.add(x, 1.0) if number > 0.5 else ops.add(x, -1.0)

    def double_repeatedly(x: Array, times: int) -> Array:
        return double_repeatedly(ops.add(x, x), times - 1) if times else x

    assert value(jax_backend, add_or_subtract_one, 1.0) == 2
    assert value(jax_backend, add_or_subtract_one, 0.0) == 0
    assert value(jax_backend, add_or_subtract_one, 1.0) == 2
    assert value(jax_backend, ops.power, 0.5) == 1
    assert value(jax_backend, double_repeatedly, 1) == 2
    assert value(jax_backend, double_repeatedly, 3) == 8


def test_a_unit_does_all_of_its_operations(jax_backend: Backend) -> None:
    import jax

    from backends.jax.compiling import KEEPING_BARRIERS

    ops = jax_backend.ops
    unit = ops.as_unit(lambda x: tuple(ops.matmul(x, x) for _ in range(3)))
    compiled = (
        jax.jit(unit, compiler_options=KEEPING_BARRIERS)
        .lower(np.ones((2, 2), np.float32))
        .compile()
    )
    assert compiled.as_text().count(" dot(") == 3


def test_compiling_is_no_part_of_a_budget(
    jax_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told once, and said with the scheduler."""
    from backends.jax import compiling

    told_seconds: list[float] = []
    monkeypatch.setattr(compiling, "tell_compiling", told_seconds.append)
    x = jax_backend.asarray(ONES, jax_backend.devices[0])
    for _ in range(3):
        jax_backend.wait(jax_backend.launch(lambda x: jax_backend.ops.multiply(x, 11.0), x))
    (seconds,) = told_seconds
    assert seconds > 0
    assert "programs compiled in" in jax_backend.scheduler


@final
class MadeUpArray:
    """What stands for an array that a device computes: two threads that may ask it at the same time
    do so.
    """

    def __init__(self, *, ready: bool, value: bool = False) -> None:
        self._ready, self._value = ready, value
        self._both_ask = Barrier(2)

    def is_ready(self) -> bool:
        # A thread that asks alone goes on after a while.
        with suppress(BrokenBarrierError):
            self._both_ask.wait(timeout=0.3)
        return self._ready

    def __bool__(self) -> bool:
        return self._value


def made_up_check(*, ready: bool, has_failed: bool = False) -> SimpleNamespace:
    """Make what a program leaves to be checked: whether it failed, and with which message."""
    failed = MadeUpArray(ready=ready, value=has_failed)
    return SimpleNamespace(failed=failed, message="made up")


def test_a_wrong_label_is_found_while_another_device_is_busy(jax_backend: Any) -> None:
    busy, other = jax_backend.devices
    jax_backend._checks.append((made_up_check(ready=False), busy))
    scores = jax_backend.asarray(np.ones((2, 3), np.float32), other)
    wrong = jax_backend.asarray(np.full(2, 3), other)
    with pytest.raises(ComputationError, match="cross_entropy takes labels from 0 to 2"):
        jax_backend.wait(jax_backend.launch(jax_backend.ops.cross_entropy, scores, wrong))


def message_of(wait: Callable[[Array], Array], x: Array) -> str:
    """Wait for a value; return the error's message, or "" if there is no error."""
    try:
        wait(x)
    except ComputationError as error:
        return str(error)
    return ""


def test_two_threads_that_wait_forget_only_what_is_computed(jax_backend: Any) -> None:
    device = jax_backend.devices[0]
    x = jax_backend.wait(jax_backend.asarray(np.ones(2), device))
    under_way = jax_backend._under_way[device]
    computed, pending = MadeUpArray(ready=True), MadeUpArray(ready=False)
    under_way.extend([computed, pending])
    with ThreadPoolExecutor(2) as pool:
        messages = list(pool.map(partial(message_of, jax_backend.wait), [x, x]))
    assert messages == ["", ""]
    assert list(under_way) == [pending]


def test_two_threads_that_wait_both_hear_of_a_failure(jax_backend: Any) -> None:
    device = jax_backend.devices[0]
    x = jax_backend.wait(jax_backend.asarray(np.ones(2), device))
    jax_backend._under_way[device].clear()
    for has_failed in (False, True):
        check = made_up_check(ready=True, has_failed=has_failed)
        jax_backend._checks.append((check, device))
    with ThreadPoolExecutor(2) as pool:
        messages = list(pool.map(partial(message_of, jax_backend.wait), [x, x]))
    assert messages == [f"jax on {device}: ValueError: made up"] * 2


def affinities() -> dict[str, set[int]]:
    """Return the cores of the calling thread and of those of XLA's pools, by the number of the
    thread.
    """
    calling_thread = "0"
    cores = {calling_thread: os.sched_getaffinity(0)}
    for thread in threads_named(POOL):
        cores[str(thread)] = os.sched_getaffinity(thread)
    return cores


def test_one_core_computes_while_it_is_measured_and_all_do_afterwards(
    require: Require, engine: str
) -> None:
    require("jax")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core cannot be told from all")
    backend = backends.load("jax", 1, "cpu", engine, threads_per_device=2)
    x = backend.asarray(np.ones(2), backend.devices[0])
    before = affinities()
    assert len(before) > 2
    with one_thread(backend, x):
        during = affinities()
    first_cores, *_ = during.values()
    assert len(first_cores) == 1
    for cores_of_thread in during.values():
        assert cores_of_thread == first_cores
    assert affinities() == before


def test_what_compiles_is_said_with_its_version_and_its_instructions(
    require: Require,
) -> None:
    require("jax")
    import jaxlib

    what_multiplies, what_compiles, *_ = libraries(3)
    assert what_compiles.library == "XLA"
    assert what_compiles.version == jaxlib.__version__
    assert what_compiles.threads == 3
    # XLA compiles for the processor that it runs on, as libraries choose.
    assert what_compiles.instruction_set == what_multiplies.instruction_set


REPEAT_CASES = """
from pathlib import Path
import numpy as np
import psutil
import backends
from backends.profiling import case_text, run_profiler

backend = backends.load("jax", 1, "cpu", "async", 1)
x = backend.asarray(np.ones(2**21, dtype=np.float32), backend.devices[0])
own, resident = psutil.Process(), []
with run_profiler(backend, Path({path!r})) as mark:
    for case in range(4):
        with mark(case_text(str(case))):
            for _ in range(50):
                backend.wait(backend.launch(backend.ops.relu, x))
        resident.append(own.memory_info().rss)
assert resident[-1] - resident[0] < 25 * 2**23, resident
"""


def test_a_profiled_repetition_s_memory_is_given_back_before_the_next(
    require: Require, run_python: RunPython, tmp_path: Path
) -> None:
    require("jax")
    run_python(REPEAT_CASES.format(path=str(tmp_path / "trace.json")))


def test_a_program_s_name_says_its_function_and_device(jax_backend: Backend) -> None:
    name = program_name("<lambda>", jax_backend.devices[1])
    assert parse_program(f"jit_{name}") == ("lambda", "cpu:2")
    assert parse_program("jit_other") is None
