"""MXNet beneath its Python: functions of ours on its engine's workers, and the memory that its
arrays lie in.

MXNet orders operators by the arrays that they read and write. `push` gives it a Python function
with these arrays, through the C interface that MXNet has for the collectives of other libraries
(`MXEnginePushSyncND` in its c_api.h); so arrays are summed in shards, when they are ready.

An array that is still to be computed may have no memory yet. MXNet's C interface gives an address
only after it has made the memory, which a worker may be about to do as well. So `check_apart` reads
fields of the array itself, which never change; their places are those of MXNet 1.9.1, its last
release. Importing this module imports mxnet.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, count
from math import prod
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call

from backends.arrays import sum_shard
from backends.errors import BackendError
from backends.host import limit_openmp_threads

MEETING_SECONDS = 10.0
"""How long a worker waits for the other workers of its context to start."""
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
read_word = ctypes.c_size_t.from_address
read_int = ctypes.c_int.from_address
DIMENSIONS = 2 * ctypes.sizeof(ctypes.c_size_t)
OFFSET = 8 * ctypes.sizeof(ctypes.c_size_t)
"""The bytes before an array's field that says where in its memory the array begins.

Its very first field says which memory that is.
"""


class _Context(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("index", ctypes.c_int32))


# A Python function that does nothing would wait 30 μs for the GIL each time; this function of C
# needs no GIL.
DO_NOTHING = ctypes.cast(ctypes.CDLL(None).abs, FUNCTION)

# NaiveEngine calls a function where it is pushed.
CALLS_AT_ONCE = os.environ.get("MXNET_ENGINE_TYPE") == "NaiveEngine"

_pending: dict[int, Callable[[], object]] = {}
_numbers = count(1)


# The engine calls functions of C only, so a Python function goes by a number, which its call
# removes. The engine would call a deleter after waits have ended, and a worker that is in Python
# while Python shuts down aborts the process.
def _call_pending(_: None, number: int) -> None:
    """Call the pending function of this number, and forget it."""
    # What is raised here would be dropped; see `push`.
    with suppress(KeyboardInterrupt):
        _pending[number]()
        del _pending[number]


CALL_PENDING = FUNCTION(_call_pending)


def sum_in_shards(terms: Sequence[tuple[Any, ...]]) -> None:
    """Queue the sums of arrays that have one term per device; each sum replaces all its terms.

    Every shard is written by a function that claims to read only: the engine knows arrays only as
    wholes, and would make one device wait for the other. The barriers keep all other operators away
    meanwhile. What fails travels from what an operator reads to what it writes: each function
    writes a mark, and the last barriers read the marks.
    """
    arrays = list(chain.from_iterable(terms))
    for x in arrays:
        push_barrier(x)
    # A mark and a shard for each device.
    marks = [mx.nd.empty((1,), ctx=x.ctx) for x in terms[0]]
    for shard, mark in enumerate(marks):
        push(partial(_sum_shard, terms, shard), mark.ctx, arrays, [mark])
    for x in arrays:
        push_barrier(x, marks)


def _sum_shard(terms: Sequence[tuple[Any, ...]], shard: int) -> None:
    """Sum one shard of each group of arrays, now, on the worker that calls this."""
    # The frameworks overflow without a warning.
    with np.errstate(all="ignore"):
        for group in terms:
            vectors = [memory_of(x) for x in group]
            sum_shard(vectors, shard, len(group))


def push(
    fn: Callable[[], object], context: Any, reads: Sequence[Any], writes: Sequence[Any] = ()
) -> None:
    """Queue a function on a context's worker, which calls it when the arrays it reads are computed.

    The function is not called if computing one of them failed. It must not raise, because no caller
    would get the exception, nor wait for MXNet, because its worker would wait for itself. The
    arrays that it writes must share no memory, or MXNet would wait for ever.
    """
    number = next(_numbers)
    _pending[number] = fn
    _push(CALL_PENDING, number, context, reads, writes)
    if CALLS_AT_ONCE and number in _pending:
        # The function was ended by Ctrl-C, and C passes on no exceptions.
        raise KeyboardInterrupt


def push_barrier(x: Any, reads: Sequence[Any] = ()) -> None:
    """Queue an operator that does nothing, ordered as if it wrote `x` and read other arrays.

    It takes one array to write, because MXNet would wait for ever for two that share memory.
    """
    # On cpu(0), whose worker has nothing to compute.
    _push(DO_NOTHING, None, mx.cpu(0), reads, [x])


def _push(function: Any, number: int | None, context: Any, reads: Any, writes: Any) -> None:
    """Queue a C function of a number on a context's worker, with the arrays it reads and writes."""
    check_call(
        _LIB.MXEnginePushSyncND(
            function,
            ctypes.c_void_p(number),
            None,
            ctypes.byref(_Context(context.device_typeid, context.device_id)),
            _handles(reads),
            len(reads),
            _handles(writes),
            len(writes),
            None,
            0,
            b"parallel_core",
        )
    )


def memory_of(x: Any) -> np.ndarray:
    """Return a view of an array's memory, as a NumPy vector.

    To be called in a function that `push` has ordered after the array's computation, and only for
    arrays of at most two dimensions: those of a convolution may lie in an order of MKL-DNN's own,
    and MXNet would wait, in the worker, for an operator that reorders them.
    """
    address = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(x.handle, ctypes.byref(address)))
    size = prod(x.shape)
    if size == 0:
        return np.empty(0, dtype=x.dtype)
    bytes_of_array = ctypes.c_char * (size * np.dtype(x.dtype).itemsize)
    content = bytes_of_array.from_address(address.value or 0)
    return np.frombuffer(content, dtype=x.dtype, count=size)


def _handles(arrays: Sequence[Any]) -> Any:
    """Return the handles of arrays as an array of C."""
    # An array of C has an item at least.
    array_of_handles = ctypes.c_void_p * max(1, len(arrays))
    return array_of_handles(*(x.handle.value for x in arrays))


def limit_threads(context: Any, workers: int, threads: int) -> None:
    """Limit OpenMP to `threads` threads in each worker of an idle CPU context."""
    meeting = threading.Barrier(workers)
    limit = partial(_limit_own_threads, threads, meeting)
    # An array for each worker: it is ready when that worker is done.
    marks = [mx.np.zeros((1,), ctx=context) for _ in range(workers)]
    for mark in marks:
        push(limit, context, [], [mark])
    for mark in marks:
        mark.wait_to_read()


def _limit_own_threads(threads: int, meeting: threading.Barrier) -> None:
    """Limit OpenMP's threads in the worker that calls this, and wait for the other workers."""
    limit_openmp_threads(threads)
    # So no worker takes two of these calls: each is held until all workers have taken one.
    with suppress(threading.BrokenBarrierError):
        meeting.wait(MEETING_SECONDS)


def check_apart(verb: str, consumed: Sequence[Any], others: Sequence[Any] = ()) -> None:
    """Raise BackendError if an array that a verb or op consumes overlaps another argument.

    `consumed` are the arrays that it consumes, and `others` those that it only reads.
    """
    # Every update asks: a call for each array would take as long again.
    memories = [read_word(x.handle.value).value for x in (*consumed, *others)]
    if len(set(memories)) == len(memories):
        return
    # Arrays in one memory may still be different parts of it.
    spans = [(*_span(x), True) for x in consumed]
    spans += [(*_span(x), False) for x in others]
    # In the order of memories and of places in them, a span overlaps an earlier one if it begins
    # before the furthest end so far. What is consumed must overlap no other span; what is only
    # read may overlap what is only read.
    furthest_end = furthest_end_of_consumed = (0, 0)
    for memory, start, stop, is_consumed in sorted(spans):
        if start == stop:
            continue
        end_to_respect = furthest_end if is_consumed else furthest_end_of_consumed
        if (memory, start) < end_to_respect:
            context = next(x.ctx for x in consumed if _span(x)[0] == memory)
            raise BackendError(
                f"mxnet on {context.device_type}:{context.device_id}: what {verb} consumes shares "
                "memory with itself or with another argument: pass a copy, made by copy_to without "
                "out="
            )
        furthest_end = max(furthest_end, (memory, stop))
        if is_consumed:
            furthest_end_of_consumed = max(furthest_end_of_consumed, (memory, stop))


def dimensions_of(x: Any) -> int:
    """Return the number of an array's dimensions, in a sixth of the time that `ndim` takes."""
    return read_int(x.handle.value + DIMENSIONS).value


def _span(x: Any) -> tuple[int, int, int]:
    """Return which memory an array lies in, and at which bytes of it the array begins and ends."""
    memory = read_word(x.handle.value).value
    start = read_word(x.handle.value + OFFSET).value
    return memory, start, start + x.size * np.dtype(x.dtype).itemsize


def _check_places() -> None:
    """Raise BackendError if this release of MXNet has other places for an array's fields."""
    four_floats = mx.nd.empty(4)
    memory, *_ = _span(four_floats)
    shapes = ((2,), (2, 1), (1,) * 5)
    has_dimensions = all(dimensions_of(mx.nd.empty(shape)) == len(shape) for shape in shapes)
    has_offset = _span(four_floats[2:]) == (memory, 8, 16)
    has_own_memory = _span(mx.nd.empty(4)) != (memory, 0, 16)
    if not (has_dimensions and has_offset and has_own_memory):
        raise BackendError(
            f"mxnet {mx.__version__} lays out its arrays differently: install mxnet 1.9.1"
        )


_check_places()
