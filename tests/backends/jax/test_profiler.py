"""JAX's profile: every program is seen on its device, linked with the call that launched it."""

import json
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from backends import Backend
from backends.jax import profiler
from backends.jax.profiler import parse_program, program_name
from backends.profiling import case_text, read_trace, run_profiler
from backends.profiling.perfetto import OWN_KEY, write_timeline
from backends.profiling.threads_of_trace import count_unlinked
from backends.profiling.timeline import HOST_DEVICE
from tests.backends.profiling.work import COUNT, matrix, named, products


def test_every_product_is_seen_where_it_ran_and_after_it_was_launched(jax_backend: Backend, tmp_path: Path) -> None:
    xs = [matrix(jax_backend, device) for device in jax_backend.devices]
    path = tmp_path / "trace.json"
    with run_profiler(jax_backend, path) as mark, mark(case_text("products")):
        kept = [products(jax_backend, x) for x in xs]
        jax_backend.waitall()
        del kept
    trace = read_trace(path)
    assert profiler.is_from(trace)
    found = profiler.timeline_of(trace)
    seen = named(found, "matmul")
    assert {
        device: sum(span.device == str(device) for span in seen) for device in jax_backend.devices
    } == dict.fromkeys(jax_backend.devices, COUNT)
    assert {span.kind for span in seen} == {"compute"}
    assert {span.launched for span in seen} == {call.start for call in named(found, "launch matmul")}
    assert all(span.launched <= span.start < span.end for span in seen if span.launched is not None)


def test_a_timeline_with_operations_that_nothing_is_linked_to_is_written(jax_backend: Backend, tmp_path: Path) -> None:
    x = matrix(jax_backend, jax_backend.devices[0], 1000)
    path = tmp_path / "trace.json"
    with run_profiler(jax_backend, path) as mark, mark(case_text("copies")):
        kept = [jax_backend.copy_to(x, device) for device in jax_backend.devices]
        kept.append(jax_backend.launch(jax_backend.ops.relu, x))
        jax_backend.waitall()
        del kept
    found = count_unlinked(profiler.timeline_of(read_trace(path)), {HOST_DEVICE})
    assert found.unlinked
    write_timeline(found, stream := BytesIO())
    assert json.loads(stream.getvalue())[OWN_KEY]["unlinked"] == found.unlinked


REPEAT_CASES = """
import sys
from pathlib import Path
import numpy as np
import psutil
import backends
from backends.profiling import case_text, run_profiler

backend = backends.load("jax", 1, "cpu", "async", 1)
x = backend.asarray(np.ones(2**21, dtype=np.float32), backend.devices[0])
own, resident = psutil.Process(), []
with run_profiler(backend, Path(sys.argv[1])) as mark:
    for case in range(4):
        with mark(case_text(str(case))):
            for _ in range(50):
                backend.wait(backend.launch(backend.ops.relu, x))
        resident.append(own.memory_info().rss)
assert resident[-1] - resident[0] < 25 * 2**23, resident
"""


def test_a_repetition_s_memory_is_given_back_before_the_next(require: Callable[[str], None], tmp_path: Path) -> None:
    require("jax")
    subprocess.run([sys.executable, "-c", REPEAT_CASES, tmp_path / "trace.json"], check=True, timeout=120)


def test_a_program_s_name_says_its_function_and_device(jax_backend: Backend) -> None:
    assert parse_program("jit_" + program_name("<lambda>", jax_backend.devices[1])) == ("lambda", "cpu:2")
    assert parse_program("jit_other") is None
