"""Starts the workers of MXNet's engine: on the cores of their devices, and with no more threads than they may use."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from backends.devices import Device
from backends.host import limit_openmp_threads, on_cores

MEETING_SECONDS = 10.0
"""How long a worker waits for the others of its context to start."""


_cores: dict[Device, set[int]] = {}
"""MXNet never ends its workers: those of an earlier backend of this process serve a later one, on the same cores."""


def start_workers(
    contexts: Mapping[Device, Any], cores: Sequence[set[int]], workers: int, threads: int
) -> Sequence[set[int]]:
    """Start each CPU device's `workers`, on its own cores and with `threads` of OpenMP each; mxnet must be imported.

    Return each device's cores, which are others if its workers were running already.
    """
    import mxnet as mx

    # MXNet starts a context's workers at its first operator, on the cores of the thread that issues it; those of
    # cpu(0), which serve every wait, come first and are left free. On a GPU a worker only issues.
    mx.np.zeros((1,), ctx=mx.cpu(0)).wait_to_read()
    for (device, context), share in zip(contexts.items(), cores, strict=False):
        if device.kind == "gpu" or device in _cores:
            continue
        with on_cores(share):
            mx.np.zeros((1,), ctx=context).wait_to_read()
        # MXNet trusts OMP_NUM_THREADS, which OpenMP has not read if another framework brought it along before; and
        # MXNet's OpenBLAS hangs if several workers use more than one thread each.
        limit_threads(context, workers, threads)
        _cores[device] = share
    return [_cores.get(device, share) for device, share in zip(contexts, cores, strict=False)]


def limit_threads(context: Any, workers: int, threads: int) -> None:
    """Give each worker of an idle CPU context so many threads of OpenMP."""
    import mxnet as mx

    from backends.mxnet.sharded_sum import push

    limit = partial(_limit_own_threads, threads, threading.Barrier(workers))
    limited = [mx.np.zeros((1,), ctx=context) for _ in range(workers)]
    for mark in limited:
        push(limit, context, [], [mark])
    for mark in limited:
        mark.wait_to_read()


def _limit_own_threads(threads: int, meeting: threading.Barrier) -> None:
    limit_openmp_threads(threads)
    # Each worker takes one of these calls: none returns for another one before all have begun.
    with suppress(threading.BrokenBarrierError):
        meeting.wait(MEETING_SECONDS)
