"""JAX's profile: every program is seen on its device, linked with the call that launched it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from backends import Backend
from backends.jax.profiler import parse_program, program_name

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
