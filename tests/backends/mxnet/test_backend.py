"""MXNet's traps, each in a process of its own, with the evidence of MXNet's own profiler or of the order of events."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backends.host import available_cores
from tests.conftest import RunPython

STEPS_OF_ALL_DEVICES = 5 * 2
TRAIN_ON_TWO_DEVICES = """
import numpy as np
import backends
from parallel_core.training.lenet import loss_and_gradients
from parallel_core.training.step import get_params

backend = backends.load("mxnet", 2, "cpu", "async", 1, 1, VARIANTS)
import mxnet
images = np.random.default_rng(0).random((256, 1, 28, 28), dtype=np.float32)
params = [get_params(backend, device) for device in backend.devices]
shards = zip(
    backend.split_and_load(images, backend.devices),
    backend.split_and_load(np.zeros(256, dtype=np.int32), backend.devices),
)
work = [(p, x, y) for p, (x, y) in zip(params, shards)]
compute = loss_and_gradients(backend.ops)

def step():
    return [backend.launch(compute, *args) for args in work]

step()
backend.waitall()
mxnet.profiler.set_config(filename="TRACE", profile_imperative=True)
mxnet.profiler.set_state("run")
kept = [step() for _ in range(5)]
backend.waitall()
mxnet.profiler.set_state("stop")
mxnet.profiler.dump()
"""


QUEUE_HEAVY_PRODUCTS = """
import numpy as np
import backends

backend = backends.load("mxnet", 2, "cpu", "async", 1, 1, VARIANTS)
import mxnet
first, second = backend.devices
heavy, other = (backend.asarray(np.full((1000, 1000), 1e-3, dtype=np.float32), device) for device in backend.devices)
small = backend.asarray(np.ones((50, 50), dtype=np.float32), first)
backend.wait(backend.copy_to(small, second))
mxnet.profiler.set_config(filename="TRACE", profile_imperative=True)
mxnet.profiler.set_state("run")
kept = [backend.launch(backend.ops.matmul, heavy, heavy) for _ in range(20)]
backend.wait(backend.copy_to(small, second))
backend.wait(backend.launch(backend.ops.matmul, backend.launch(backend.ops.matmul, other, other), other))
mxnet.profiler.set_state("stop")
backend.waitall()
mxnet.profiler.dump()
"""


@pytest.fixture(autouse=True)
def _mxnet_is_installed(require: Callable[[str], None]) -> None:
    require("mxnet")


Events = list[dict[str, Any]]
ProfileOf = Callable[..., Events]


@pytest.fixture
def profile_of(run_python: RunPython, tmp_path: Path) -> ProfileOf:
    """Run a program with variants; return the events of its profile that began or ended."""

    def profile(program: str, *variants: str) -> Events:
        path = tmp_path / "trace.json"
        run_python(program.replace("TRACE", str(path)).replace("VARIANTS", repr(variants)))
        return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] in "BE"]

    return profile


def overlap_of_convolutions(events: Events) -> float:
    """Return for how long at most a convolution on one of the two devices overlapped one on the other."""
    begun: dict[tuple[int, int], float] = {}
    spans: dict[int, list[tuple[float, float]]] = {}
    for event in events:
        if event["name"] == "Convolution":
            thread = event["pid"], event["tid"]
            if event["ph"] == "B":
                begun[thread] = event["ts"]
            else:
                spans.setdefault(event["pid"], []).append((begun.pop(thread), event["ts"]))
    first, second = spans.values()
    assert len(first) == len(second) == 10
    return max(min(end, until) - max(start, since) for start, end in first for since, until in second)


def backward_operators(events: Events) -> Counter[str]:
    """Count the operators of backward passes, in bulk and by themselves."""
    begun = [str(event["name"]) for event in events if event["ph"] == "B"]
    return Counter(name.partition("_backward")[1] or name for name in begun if "_backward" in name or "Bulk" in name)


@pytest.mark.parametrize("variant", ["temporary-space-high", "temporary-space-low"])
def test_devices_take_turns_only_where_scratch_memory_is_scarce(profile_of: ProfileOf, variant: str) -> None:
    events = profile_of(TRAIN_ON_TWO_DEVICES, variant)
    # With MXNet's default of 4 pieces of scratch memory, no two of these convolutions ever overlap.
    assert (overlap_of_convolutions(events) > 0) == (variant == "temporary-space-high")
    # Not in bulk: that is another setting.
    operators = backward_operators(events)
    assert operators["_backward"] >= 15 * STEPS_OF_ALL_DEVICES
    assert operators["ImperativeBulk"] == 0


def test_bulk_execution_makes_few_operators_of_a_backward_pass(profile_of: ProfileOf) -> None:
    # Up to 15 in each: no gradient of a bulk is ready before the last one is.
    found = backward_operators(profile_of(TRAIN_ON_TWO_DEVICES, "bulk-on"))
    assert found == {"ImperativeBulk": 2 * STEPS_OF_ALL_DEVICES}


@pytest.mark.parametrize(
    ("variant", "fewest", "most"), [("copy-on-own-queue", 2, 21), ("copy-on-compute-queue", 22, 22)]
)
def test_waiting_for_one_device_is_not_waiting_behind_another(
    profile_of: ProfileOf, variant: str, fewest: int, most: int
) -> None:
    # MXNet's own copy stands in the source's queue, and its wait for the product would in that of cpu(0): either would
    # end after the twenty products.
    events = profile_of(QUEUE_HEAVY_PRODUCTS, variant)
    assert fewest <= sum(event["name"] == "_np_dot" and event["ph"] == "E" for event in events) <= most


@pytest.mark.parametrize("threads", [1, 2])
def test_a_device_s_operators_use_its_share_of_cores(run_python: RunPython, threads: int) -> None:
    # OpenMP starts its team at the first parallel region: one thread fewer than it may use.
    done = run_python(
        f"""
import os
import numpy as np
import backends

backend = backends.load("mxnet", 1, "cpu", "async", {threads})
x = backend.asarray(np.ones((4, 4), dtype=np.float32), backend.devices[0])
backend.wait(backend.launch(backend.ops.add, x, 1.0))
before = len(os.listdir("/proc/self/task"))
big = backend.asarray(np.ones((2000, 2000), dtype=np.float32), backend.devices[0])
backend.wait(backend.launch(backend.ops.relu, big))
print(len(os.listdir("/proc/self/task")) - before)
""",
        OMP_NUM_THREADS="7",
    )
    assert int(done.stdout) == threads - 1


@pytest.mark.parametrize(("engine", "dispatched"), [("async", True), ("sync", False)])
def test_the_engine_is_the_one_that_was_asked_for(run_python: RunPython, engine: str, dispatched: bool) -> None:
    done = run_python(
        f"""
import threading
import numpy as np
import backends

backend = backends.load("mxnet", 2, "cpu", "{engine}", 1)
x = backend.asarray(np.ones((1000, 1000), dtype=np.float32), backend.devices[0])
order = []
made = [backend.launch(backend.ops.matmul, x, x) for _ in range(20)]
threading.Thread(target=lambda: (backend.wait(made[-1]), order.append("computed"))).start()
order.append("dispatched")
backend.waitall()
while len(order) < 2:
    pass
print(*order)
""",
        MXNET_ENGINE_TYPE="ThreadedEngine",
    )
    # The naive engine has computed before anyone can wait, so only the asynchronous one has a sure order.
    assert not dispatched or done.stdout.split() == ["dispatched", "computed"]
    assert ("NaiveEngine" in done.stderr) == (engine == "sync")


ISSUE_FOR_EACH_DEVICE = """
import os
import numpy as np
import backends

backend = backends.load("mxnet", {devices}, "cpu", "async", 1)
before = os.sched_getaffinity(0)

def where(value):
    found.append(os.sched_getaffinity(0))
    return value

for parameters, expected in (((np.ones(1), np.ones(1)), {cores}), (np.ones(1), [before] * {devices})):
    found = []
    for device in backend.devices:
        backend.launch(where, backend.asarray(parameters, device))
    assert found == expected, (found, expected)
try:
    backend.launch(lambda value: value[2], backend.asarray((np.ones(1),), backend.devices[0]))
except backends.BackendError:
    assert os.sched_getaffinity(0) == before
"""


@pytest.mark.skipif(available_cores() < 2, reason="a core each can be told from all")
@pytest.mark.parametrize(
    ("devices", "cores"), [(available_cores(), "list(backend.cores)"), (available_cores() - 1, "[before] * {devices}")]
)
def test_a_model_is_issued_from_its_devices_cores_if_workers_have_all(
    run_python: RunPython, devices: int, cores: str
) -> None:
    run_python(ISSUE_FOR_EACH_DEVICE.format(devices=devices, cores=cores.format(devices=devices)))


FAILING = """
import numpy as np, backends
backend = backends.load("mxnet", 1, "cpu", "async", 1)
x = backend.asarray(np.ones((4, 4), np.float32), backend.devices[0])
def invert(matrix):
    import mxnet
    return mxnet.np.linalg.inv(matrix)
backend.launch(invert, x)
"""


def test_a_failure_that_nobody_waited_for_is_not_raised_at_exit(run_python: RunPython) -> None:
    done = run_python(FAILING)
    assert done.stderr == ""


def test_a_process_keeps_the_variants_that_it_imported_mxnet_with(run_python: RunPython) -> None:
    done = run_python(
        """
import backends
backend = backends.load("mxnet", variants=["temporary-space-low", "bulk-on", "copy-on-own-queue"])
print(*backend.variants)
print(backend.settings["MXNET_CPU_TEMP_COPY"], backend.settings["MXNET_EXEC_BULK_EXEC_TRAIN"])
try:
    backends.load("mxnet")
except backends.BackendError as error:
    print(error)
"""
    )
    told, settings, error = done.stdout.splitlines()
    assert (told, settings) == ("bulk-on temporary-space-low", "4 1")
    assert "already imported with MXNET_CPU_TEMP_COPY=4, and this backend needs 256: start a fresh process" in error
