"""Several workers per device: independent operators of one device run at once, and every number is the same."""

import threading
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import backends
from backends import Backend
from backends.conformance import Limits, search
from backends.host import available_cores
from parallel_core.comparison.cells import Cell
from parallel_core.measurement.result import Result, describe_backend
from tests.parallel_core.comparison import made_up


@pytest.fixture
def two_workers(require: Callable[[str], None]) -> Backend:
    require("torch")
    return backends.load("torch", 2, "cpu", "async", 1, 2)


def test_two_independent_operators_of_one_device_run_at_once(two_workers: Backend) -> None:
    meeting = threading.Barrier(2)
    x = two_workers.asarray(np.ones(2, dtype=np.float32), two_workers.devices[0])
    for met in [two_workers.launch(lambda x: meeting.wait(20) and x, x) for _ in range(2)]:
        two_workers.wait(met)


def load_with(name: str, workers: int, variants: list[str], devices: int) -> Backend:
    return backends.load(name, devices, "cpu", "async", 1, workers, variants)


@pytest.mark.parametrize(
    ("name", "workers", "variants", "programs"),
    [
        ("mxnet", 2, [], 30),
        ("mxnet", 1, ["copy-on-compute-queue", "bulk-on", "temporary-space-low"], 30),
        ("torch", 2, [], 30),
        ("torch", 1, ["copy-on-compute-queue"], 30),
        ("torch", 2, ["copy-on-compute-queue"], 30),
        # It compiles every program.
        ("jax", 1, ["step-compiled"], 10),
    ],
)
def test_random_programs_give_numpy_s_numbers(
    require: Callable[[str], None], name: str, workers: int, variants: list[str], programs: int
) -> None:
    require(name)
    limits = Limits(seed=1, programs=programs, devices=2, deadline=60)
    found = search(partial(load_with, name, workers, variants), limits)
    assert [one.finding for one in found] == []


def test_cores_are_divided_among_all_workers(require: Callable[[str], None]) -> None:
    require("torch")
    backend = backends.load("torch", 1, "cpu", "async", workers_per_device=available_cores())
    assert backend.threads_per_device == 1
    assert backend.cores == [set(backends.host.core_numbers())]


def test_several_workers_are_said_in_a_result_and_not_asked_of_old_ones(two_workers: Backend) -> None:
    described = describe_backend(two_workers)
    assert described["workers_per_device"] == 2
    old = made_up.result(Cell("parallel", "torch", "async"), {"on all together": 1.0}).as_json()
    assert "workers_per_device" not in old["backend"]
    assert Result.from_json(old).backend["threads_per_device"] == 1
