"""Starts the workers of MXNet's engine: on the cores of their devices, and with no more threads than they may use."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from backends.devices import Device
from backends.host import limit_openmp_threads, on_cores

__all__ = ["limit_threads_of_workers", "start_workers"]

MEETING_SECONDS = 10.0
"""How long a worker waits for the others of its context to start."""


def start_workers(
    mx: Any,
    sharded_sum: Any,
    contexts: Mapping[Device, Any],
    cores: Sequence[set[int]],
    workers_per_device: int,
    threads_per_device: int,
) -> None:
    """Start the workers of CPU devices' contexts, each kept to its device's cores; `sharded_sum` is that module."""
    # MXNet starts a context's workers at its first operator, on the cores of the thread that issues it; those of
    # cpu(0), which serve every wait, come first and are left free. On a GPU a worker only issues.
    mx.np.zeros((1,), ctx=mx.cpu(0)).wait_to_read()
    for (device, context), share in zip(contexts.items(), cores, strict=False):
        if device.kind == "gpu":
            continue
        with on_cores(share):
            mx.np.zeros((1,), ctx=context).wait_to_read()
        limit_threads_of_workers(mx, sharded_sum, context, workers_per_device, threads_per_device)


def limit_threads_of_workers(mx: Any, sharded_sum: Any, context: Any, workers: int, threads: int) -> None:
    """Set the number of threads that OpenMP gives each of a context's workers."""
    # MXNet trusts OMP_NUM_THREADS, which OpenMP has not read if another framework brought it along before; and MXNet's
    # OpenBLAS hangs if several workers use more than one thread each.
    meeting = threading.Barrier(workers)

    def limit() -> None:
        limit_openmp_threads(threads)
        # Each worker takes one of these: none returns for another one before all have begun.
        with suppress(threading.BrokenBarrierError):
            meeting.wait(MEETING_SECONDS)

    for _ in range(workers):
        sharded_sum.push(limit, context, [mx.np.zeros((1,), ctx=context)])
    mx.npx.waitall()
