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
from itertools import count
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
"""Where an array holds its first byte's place in its memory; at its very beginning it holds which
memory that is.
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
    arrays = [x for same in terms for x in same]
    for x in arrays:
        push_barrier(x)
    marks = [mx.nd.empty((1,), ctx=x.ctx) for x in terms[0]]
    for shard, mark in enumerate(marks):
        push(partial(_sum_shard, terms, shard), mark.ctx, arrays, [mark])
    for x in arrays:
        push_barrier(x, marks)


def _sum_shard(terms: Sequence[tuple[Any, ...]], shard: int) -> None:
    # The frameworks overflow without a warning.
    with np.errstate(all="ignore"):
        for same in terms:
            sum_shard([memory_of(x) for x in same], shard, len(same))


def push(
    fn: Callable[[], object], context: Any, reads: Sequence[Any], writes: Sequence[Any] = ()
) -> None:
    """Queue a function on a context's worker, to be called when all that it reads has been
    computed, if none failed.

    It must not raise, because no caller would get the exception, nor wait for MXNet: its worker
    would wait for itself. What it writes must share no memory, for MXNet would wait forever.
    """
    number = next(_numbers)
    _pending[number] = fn
    _push(CALL_PENDING, number, context, reads, writes)
    if CALLS_AT_ONCE and number in _pending:
        # The function was ended by Ctrl-C, and C passes on no exceptions.
        raise KeyboardInterrupt


def push_barrier(x: Any, reads: Sequence[Any] = ()) -> None:
    """Queue an operator that does nothing but is ordered as if it wrote an array, and read other
    arrays.

    One array at a time: MXNet would wait forever for two that share their memory.
    """
    # On cpu(0), whose worker has nothing to compute.
    _push(DO_NOTHING, None, mx.cpu(0), reads, [x])


def _push(function: Any, number: int | None, context: Any, reads: Any, writes: Any) -> None:
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
    """View an array's memory as a NumPy vector.

    For use in a function that `push` has ordered after its computation. Only for arrays of at most
    two dimensions: those of a convolution may lie in an order of MKL-DNN's own, and MXNet would
    wait, in the worker, for an operator that reorders them.
    """
    address = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(x.handle, ctypes.byref(address)))
    size = prod(x.shape)
    content = (
        (ctypes.c_char * (size * np.dtype(x.dtype).itemsize)).from_address(address.value or 0)
        if size
        else b""
    )
    return np.frombuffer(content, dtype=x.dtype, count=size)


def _handles(arrays: Sequence[Any]) -> Any:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(x.handle.value for x in arrays))


def limit_threads(context: Any, workers: int, threads: int) -> None:
    """Give each worker of an idle CPU context so many threads of OpenMP."""
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


def check_apart(verb: str, consumed: Sequence[Any], others: Sequence[Any] = ()) -> None:
    """Raise BackendError if arrays that a verb or op consumes overlap each other, or other
    arguments.
    """
    # Every update asks: a call for each array would take as long again.
    memories = [read_word(x.handle.value).value for x in (*consumed, *others)]
    if len(set(memories)) == len(memories):
        return
    # Arrays in one memory may still be different parts of it.
    spans = [(*_span(x), True) for x in consumed] + [(*_span(x), False) for x in others]
    end = end_of_consumed = (0, 0)
    for memory, start, stop, is_consumed in sorted(span for span in spans if span[1] < span[2]):
        if (memory, start) < (end if is_consumed else end_of_consumed):
            context = next(x.ctx for x in consumed if _span(x)[0] == memory)
            raise BackendError(
                f"mxnet on {context.device_type}:{context.device_id}: what {verb} consumes shares "
                "memory with itself "
                f"or with another argument: pass a copy, made by copy_to without out="
            )
        end = max(end, (memory, stop))
        if is_consumed:
            end_of_consumed = max(end_of_consumed, (memory, stop))


def dimensions_of(x: Any) -> int:
    """Return the number of an array's dimensions, in a sixth of the time that `ndim` takes."""
    return read_int(x.handle.value + DIMENSIONS).value


def _span(x: Any) -> tuple[int, int, int]:
    memory, start = (read_word(x.handle.value + offset).value for offset in (0, OFFSET))
    return memory, start, start + x.size * np.dtype(x.dtype).itemsize


def _check_places() -> None:
    whole = mx.nd.empty(4)
    memory, *_ = _span(whole)
    dimensions = [dimensions_of(mx.nd.empty(shape)) for shape in ((2,), (2, 1), (1,) * 5)]
    if (
        dimensions != [1, 2, 5]
        or _span(whole[2:]) != (memory, 8, 16)
        or _span(mx.nd.empty(4)) == (memory, 0, 16)
    ):
        raise BackendError(
            f"mxnet {mx.__version__} lays out its arrays differently: install mxnet 1.9.1"
        )


_check_places()
