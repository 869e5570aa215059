"""Each device's pool of threads keeps to cores of its own, so two devices compute at the same time."""

from collections.abc import Callable

from tests.conftest import RunPython

AFFINITIES = """
import os
from pathlib import Path
import numpy as np
import backends

backend = backends.load("jax", 2, "cpu", "async", 1)
xs = [backend.asarray(np.ones((64, 64), np.float32), device) for device in backend.devices]
for x in xs:
    backend.wait(backend.launch(backend.ops.matmul, x, x))
pools = [
    int(task.name)
    for task in Path("/proc/self/task").iterdir()
    if (task / "comm").read_text().startswith("tf_XLAEigen")
]
print(sorted({tuple(sorted(os.sched_getaffinity(thread))) for thread in pools}))
print(sorted(tuple(sorted(cores)) for cores in backend.cores))
"""


def test_threads_of_a_device_s_pool_keep_to_its_cores(require: Callable[[str], None], run_python: RunPython) -> None:
    require("jax")
    found, own = run_python(AFFINITIES).stdout.splitlines()
    assert found == own
