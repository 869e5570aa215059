"""The clients of XLA that serve logical devices, and the kernels that JAX computes with.

There is a client for each device, with a pool of threads on the device's cores. Devices of one
client (`jax_num_cpu_devices`) share its pool, from which each operator takes all threads: on them
nothing says which cores compute for which device.

XLA gives matrix multiplications to YNNPACK, convolutions to Eigen, and compiles the rest. All are
in jaxlib; only XLA has a version. What a multiplication became is read in a program that holds one.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from backends.devices import Device
from backends.errors import BackendError
from backends.host import on_cores, processor_flags
from backends.installation.frameworks import environment
from backends.installation.kernels import Kernels, best_instruction_set
from backends.protocol import Array

POOL_SIZE = "NPROC"
"""The environment variable that sets the size of XLA's pool when a client is made."""
CONVOLVES = "Eigen"
MULTIPLIES = {"__ynn_fusion": "YNNPACK", "__onednn": "oneDNN"}
"""How a compiled program names a library, of those that it may be built for."""
SIDE = 512
"""Small multiplications are compiled, and need no library."""
POOL = "tf_XLAEigen"
"""How Linux names the threads of XLA's pools."""
TASKS = Path("/proc/self/task")
_numbers: dict[Any, int] = {}
"""By JAX's devices, the numbers of the logical devices that they serve."""
_first_process = os.getpid()
"""XLA ends a forked child that makes a client."""


def device_with_pool(index: int, cores: frozenset[int], threads: int, asynchronous: bool) -> Any:
    """Return JAX's device of a client that computes on some cores with so many threads.

    Raises BackendError in a process that was forked after this module was imported.
    """
    if _first_process != os.getpid():
        raise BackendError(
            "jax cannot be loaded in a process that was forked after it was loaded: start "
            "processes by "
            "multiprocessing's 'spawn' method"
        )
    return _device_of(index, cores, threads, asynchronous)


def named(device: Any) -> Device:
    """Return the logical device that a device of JAX serves; a CPU calls itself the first of its
    client.
    """
    return Device("gpu" if device.platform == "gpu" else "cpu", _numbers.get(device, device.id))


@cache
def _device_of(index: int, cores: frozenset[int], threads: int, asynchronous: bool) -> Any:
    # Kept for the life of the process: programs that are compiled for a client keep it anyway.
    from jaxlib import xla_client

    with environment({POOL_SIZE: str(threads)}), on_cores(set(cores)):
        (device,) = xla_client.make_cpu_client(asynchronous=asynchronous, num_devices=1).devices()
    _numbers[device] = index
    return device


def libraries(threads: int) -> Sequence[Kernels]:
    """List what multiplies, XLA itself and what convolves.

    Compiles a multiplication, on a separate client.
    """
    import jaxlib

    program = _compiled_product()
    named = (library for kind, library in MULTIPLIES.items() if kind in program.get_hlo_text())
    multiplies = next(named, CONVOLVES)
    # A library takes the best that the processor has, and XLA what its options allow.
    best = best_instruction_set(processor_flags())
    features = {flag.decode() for flag in re.findall(rb"(?<=\+)[\w.-]+", program.serialize())}
    compiled_for = best_instruction_set(frozenset(features))
    return [
        Kernels(multiplies, None, best, threads),
        Kernels("XLA", jaxlib.__version__, compiled_for, threads),
        *([] if multiplies == CONVOLVES else [Kernels(CONVOLVES, None, None, threads)]),
    ]


def _compiled_product() -> Any:
    import jax

    from backends.jax import ops

    place = jax.sharding.SingleDeviceSharding(
        device_with_pool(0, frozenset(), 1, asynchronous=False)
    )
    matrix = jax.ShapeDtypeStruct((SIDE, SIDE), "float32", sharding=place)
    return jax.jit(ops.matmul).lower(matrix, matrix).compile().runtime_executable()


@contextmanager
def one_thread(backend: Any, x: Array) -> Iterator[None]:
    """Keep the threads of every pool, and the one that calls, to the first core of the device of
    `x`.
    """
    core = set(sorted(backend.cores[backend.devices.index(backend.device_of(x))])[:1])
    # Linux takes 0 for the thread that calls.
    before = (
        {thread: os.sched_getaffinity(thread) for thread in (0, *_threads_of_pools())}
        if core
        else {}
    )
    try:
        for thread in before:
            os.sched_setaffinity(thread, core)
        yield
    finally:
        for thread, cores in before.items():
            os.sched_setaffinity(thread, cores)


def _threads_of_pools() -> Sequence[int]:
    threads = []
    for task in TASKS.iterdir():
        # A thread may have ended since the folder was read.
        with suppress(OSError):
            if (task / "comm").read_text().strip() == POOL:
                threads.append(int(task.name))
    return threads
