"""The clients of XLA that serve logical devices: one for each device, with a pool of threads on the device's cores.

Devices of one client (`jax_num_cpu_devices`) share its pool, from which each operator takes all threads: on them
nothing says which cores compute for which device.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from backends.errors import BackendError
from backends.host import on_cores

__all__ = ["device_with_pool", "pool_of"]

POOL = "NPROC"
"""The environment variable by which XLA is told the size of a pool, when a client is made."""


_first_process = os.getpid()
"""XLA ends a forked child that makes a client."""


def device_with_pool(index: int, cores: Collection[int], threads: int, asynchronous: bool) -> Any:
    """Return JAX's device of a client that computes on some cores with so many threads.

    Raises BackendError in a process that was forked after this module was imported.
    """
    return _device_of(os.getpid(), index, frozenset(cores), threads, asynchronous)


@cache
def _device_of(_: int, index: int, cores: frozenset[int], threads: int, asynchronous: bool) -> Any:  # noqa: ARG001
    # Kept for the life of the process: programs that are compiled for a client keep it anyway.
    from jaxlib import xla_client

    if _first_process != os.getpid():
        raise BackendError(
            "jax cannot be loaded in a process that was forked after it was loaded: start processes by "
            "multiprocessing's 'spawn' method"
        )
    with pool_of(threads), on_cores(set(cores)):
        client = xla_client.make_cpu_client(asynchronous=asynchronous, num_devices=1)
    (device,) = client.devices()
    return device


@contextmanager
def pool_of(threads: int) -> Iterator[None]:
    """Give clients that are made within the context a pool of so many threads."""
    before = os.environ.get(POOL)
    os.environ[POOL] = str(threads)
    try:
        yield
    finally:
        if before is None:
            del os.environ[POOL]
        else:
            os.environ[POOL] = before
