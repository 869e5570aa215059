"""MXNet's traps, each in a process of its own, with the evidence of MXNet's own profiler or of the order of events."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backends.host import available_cores
from tests.conftest import RunPython

TRAIN_ON_TWO_DEVICES = """
import sys
import numpy as np
import backends
from parallel_core.training.lenet import loss_and_gradients
from parallel_core.training.step import get_params

backend = backends.load("mxnet", 2, "cpu", "async", 1)
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
mxnet.profiler.set_config(filename=sys.argv[1], profile_imperative=True)
mxnet.profiler.set_state("run")
kept = [step() for _ in range(5)]
backend.waitall()
mxnet.profiler.set_state("stop")
mxnet.profiler.dump()
"""


@pytest.fixture(autouse=True)
def _mxnet_is_installed(require: Callable[[str], None]) -> None:
    require("mxnet")


def convolutions(trace: list[dict[str, Any]]) -> dict[int, list[tuple[float, float]]]:
    """Collect the spans of convolutions by process row, which is a device."""
    begun: dict[tuple[int, int], float] = {}
    spans: dict[int, list[tuple[float, float]]] = {}
    for event in trace:
        if event.get("name") != "Convolution":
            continue
        row, track = event["pid"], event["tid"]
        if event["ph"] == "B":
            begun[row, track] = event["ts"]
        elif event["ph"] == "E":
            spans.setdefault(row, []).append((begun.pop((row, track)), event["ts"]))
    return spans


def test_operators_with_scratch_memory_run_on_two_devices_at_once(run_python: RunPython, tmp_path: Path) -> None:
    # With MXNet's default of 4 pieces of scratch memory, no two of these convolutions ever overlap.
    path = tmp_path / "trace.json"
    run_python(TRAIN_ON_TWO_DEVICES.replace("sys.argv[1]", repr(str(path))))
    first, second = convolutions(json.loads(path.read_text())["traceEvents"]).values()
    overlaps = [min(end, other_end) - max(start, other) for start, end in first for other, other_end in second]
    assert max(overlaps) > 0


QUEUE_HEAVY_PRODUCTS = """
import numpy as np
import backends

backend = backends.load("mxnet", 2, "cpu", "async", 1)
import mxnet
first, second = backend.devices
heavy, other = (backend.asarray(np.full((1000, 1000), 1e-3, dtype=np.float32), device) for device in backend.devices)
small = backend.asarray(np.ones((50, 50), dtype=np.float32), first)
backend.wait(backend.copy_to(small, second))
mxnet.profiler.set_config(filename="TRACE", profile_imperative=True)
mxnet.profiler.set_state("run")
kept = [backend.launch(backend.ops.matmul, heavy, heavy) for _ in range(20)]
WORK
mxnet.profiler.set_state("stop")
backend.waitall()
mxnet.profiler.dump()
"""


# MXNet's own copy would stand in the source's queue, and its wait for the product in that of cpu(0): either would end
# after the twenty products.
COPY_AND_TWO_PRODUCTS = """
backend.wait(backend.copy_to(small, second))
backend.wait(backend.launch(backend.ops.matmul, backend.launch(backend.ops.matmul, other, other), other))
"""


def test_waiting_for_one_device_is_not_waiting_behind_another(run_python: RunPython, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    run_python(QUEUE_HEAVY_PRODUCTS.replace("TRACE", str(path)).replace("WORK", COPY_AND_TWO_PRODUCTS))
    trace = json.loads(path.read_text())["traceEvents"]
    done = sum(event.get("name") == "_np_dot" and event["ph"] == "E" for event in trace)
    assert 2 <= done < 2 + 20


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
