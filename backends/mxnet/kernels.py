"""MXNet's kernels: its wheel's OpenBLAS multiplies matrices, and oneDNN does the rest.

OpenBLAS 0.3.13, of 2020, knows processors by their model. For those that it does not know it takes
old kernels: Prescott's of 2004 on Intel's and Barcelona's of 2007 on AMD's, at a third to half of
the speed. So it is asked before MXNet loads it, and set to what the processor can do.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

from backends.host import limit_openmp_threads, processor_flags
from backends.installation.kernels import CORE_TYPE, Kernels, better_core_type, blas, onednn
from backends.protocol import Array, Backend

ONEDNN_VERSIONS = {"1.9.1": "2.4.4"}
"""What MXNet's sources of a version hold: the library does not say."""

ASK = """
import ctypes, sys
name = ctypes.CDLL(sys.argv[1]).openblas_get_corename
name.restype = ctypes.c_char_p
print(name().decode())
"""
MAX_SECONDS = 10.0


def core_type_to_set(as_shipped: bool) -> str | None:
    """Return the value that the variable of OpenBLAS's core type must have when MXNet is imported.

    None for unset. It is the user's own if there is one, and else only set where the library would
    take kernels below what the processor can do, unless `as_shipped` says to leave it alone.
    """
    own = os.environ.get(CORE_TYPE)
    if own is not None or as_shipped:
        return own
    taken = _core_type_taken()
    return None if taken is None else better_core_type(taken, processor_flags())


@cache
def _core_type_taken() -> str | None:
    """Ask the OpenBLAS in MXNet's package for the core type that it takes by itself.

    None if there is none to ask. In a separate process, which takes 30 ms: here it would then be
    loaded, and stay with its choice.
    """
    package = find_spec("mxnet")
    folders = [Path(folder) for folder in (package and package.submodule_search_locations) or ()]
    library = next(
        (path for folder in folders for path in sorted(folder.glob("libopenblas*.so*"))), None
    )
    if library is None:
        return None
    # Nothing of Python's but ctypes is needed.
    command = [sys.executable, "-I", "-S", "-c", ASK, str(library)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MAX_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def libraries(threads: int) -> Sequence[Kernels]:
    """List the BLAS in MXNet's package, and oneDNN if it was built with it."""
    import mxnet as mx

    with_onednn = mx.runtime.Features().is_enabled("MKLDNN")
    return [
        *blas("mxnet", threads),
        *([onednn(ONEDNN_VERSIONS.get(mx.__version__), threads)] if with_onednn else []),
    ]


@contextmanager
def one_thread(backend: Backend, x: Array) -> Iterator[None]:
    """Limit OpenMP, whom OpenBLAS and oneDNN ask for the number of threads, in each worker of the
    device of `x`.
    """
    limit: Callable[[int], None] = limit_openmp_threads
    if backend.engine == "async":
        from backends.mxnet.engine import limit_threads

        limit = partial(limit_threads, x.ctx, backend.workers_per_device)
    limit(1)
    try:
        yield
    finally:
        limit(backend.threads_per_device)
