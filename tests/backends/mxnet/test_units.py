"""What MXNet makes of a function as one unit."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

import backends
from backends import Array
from tests.backends.profiling.work import see
from tests.conftest import THREADS

PRODUCTS = 7


def test_a_unit_is_one_entry_of_a_queue_with_all_of_its_operations(
    require: Callable[[str], None], engine: str, tmp_path: Path
) -> None:
    require("mxnet")
    backend = backends.load("mxnet", 3, "cpu", engine, THREADS)
    calls = []

    def multiply(x: Array) -> Array:
        calls.append(x)
        return tuple(backend.ops.matmul(x, x) for _ in range(PRODUCTS))

    unit = backend.ops.as_unit(multiply)
    x = backend.asarray(np.ones((5, 5), dtype=np.float32), backend.devices[0])
    backend.wait(backend.launch(unit, x))
    seen = see(backend, tmp_path / "trace.json", unit=lambda: backend.launch(unit, x))
    assert len(calls) == 1
    names = [span.name for span in seen.spans if span.device != "host"]
    # The synchronous engine names the operators, of which none is left out because it equals another.
    assert names == (["bulk of operators"] if engine == "async" else ["matmul"] * PRODUCTS)
