"""NumPy's backend with one defect each, as a loader that a worker's process can import."""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import backends
from backends import Array, Backend, Device
from backends.arrays import tree_map


def sound(devices: int) -> Backend:
    return backends.load("numpy", devices, threads_per_device=1)


def losing_failures(devices: int) -> Backend:
    """Go on with the first argument in the place of what failed."""
    backend = sound(devices)

    def launch(fn: Callable[..., Array], *args: Array) -> Array:
        try:
            return fn(*args)
        except Exception:
            return args[0] if args else None

    return _with(backend, launch=launch)


def counting_twice(devices: int) -> Backend:
    """Add the first of several values twice."""
    backend = sound(devices)
    sum_up = backend.allreduce

    def allreduce(xs: Sequence[Array]) -> tuple[Array, ...]:
        first = backend.copy_to(xs[0], backend.devices[0])
        sums = sum_up(xs)
        if len(xs) > 1:
            for total in sums:
                tree_map(lambda leaf, term: np.add(leaf, term, out=leaf), total, first)
        return sums

    return _with(backend, allreduce=allreduce)


def copying_nothing(devices: int) -> Backend:
    """Return what was to be copied."""
    backend = sound(devices)
    copy = backend.copy_to
    return _with(backend, copy_to=lambda x, device, out=None: x if out is None else copy(x, device, out))


def writing_over_what_it_reads(devices: int) -> Backend:
    """Write a copy array by array, though a later one may be read from the memory of an earlier one."""
    backend = sound(devices)
    copy = backend.copy_to

    def copy_to(x: Array, device: Device, out: Array | None = None) -> Array:
        if out is None:
            return copy(x, device)
        tree_map(np.copyto, out, x)
        return out

    return _with(backend, copy_to=copy_to)


def dividing_from_the_end(devices: int) -> Backend:
    """Give the extra rows to the last devices."""
    backend = sound(devices)

    def split_and_load(x: np.ndarray, devices: Sequence[Device]) -> tuple[Array, ...]:
        lengths = [len(x) // len(devices) + (place < len(x) % len(devices)) for place in range(len(devices))]
        return tuple(map(np.copy, np.split(x, np.cumsum(lengths[::-1])[:-1])))

    return _with(backend, split_and_load=split_and_load)


def hanging(devices: int) -> Backend:
    """Wait for ever in a sum of three."""
    return _in_a_sum_of_three(devices, threading.Event().wait)


def crashing(devices: int) -> Backend:
    """End the process in a sum of three."""
    return _in_a_sum_of_three(devices, lambda: os.kill(os.getpid(), signal.SIGSEGV))


def _in_a_sum_of_three(devices: int, do: Callable[[], Any]) -> Backend:
    backend = sound(devices)
    sum_up = backend.allreduce
    return _with(backend, allreduce=lambda xs: do() if len(xs) == 3 else sum_up(xs))


def _with(backend: Backend, **verbs: Any) -> Backend:
    vars(backend).update(verbs)
    return backend


def ending_the_process(devices: int) -> Backend:  # noqa: ARG001
    """End as a framework may whose import fails."""
    os._exit(3)
