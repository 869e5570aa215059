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
from contextlib import contextmanager
from functools import cache
from typing import Any

from backends.devices import Device
from backends.errors import BackendError
from backends.host import (
    core_numbers,
    keep_to_cores,
    on_cores,
    processor_flags,
    threads_named,
)
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
_numbers: dict[Any, int] = {}
"""By JAX's devices, the numbers of the logical devices that they serve."""
_first_process = os.getpid()
"""XLA ends a forked child that makes a client."""


def device_with_pool(index: int, cores: frozenset[int], threads: int, asynchronous: bool) -> Any:
    """Return JAX's device of a client that computes on these cores with `threads` threads.

    Raises BackendError in a process that was forked after this module was imported.
    """
    if _first_process != os.getpid():
        raise BackendError(
            "jax cannot be loaded in a process that was forked after it was loaded: start "
            "processes by multiprocessing's 'spawn' method"
        )
    return _device_of(index, cores, threads, asynchronous)


def named(device: Any) -> Device:
    """Return the logical device that a device of JAX serves."""
    # Each CPU device is the first of its client, and so has the same number.
    index = _numbers.get(device, device.id)
    return Device("gpu" if device.platform == "gpu" else "cpu", index)


@cache
def _device_of(index: int, cores: frozenset[int], threads: int, asynchronous: bool) -> Any:
    """Return JAX's device of a client, which is made once and kept."""
    # Kept for the life of the process: the programs that are compiled for a client keep it anyway.
    from jaxlib import xla_client

    with environment({POOL_SIZE: str(threads)}), on_cores(set(cores)):
        client = xla_client.make_cpu_client(asynchronous=asynchronous, num_devices=1)
    (device,) = client.devices()
    _numbers[device] = index
    return device


def libraries(threads: int) -> Sequence[Kernels]:
    """List the library that multiplies, XLA itself, and the library that convolves.

    Compiles a multiplication, on a separate client.
    """
    import jaxlib

    program = _compiled_product()
    program_text = program.get_hlo_text()
    multiplying = CONVOLVES
    for kind, library in MULTIPLIES.items():
        if kind in program_text:
            multiplying = library
            break
    # A library takes the best instructions that the processor has, and XLA those that its options
    # allow.
    best_of_processor = best_instruction_set(processor_flags())
    features = {flag.decode() for flag in re.findall(rb"(?<=\+)[\w.-]+", program.serialize())}
    compiled_for = best_instruction_set(frozenset(features))
    kernels = [
        Kernels(multiplying, None, best_of_processor, threads),
        Kernels("XLA", jaxlib.__version__, compiled_for, threads),
    ]
    if multiplying != CONVOLVES:
        kernels.append(Kernels(CONVOLVES, None, None, threads))
    return kernels


def _compiled_product() -> Any:
    """Return a compiled multiplication of two matrices."""
    import jax

    from backends.jax import ops

    device = device_with_pool(0, frozenset(), 1, asynchronous=False)
    sharding = jax.sharding.SingleDeviceSharding(device)
    matrix = jax.ShapeDtypeStruct((SIDE, SIDE), "float32", sharding=sharding)
    lowered = jax.jit(ops.matmul).lower(matrix, matrix)
    return lowered.compile().runtime_executable()


@contextmanager
def one_thread(backend: Any, x: Array) -> Iterator[None]:
    """Keep all pools' threads and the calling one to the device's first core in a `with` block.

    The device is that of `x`. On a system that does not say its cores, nothing is done.
    """
    position = backend.devices.index(backend.device_of(x))
    cores_of_device = backend.cores[position]
    if not cores_of_device:
        yield
        return
    first_core = {min(cores_of_device)}
    # Linux takes 0 for the calling thread.
    threads = (0, *threads_named(POOL))
    cores_before = {thread: core_numbers(thread) for thread in threads}
    try:
        for thread in threads:
            keep_to_cores(first_core, thread)
        yield
    finally:
        for thread, cores in cores_before.items():
            keep_to_cores(cores, thread)
