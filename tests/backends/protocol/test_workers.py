"""Several workers serve a device, with the same numbers; a forked child has none of them, and its
backend refuses.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

import backends
from backends import Array, Backend
from backends.conformance import Limits, search
from backends.host import available_cores
from parallel_core.compare.results import Cell
from parallel_core.measurement.result import Result, describe_backend
from tests.backends.conftest import Require
from tests.backends.protocol.arrays import full
from tests.conftest import RunPython
from tests.parallel_core.compare import made_up


@pytest.fixture
def two_workers(require: Require) -> Backend:
    require("torch")
    return backends.load("torch", 2, "cpu", "async", 1, 2)


def test_two_independent_operators_of_one_device_run_at_once(two_workers: Backend) -> None:
    meeting = threading.Barrier(2)

    def meet(x: Array) -> Array:
        meeting.wait(20)
        return x

    x = full(two_workers, 1, 2)
    results = [two_workers.launch(meet, x) for _ in range(2)]
    for result in results:
        two_workers.wait(result)


COPYING = "copy-on-compute-queue"


@dataclass
class InTurn:
    """Loads a framework with one choice of workers and variants after the other."""

    name: str
    choices: Sequence[tuple[int, Sequence[str]]]
    loaded: int = 0

    def __call__(self, devices: int) -> Backend:
        workers, variants = self.choices[self.loaded % len(self.choices)]
        self.loaded += 1
        return backends.load(self.name, devices, "cpu", "async", 1, workers, variants)


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        # A process keeps the variants that it has imported MXNet with.
        ("mxnet", [(2, [])]),
        ("mxnet", [(1, [COPYING, "bulk-on", "temporary-space-low"])]),
        ("torch", [(2, []), (1, [COPYING]), (2, [COPYING])]),
    ],
)
def test_random_programs_give_numpy_s_numbers(
    require: Require, name: str, choices: list[tuple[int, list[str]]]
) -> None:
    require(name)
    # The framework is loaded anew after each program in which something fails.
    limits = Limits(seed=1, programs=20 * len(choices), devices=2, deadline=60)
    assert [found.finding for found in search(InTurn(name, choices), limits)] == []


def test_cores_are_divided_among_all_workers(require: Require) -> None:
    require("torch")
    backend = backends.load("torch", 1, "cpu", "async", workers_per_device=available_cores())
    assert backend.threads_per_device == 1
    assert backend.cores == [set(backends.host.core_numbers())]


def test_several_workers_are_said_in_a_result(two_workers: Backend) -> None:
    assert describe_backend(two_workers)["workers_per_device"] == 2


def test_workers_are_not_asked_of_old_results() -> None:
    cell = Cell("parallel", "torch", "async")
    old_result = made_up.result(cell, {"on all together": 1.0}).as_json()
    assert "workers_per_device" not in old_result["backend"]
    assert Result.from_json(old_result).backend["threads_per_device"] == 1


IN_CHILD = """
import os, signal, sys
import numpy as np
import backends
from backends.protocol import VERBS

def refusal(verb, *arguments):
    try:
        return verb(*arguments) and ""
    except backends.BackendError as error:
        return str(error)

def product(of):
    x = of.asarray(np.ones((2, 2), dtype=np.float32), of.devices[0])
    return of.to_numpy(of.launch(of.ops.matmul, x, x)).sum()

backend = backends.load({name!r}, 2, "cpu", {engine!r}, 1)
numpy = backends.load("numpy", 2, "cpu", "sync", 1)
product(backend)
x = backend.asarray(np.ones((2, 2), dtype=np.float32), backend.devices[0])
kept_launch, kept_waitall, matmul = backend.launch, backend.waitall, backend.ops.matmul
child = os.fork()
if child == 0:
    signal.alarm(60)
    verbs = [getattr(backend, verb) for verb in VERBS]
    lines = {{refusal(verb, *range(number)) for verb in verbs for number in range(4)}}
    lines |= {{refusal(kept_launch, matmul, x, x), refusal(kept_waitall)}}
    print(lines == {{refusal(backend.waitall)}}, refusal(backend.waitall))
    print(product(numpy), flush=True)
    try:
        print(product(backends.load({name!r}, 2, "cpu", {engine!r}, 1)), flush=True)
    except backends.BackendError as error:
        print(error, flush=True)
    {leave}
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), product(backend))
"""


def test_in_a_forked_child_every_verb_but_numpy_s_refuses_and_it_may_load_its_own(
    require: Require, run_python: RunPython, framework_name: str, engine: str
) -> None:
    require(framework_name)
    # JAX cannot be started anew there, and aborts at Python's exit; children of multiprocessing
    # leave without that.
    can_be_loaded_anew = framework_name != "jax"
    leave = "sys.exit()" if can_be_loaded_anew else "os._exit(0)"
    code = IN_CHILD.format(name=framework_name, engine=engine, leave=leave)
    refused, by_numpy, loaded_anew, by_parent = run_python(code).stdout.splitlines()

    assert refused.startswith(f"True {framework_name} was loaded before this process was forked")
    assert "'spawn' method" in refused
    assert by_numpy == "8.0"
    if can_be_loaded_anew:
        assert loaded_anew == "8.0"
    else:
        assert loaded_anew.startswith(
            f"{framework_name} cannot be loaded in a process that was forked"
        )
    # The child's exit status, and what the parent computes afterwards.
    assert by_parent == "0 8.0"
