"""Repetitions find the memory that earlier ones freed: new pages would cost time that nobody asked about."""

from collections.abc import Callable

import pytest

from tests.conftest import RunPython

COUNT_FAULTS = """
import resource
import numpy as np
import backends
backend = backends.load({name!r}, devices=1, device_kind="cpu", engine={engine!r}, threads_per_device=1)
# The product's size is what counts, and not how long it takes.
column, row = (backend.asarray(np.ones(shape, dtype=np.float32), backend.devices[0]) for shape in ((800, 9), (9, 800)))

def products():
    kept = [backend.launch(backend.ops.matmul, column, row) for _ in range(50)]
    backend.waitall()

for _ in range(5):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    products()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize(
    ("name", "engine"),
    [("numpy", "sync"), ("torch", "sync"), ("torch", "async"), ("mxnet", "sync"), ("mxnet", "async")],
)
def test_freed_memory_is_kept(run_python: RunPython, require: Callable[[str], None], name: str, engine: str) -> None:
    if name != "numpy":
        require(name)
    # Fifty results take 31 250 pages; a tenth of them may have gone elsewhere.
    assert int(run_python(COUNT_FAULTS.format(name=name, engine=engine)).stdout) < 3000
