"""Devices keep to their own cores and threads, the caller stays on its own, and freed memory is
reused.
"""

import json
import os
import platform
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from threadpoolctl import ThreadpoolController

import backends
from backends.host import (
    available_cores,
    core_shares,
    on_cores,
    processor_flags,
    processor_name,
)
from backends.installation.kernels import best_instruction_set
from tests.backends.conftest import Require
from tests.conftest import THREADS, RunPython

PRINT_CORES = """
import faulthandler, json, os
import numpy as np
import backends

faulthandler.dump_traceback_later(110, exit=True)
for name in {names}:
    before = os.sched_getaffinity(0)
    tasks = set(os.listdir("/proc/self/task"))
    backend = backends.load(name, {devices}, "cpu", "async", 1, {workers})
    for device in backend.devices:
        x = backend.asarray(np.ones(2, dtype=np.float32), device)
        backend.wait(backend.launch(backend.ops.relu, x))
    assert os.sched_getaffinity(0) == before
    started = set(os.listdir("/proc/self/task")) - tasks
    of_threads = [sorted(os.sched_getaffinity(int(task))) for task in started]
    print(json.dumps([list(map(sorted, backend.cores)), of_threads]))
"""
CoresOf = dict[str, tuple[list[list[int]], list[list[int]]]]
"""By framework: the cores of each device, and those of each thread that a backend has started."""


def test_shares_are_disjoint_and_of_the_size_that_was_asked_for() -> None:
    all_cores = os.sched_getaffinity(0)
    count = available_cores()
    shares = core_shares(count, 1)
    assert [len(share) for share in shares] == [1] * count
    assert set().union(*shares) == all_cores
    assert core_shares(1, count) == [all_cores]
    # More devices than cores share them all.
    assert core_shares(count + 1, 1) == [all_cores] * (count + 1)


def test_the_calling_thread_is_moved_back() -> None:
    before = os.sched_getaffinity(0)
    with on_cores({min(before)}):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before


CPUINFO_OF_ARM = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

processor\t: 1
Features\t: fp asimd
CPU implementer\t: 0x41
CPU part\t: 0xd0c
"""
"""What Linux says of a Neoverse N1, which has other keys than an x86 processor, and no name."""


def test_an_arm_processor_is_described_by_its_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("backends.host.cores.PROCESSORS", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(CPUINFO_OF_ARM)
    system_s_name = platform.processor() or platform.machine()
    assert processor_name() == f"{system_s_name}, implementer 0x41, part 0xd0c"
    assert {"asimd", "atomics"} <= processor_flags()
    assert best_instruction_set(processor_flags()) == "Advanced SIMD"
    (tmp_path / "cpuinfo").unlink()
    assert processor_name() == system_s_name
    assert processor_flags() == frozenset()


TWO_CORES = pytest.mark.skipif(available_cores() < 2, reason="one core cannot be divided")
THREE_CORES = pytest.mark.skipif(
    available_cores() < 3, reason="two cores of three can be told from all"
)


def cores_in_one_process(
    run_python: RunPython, names: Sequence[str], devices: int, workers: int, more: str = ""
) -> tuple[CoresOf, list[str]]:
    """Load frameworks one after the other in one process; return their cores, and what `more` code
    prints afterwards.
    """
    code = PRINT_CORES.format(names=names, devices=devices, workers=workers)
    lines = run_python(code + more).stdout.splitlines()
    cores = [json.loads(line) for line in lines[: len(names)]]
    return dict(zip(names, cores, strict=True)), lines[len(names) :]


MULTIPLY_ON_ALL_DEVICES = """
if name == "mxnet":
    backend = backends.load("mxnet", 3, "cpu", "async", 1)
    matrix = np.ones((300, 300), dtype=np.float32)
    for x in [backend.asarray(matrix, device) for device in backend.devices] * 200:
        y = backend.launch(backend.ops.matmul, x, x)
    print(backend.to_numpy(y)[0, 0])
"""


@TWO_CORES
def test_each_device_has_a_core_of_its_own_also_after_another_framework_has_brought_openmp(
    require: Require, run_python: RunPython
) -> None:
    # PyTorch brings OpenMP: MXNet's OpenBLAS would hang with it.
    names = [name for name in ("jax", "torch", "mxnet") if find_spec(name)]
    for name in names:
        require(name)
    first, second, *_ = sorted(os.sched_getaffinity(0))
    cores, products = cores_in_one_process(run_python, names, 2, 1, MULTIPLY_ON_ALL_DEVICES)
    for of_devices, of_threads in cores.values():
        assert of_devices == [[first], [second]]
        assert [first] in of_threads
        assert [second] in of_threads
    assert products == ["300.0"] * ("mxnet" in names)


@THREE_CORES
def test_a_device_s_workers_have_a_core_each(require: Require, run_python: RunPython) -> None:
    names = [name for name in ("torch", "mxnet") if find_spec(name)]
    for name in names:
        require(name)
    first, second, *_ = sorted(os.sched_getaffinity(0))
    cores, _ = cores_in_one_process(run_python, names, 1, 2)
    for of_devices, of_threads in cores.values():
        assert of_devices == [[first, second]]
        assert of_threads.count([first, second]) >= 2


def threads_of_libraries() -> dict[str, int]:
    """Return how many threads each library that was loaded computes with, by its path."""
    libraries = ThreadpoolController().lib_controllers
    return {library.filepath: library.num_threads for library in libraries}


def test_numpy_s_threads_are_numpy_s_alone(require: Require, engine: str) -> None:
    require("mxnet")
    backends.load("mxnet", 2, "cpu", engine, THREADS)
    threads_before = threads_of_libraries()
    assert len(threads_before) > 1
    backends.load("numpy", threads_per_device=THREADS + 1)
    threads_after = threads_of_libraries()
    # Back to what other tests expect.
    backends.load("numpy", threads_per_device=THREADS)
    expected = {}
    for path, count in threads_before.items():
        expected[path] = THREADS + 1 if "numpy" in path else count
    assert threads_after == expected


COUNT_FAULTS = """
import resource
import numpy as np
import backends
for name, engine in {loaded!r}:
    backend = backends.load(name, devices=1, device_kind="cpu", engine=engine, threads_per_device=1)
    # The size of the product matters, not its duration.
    shapes = (800, 9), (9, 800)
    drawn = (np.ones(shape, dtype=np.float32) for shape in shapes)
    column, row = (backend.asarray(array, backend.devices[0]) for array in drawn)
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        results = [backend.launch(backend.ops.matmul, column, row) for _ in range(50)]
        backend.waitall()
        del results
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize(
    ("framework", "loaded"),
    [
        # Worker threads have arenas of their own; synchronous engines allocate in the calling
        # thread, and come first.
        ("torch", [("torch", "sync"), ("numpy", "sync"), ("torch", "async")]),
        ("mxnet", [("mxnet", "sync"), ("numpy", "sync")]),
        ("mxnet", [("mxnet", "async")]),
    ],
)
def test_freed_memory_is_kept(
    run_python: RunPython,
    require: Require,
    framework: str,
    loaded: list[tuple[str, str]],
) -> None:
    require(framework)
    printed = run_python(COUNT_FAULTS.format(loaded=loaded)).stdout
    faults = [int(line) for line in printed.splitlines()]
    assert len(faults) == len(loaded)
    # Fifty results take 31 250 pages; a tenth of them may have gone elsewhere.
    assert max(faults) < 3000
