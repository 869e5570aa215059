"""Every experiment runs on every backend and engine, is checked against NumPy, and comes out as one JSON object.

What it is run with is `SMALL` in the test of its module.
"""

import json
import math
from collections.abc import Callable
from functools import partial
from importlib import import_module

import pytest

from backends import Backend
from parallel_core import RequestError, Result
from parallel_core.experiments import EXPERIMENTS


def run_small(name: str, backend: Backend) -> Result:
    """Run an experiment with as little work as its test needs."""
    package, _, module = EXPERIMENTS[name].run.__module__.rpartition(".")
    return EXPERIMENTS[name].run(backend, **import_module(f"tests.{package}.test_{module}").SMALL)


RUNS: dict[str, Callable[[Backend], Result]] = {name: partial(run_small, name) for name in EXPERIMENTS}


@pytest.fixture(autouse=True)
def _queues_of_smaller_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill queues with arrays of 1 MiB: the frameworks keep the memory that they free, and workers would grow."""
    monkeypatch.setattr("parallel_core.experiments.asynchronous_computation.asynchronous.queue_depth.SIDE", 512)


@pytest.mark.parametrize("name", RUNS)
def test_the_result_is_checked_and_described(backend: Backend, name: str) -> None:
    result = json.loads(json.dumps(RUNS[name](backend).as_json(), allow_nan=False))
    assert result["schema"] == 1
    assert result["experiment"] == name
    assert result["backend"]["name"] == backend.name
    assert result["backend"]["engine"] == backend.engine
    assert result["backend"]["devices"] == ["cpu:1", "cpu:2", "cpu:3"]
    assert result["backend"]["threads_per_device"] == 1
    assert result["checks"]["max_relative_error"] < 1e-4
    assert not [problem for problem in result["problems"] if "differ" in problem]
    assert all(math.isfinite(value) for value in result["metrics"].values())
    assert EXPERIMENTS[name].metric in result["metrics"]
    for case in result["cases"]:
        assert len(case["seconds"]) == len(case["dispatch_seconds"]) == 2
        assert all(0 <= sent <= done for sent, done in zip(case["dispatch_seconds"], case["seconds"], strict=True))
    assert result["environment"]["cores"] >= 1
    assert result["explanation"]


REFUSING_A_SINGLE_DEVICE = {
    "parallel",
    "overlap",
    "three-way",
    "allreduce",
    "building-blocks",
    "batch-scaling",
    "learning-rates",
    "partitioning",
    "batch-norm",
}


@pytest.mark.parametrize("name", RUNS)
def test_a_single_device_is_measured_or_refused(
    load: Callable[[int], Backend], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How much memory a queue holds is tested with `async`, on larger arrays.
    monkeypatch.setattr("parallel_core.experiments.asynchronous_computation.asynchronous.queue_depth.SIDE", 64)
    if name == "graph":
        with pytest.raises(RequestError, match=r"^the graph of the MLP .* \(--devices 3\)$"):
            RUNS[name](load(1))
    elif name in REFUSING_A_SINGLE_DEVICE:
        with pytest.raises(RequestError, match=rf"^the experiment '{name}' .* at least 2 devices \(--devices 2\)$"):
            RUNS[name](load(1))
    else:
        assert RUNS[name](load(1)).checks["max_relative_error"] < 1e-4


@pytest.mark.parametrize("name", ["parallel", "overlap", "independent-ops", "three-way"])
def test_sizes_are_chosen_when_none_is_given(backend: Backend, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parallel_core.experiments.products.RUN_SECONDS", 0.002)
    monkeypatch.setattr("parallel_core.experiments.automatic_parallelism.independent_ops.RUN_SECONDS", 0.002)
    options = {"workers_compared": (1,)} if name == "independent-ops" else {}
    parameters = EXPERIMENTS[name].run(backend, **options, rounds=1).parameters
    assert parameters["size"] % 8 == 0
    assert parameters["size"] > 0
    assert name in ("parallel", "independent-ops") or parameters["copies"] >= 1
