"""One defect each of NumPy's backend: what is called in the place of a verb, with its own function
first.
"""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import backends
from backends import Array, Backend, Device
from backends.arrays import tree_map

Verb = Callable[..., Any]


def load(devices: int, **defects: Verb) -> Backend:
    """Load NumPy's backend with defects, by the name of the verb: a worker's process can import
    them.
    """
    backend = backends.load("numpy", devices, threads_per_device=1)
    vars(backend).update(
        {name: partial(defect, getattr(backend, name)) for name, defect in defects.items()}
    )
    return backend


def lose_failures(_: Verb, fn: Verb, *args: Array) -> Array:
    """Go on with the first argument in the place of what failed."""
    try:
        return fn(*args)
    except Exception:
        return args[0] if args else None


def count_twice(sum_up: Verb, xs: Sequence[Array]) -> tuple[Array, ...]:
    """Add the first of several values twice."""
    first = tree_map(np.copy, xs[0])
    sums: tuple[Array, ...] = sum_up(xs)
    if len(xs) > 1:
        for total in sums:
            tree_map(lambda leaf, term: np.add(leaf, term, out=leaf), total, first)
    return sums


def copy_nothing(copy: Verb, x: Array, device: Device, out: Array | None = None) -> Array:
    """Return what was to be copied."""
    return x if out is None else copy(x, device, out)


def write_over_what_is_read(
    copy: Verb, x: Array, device: Device, out: Array | None = None
) -> Array:
    """Write a copy array by array, though a later one may be read from the memory of an earlier
    one.
    """
    if out is None:
        return copy(x, device)
    tree_map(np.copyto, out, x)
    return out


def divide_from_the_end(_: Verb, x: np.ndarray, devices: Sequence[Device]) -> tuple[Array, ...]:
    """Give the extra rows to the last devices."""
    lengths = [
        len(x) // len(devices) + (place < len(x) % len(devices)) for place in range(len(devices))
    ]
    return tuple(map(np.copy, np.split(x, np.cumsum(lengths[::-1])[:-1])))


def hang(sum_up: Verb, xs: Sequence[Array]) -> Any:
    """Wait for ever in a sum of three."""
    return threading.Event().wait() if len(xs) == 3 else sum_up(xs)


def crash(sum_up: Verb, xs: Sequence[Array]) -> Any:
    """End the process in a sum of three."""
    return os.kill(os.getpid(), signal.SIGSEGV) if len(xs) == 3 else sum_up(xs)


def end_the_process(devices: int) -> Backend:  # noqa: ARG001
    """End as a framework may whose import fails."""
    os._exit(3)
