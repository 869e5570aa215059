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
    """Load NumPy's backend with a defect in the place of each verb that is named.

    A worker's process can import this function.
    """
    backend = backends.load("numpy", devices, threads_per_device=1)
    for verb, defect in defects.items():
        sound_verb = getattr(backend, verb)
        setattr(backend, verb, partial(defect, sound_verb))
    return backend


def lose_failures(_: Verb, fn: Verb, *args: Array) -> Array:
    """Return the first argument in the place of a result whose computation failed."""
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
    """Return the value itself in the place of a copy in new memory."""
    return x if out is None else copy(x, device, out)


def write_over_what_is_read(
    copy: Verb, x: Array, device: Device, out: Array | None = None
) -> Array:
    """Copy array by array, though a later array may be read from memory that is written before."""
    if out is None:
        return copy(x, device)
    tree_map(np.copyto, out, x)
    return out


def divide_from_the_end(_: Verb, x: np.ndarray, devices: Sequence[Device]) -> tuple[Array, ...]:
    """Give the extra rows to the last devices."""
    fewest_rows, extra_rows = divmod(len(x), len(devices))
    lengths = [fewest_rows] * (len(devices) - extra_rows) + [fewest_rows + 1] * extra_rows
    ends = np.cumsum(lengths)
    return tuple(np.copy(shard) for shard in np.split(x, ends[:-1]))


def hang(sum_up: Verb, xs: Sequence[Array]) -> Any:
    """Wait for ever in a sum of three values."""
    if len(xs) == 3:
        threading.Event().wait()
    return sum_up(xs)


def crash(sum_up: Verb, xs: Sequence[Array]) -> Any:
    """End the process in a sum of three values."""
    if len(xs) == 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    return sum_up(xs)


def end_the_process(devices: int) -> Backend:  # noqa: ARG001
    """End the process, as a framework may whose import fails."""
    os._exit(3)
