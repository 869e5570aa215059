"""Functions of ours that MXNet's engine calls."""

from collections.abc import Callable

import pytest

from tests.conftest import RunPython


@pytest.fixture(autouse=True)
def _mxnet_is_installed(require: Callable[[str], None]) -> None:
    require("mxnet")


INTERRUPT = """
import signal
import numpy as np
import backends

backend = backends.load("mxnet", 1, "cpu", "sync", 1)
from backends.mxnet.sharded_sum import push
x = backend.asarray(np.ones(1, dtype=np.float32), backend.devices[0])
try:
    push(lambda: signal.raise_signal(signal.SIGINT), x.ctx, [x])
except KeyboardInterrupt:
    print("interrupted")
print(backend.to_numpy(backend.launch(backend.ops.add, x, 1.0)))
"""


def test_ctrl_c_in_a_function_that_the_engine_calls_at_once_is_not_dropped(run_python: RunPython) -> None:
    assert run_python(INTERRUPT).stdout == "interrupted\n[2.]\n"


SUM_LATER = """
import threading
import numpy as np
import backends

backend = backends.load("mxnet", 2, "cpu", "async", 1)
import mxnet
from backends.mxnet.sharded_sum import push, push_barrier
called = []
x, mark = (mxnet.np.ones(1, ctx=mxnet.cpu(1)) for _ in range(2))
failed = mxnet.np.random.normal(0, -1, (1,), ctx=mxnet.cpu(1))
push(lambda: called.append("read"), mxnet.cpu(1), [x])
push(lambda: called.append("failed"), mxnet.cpu(1), [x, failed], [mark])
push_barrier(x, [mark])
try:
    x.wait_to_read()
except ValueError as error:
    print(called, str(error).splitlines()[-1][:30])
"""


def test_a_failure_travels_from_what_is_read_to_what_is_written(run_python: RunPython) -> None:
    assert run_python(SUM_LATER).stdout == "['read'] ValueError: Check failed: para\n"
