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
    """Return the value of OPENBLAS_CORETYPE under which MXNet is to be imported; None: unset.

    A value that the user has set stays. Otherwise the variable is only set if OpenBLAS would take
    slower kernels than the processor allows, and never if `as_shipped`.
    """
    value_of_user = os.environ.get(CORE_TYPE)
    if value_of_user is not None or as_shipped:
        return value_of_user
    own_choice = _own_core_type()
    if own_choice is None:
        return None
    return better_core_type(own_choice, processor_flags())


@cache
def _own_core_type() -> str | None:
    """Return the core type that the OpenBLAS in MXNet's package takes by itself.

    None if the package has no OpenBLAS, or if that does not say. A separate process asks it, within
    30 ms: in this process the library would then be loaded, and could not be set any more.
    """
    package = find_spec("mxnet")
    if package is None:
        return None
    libraries: list[Path] = []
    for folder in package.submodule_search_locations or ():
        libraries += sorted(Path(folder).glob("libopenblas*.so*"))
    if not libraries:
        return None
    # Nothing of Python's but ctypes is needed.
    command = [sys.executable, "-I", "-S", "-c", ASK, str(libraries[0])]
    try:
        completed = subprocess.run(
            command, capture_output=True, text=True, timeout=MAX_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return completed.stdout.strip()


def libraries(threads: int) -> Sequence[Kernels]:
    """List the BLAS in MXNet's package, and oneDNN if MXNet was built with it."""
    import mxnet as mx

    kernels = blas("mxnet", threads)
    has_onednn = mx.runtime.Features().is_enabled("MKLDNN")
    if has_onednn:
        version = ONEDNN_VERSIONS.get(mx.__version__)
        kernels.append(onednn(version, threads))
    return kernels


@contextmanager
def one_thread(backend: Backend, x: Array) -> Iterator[None]:
    """Limit OpenMP to one thread in each worker of the device of `x` within a `with` block.

    OpenBLAS and oneDNN take as many threads as OpenMP has.
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
