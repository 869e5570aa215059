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
from backends import Array, Backend, ComputationError
from backends.jax.kernels import POOL, TASKS, libraries, one_thread
from backends.jax.profiler import parse_program, program_name
from tests.conftest import RunPython

ONES = np.ones(3, np.float32)
FACTOR = 1.0


@pytest.fixture
def jax_backend(require: Callable[[str], None], engine: str) -> Any:
    require("jax")
    return backends.load("jax", 2, "cpu", engine, 1)


class Counter:
    """Counts calls. It is captured by identity: neither what it has counted nor equality is part of
    a program.
    """

    calls = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counter)

    def __hash__(self) -> int:
        return 0

    def __call__(self) -> None:
        self.calls += 1


def test_a_function_that_is_made_anew_is_compiled_once_for_each_shape_and_device(
    jax_backend: Backend,
) -> None:
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


def test_what_is_captured_is_not_frozen(
    jax_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number, that of a partial function or of an object, an item of a list or array of NumPy,
    and a global name.
    """
    ops = jax_backend.ops
    one, other = Counter(), Counter()
    other.calls = 1
    assert values(
        jax_backend, [lambda x, held=held: ops.add(x, float(held.calls)) for held in (one, other)]
    ) == [1, 2]
    assert values(jax_backend, [lambda x, k=k: ops.multiply(x, k) for k in (2.0, 3.0)]) == [2, 3]
    assert values(
        jax_backend, [partial(lambda k, x: ops.multiply(x, k), k) for k in (4.0, 5.0)]
    ) == [4, 5]
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


def test_a_function_may_decide_on_a_number_and_call_itself(jax_backend: Backend) -> None:
    ops = jax_backend.ops

    def decide(x: Array, k: float) -> Array:
        return ops.add(x, 1.0) if k > 0.5 else ops.add(x, -1.0)

    def doubled(x: Array, times: int) -> Array:
        return doubled(ops.add(x, x), times - 1) if times else x

    assert [values(jax_backend, [decide], k) for k in (1.0, 0.0, 1.0)] == [[2], [0], [2]]
    assert values(jax_backend, [ops.power], 0.5) == [1]
    assert [values(jax_backend, [doubled], times) for times in (1, 3)] == [[2], [8]]


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

    told: list[float] = []
    monkeypatch.setattr(compiling, "tell_compiling", told.append)
    x = jax_backend.asarray(ONES, jax_backend.devices[0])
    for _ in range(3):
        jax_backend.wait(jax_backend.launch(lambda x: jax_backend.ops.multiply(x, 11.0), x))
    assert len(told) == 1
    assert told[0] > 0
    assert "programs compiled in" in jax_backend.scheduler


@final
class Asked:
    """What stands for an array that a device computes: two threads that may ask it at the same time
    do so.
    """

    def __init__(self, *, ready: bool, value: bool = False) -> None:
        self._ready, self._value, self._both = ready, value, Barrier(2)

    def is_ready(self) -> bool:
        with suppress(BrokenBarrierError):
            self._both.wait(timeout=0.3)
        return self._ready

    def __bool__(self) -> bool:
        return self._value


def made_up_check(**asked: bool) -> SimpleNamespace:
    return SimpleNamespace(failed=Asked(**asked), message="made up")


def test_a_wrong_label_is_found_while_another_device_is_busy(jax_backend: Any) -> None:
    busy, other = jax_backend.devices
    jax_backend._checks.append((made_up_check(ready=False), busy))
    scores = jax_backend.asarray(np.ones((2, 3), np.float32), other)
    wrong = jax_backend.asarray(np.full(2, 3), other)
    with pytest.raises(ComputationError, match="cross_entropy takes labels from 0 to 2"):
        jax_backend.wait(jax_backend.launch(jax_backend.ops.cross_entropy, scores, wrong))


def test_two_threads_that_wait_forget_only_what_is_computed_and_both_hear_of_a_failure(
    jax_backend: Any,
) -> None:
    device = jax_backend.devices[0]
    x = jax_backend.wait(jax_backend.asarray(np.ones(2), device))
    under_way, later, wait = jax_backend._under_way[device], Asked(ready=False), jax_backend.wait

    def found(x: Array) -> str:
        try:
            wait(x)
        except ComputationError as error:
            return str(error)
        return "nothing"

    with ThreadPoolExecutor(2) as pool:
        under_way.extend([Asked(ready=True), later])
        assert list(pool.map(found, [x, x])) == ["nothing"] * 2
        assert list(under_way) == [later]
        under_way.clear()
        jax_backend._checks.extend(
            (made_up_check(ready=True, value=value), device) for value in (False, True)
        )
        assert list(pool.map(found, [x, x])) == [f"jax on {device}: ValueError: made up"] * 2


def affinities() -> dict[str, set[int]]:
    """Return the cores of the calling thread and of those of XLA's pools, by the number of the
    thread.
    """
    pools = [task.name for task in TASKS.iterdir() if (task / "comm").read_text().strip() == POOL]
    return {task: os.sched_getaffinity(int(task)) for task in ("0", *pools)}


def test_one_core_computes_while_it_is_measured_and_all_do_afterwards(
    require: Callable[[str], None], engine: str
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
    assert set(map(len, during.values())) == {1}
    assert len(set(map(tuple, during.values()))) == 1
    assert affinities() == before


def test_what_compiles_is_said_with_its_version_and_its_instructions(
    require: Callable[[str], None],
) -> None:
    require("jax")
    import jaxlib

    multiplies, compiles, *_ = libraries(3)
    assert (compiles.library, compiles.version, compiles.threads) == ("XLA", jaxlib.__version__, 3)
    # XLA compiles for the processor that it runs on, as libraries choose.
    assert compiles.instruction_set == multiplies.instruction_set


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
    require: Callable[[str], None], run_python: RunPython, tmp_path: Path
) -> None:
    require("jax")
    run_python(REPEAT_CASES.format(path=str(tmp_path / "trace.json")))


def test_a_program_s_name_says_its_function_and_device(jax_backend: Backend) -> None:
    assert parse_program("jit_" + program_name("<lambda>", jax_backend.devices[1])) == (
        "lambda",
        "cpu:2",
    )
    assert parse_program("jit_other") is None
