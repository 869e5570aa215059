"""MXNet has one engine for a process: what a second backend of the same process finds, and what it says."""

from collections.abc import Callable

import pytest

from backends.host import available_cores
from tests.conftest import RunPython


@pytest.fixture(autouse=True)
def _mxnet_is_installed(require: Callable[[str], None]) -> None:
    require("mxnet")


LOAD_THREE_AND_TWO = """
import os
import numpy as np
import backends

first = backends.load("mxnet", {first}, "cpu", "async", 1)
second = backends.load("mxnet", {second}, "cpu", "async", 1)

from backends.mxnet.sharded_sum import push
for backend in (first, second):
    found = {{}}
    for device in backend.devices:
        x = backend.asarray(np.ones(1, dtype=np.float32), device)
        push(lambda device=device: found.update({{device: os.sched_getaffinity(0)}}), x.ctx, [x])
    backend.waitall()
    assert [found[device] for device in backend.devices] == list(backend.cores), (found, backend.cores)
"""


@pytest.mark.skipif(available_cores() < 2, reason="a core each can be told from all")
@pytest.mark.parametrize(("first", "second"), [(available_cores() + 1, 2), (2, available_cores() + 1)])
def test_the_cores_are_those_of_the_workers_that_run(run_python: RunPython, first: int, second: int) -> None:
    run_python(LOAD_THREE_AND_TWO.format(first=first, second=second))


LEAVE_A_FAILURE = """
import numpy as np
import backends
from backends import ComputationError

broken = backends.load("mxnet", 2, "cpu", "async", 1)
import mxnet
x = broken.asarray(np.ones(2, dtype=np.float32), broken.devices[0])
kept = broken.launch(lambda x: mxnet.np.random.normal(0, -1, x.shape, ctx=x.ctx), x)
{between}
fresh = backends.load("mxnet", 2, "cpu", "async", 1)
fresh.waitall()
assert fresh.to_numpy(fresh.asarray(np.ones(2), fresh.devices[1])).tolist() == [1, 1]
{after}
"""
STILL_TOLD = """
try:
    print(broken.to_numpy(kept))
except ComputationError as error:
    print("told:", error)
"""


def test_a_failure_that_nobody_reads_does_not_end_the_next_load(run_python: RunPython) -> None:
    run_python(LEAVE_A_FAILURE.format(between="del broken, kept", after=""))


def test_a_failure_is_told_to_its_own_backend_also_after_another_was_loaded(run_python: RunPython) -> None:
    told = run_python(LEAVE_A_FAILURE.format(between="", after=STILL_TOLD)).stdout
    assert told.startswith("told: mxnet refuses further work after a failure (mxnet")


TWO_BACKENDS = """
import numpy as np
import backends
from backends import ComputationError

broken, other = (backends.load("mxnet", 2, "cpu", "async", 1) for _ in range(2))
import mxnet
x = broken.asarray(np.ones(2, dtype=np.float32), broken.devices[0])
kept = broken.launch(lambda x: mxnet.np.random.normal(0, -1, x.shape, ctx=x.ctx), x)
try:
    other.waitall()
except ComputationError:
    pass
"""


def test_a_failure_that_another_backend_waits_for_ends_both(run_python: RunPython) -> None:
    told = run_python(TWO_BACKENDS + STILL_TOLD).stdout
    assert told.startswith("told: mxnet refuses further work after a failure (mxnet")


def test_other_threads_know_numpy_s_shapes(run_python: RunPython) -> None:
    run_python("""
import threading
import numpy as np
import backends

backend = backends.load("mxnet", 2, "cpu", "async", 1)
first, second = backend.devices
found = []

def work():
    for shape in ((0, 3), (), (2, 0, 4)):
        x = backend.copy_to(backend.asarray(np.ones(shape, np.float32), first), second)
        x = backend.launch(backend.ops.add, x, 1.0)
        _, gradients = backend.launch(backend.ops.value_and_grad(lambda p: backend.ops.total(p[0])), (x,))
        found.append(backend.to_numpy(gradients)[0].shape == shape)

thread = threading.Thread(target=work)
thread.start()
thread.join(60)
assert found == [True] * 3, found
""")
