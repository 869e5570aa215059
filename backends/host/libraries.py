"""Settings of the C libraries beneath the frameworks: how many threads to use, and what to do with freed memory.

A process may have loaded several copies of BLAS, each with a separate number, and one OpenMP for several frameworks.
OpenMP reads OMP_NUM_THREADS when the first of them loads it, and gives that number to every thread that starts later.
threadpoolctl comes with the installed package; a checkout may run without it, and the numbers then stay as they are.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# malloc.h
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
NEVER = 2**31 - 1
LARGEST_HEAP = 2**26
"""Bytes of the heap of a thread other than the first; a heap with less room behind it than the padding is kept."""


def limit_blas_threads(framework: str, threads: int) -> None:
    """Set the number of threads of the BLAS in a framework's package, or of every BLAS if the package contains none."""
    for library in blas_libraries(framework) or _libraries("blas"):
        library.set_num_threads(threads)


@contextmanager
def one_blas_thread(framework: str) -> Iterator[None]:
    """Within a `with` block, let the BLAS in a framework's package compute with one thread, whoever calls it."""
    before = [(library, library.get_num_threads()) for library in blas_libraries(framework)]
    for library, _ in before:
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, threads in before:
            library.set_num_threads(threads)


def blas_libraries(framework: str) -> list[Any]:
    """List threadpoolctl's controllers of every BLAS in a framework's package that is loaded."""
    # In the package's folder, or in the one beside it that wheels install: numpy.libs.
    folders = {framework, f"{framework}.libs"}
    return [library for library in _libraries("blas") if folders & set(Path(library.filepath).parts)]


def limit_openmp_threads(threads: int) -> None:
    """Set the number of threads that OpenMP uses for what the calling thread computes."""
    for library in _libraries("openmp"):
        library.set_num_threads(threads)


def _libraries(interface: str) -> list[Any]:
    if find_spec("threadpoolctl") is None:
        return []
    from threadpoolctl import ThreadpoolController

    return [library for library in ThreadpoolController().lib_controllers if library.user_api == interface]


def keep_freed_memory() -> None:
    """Make malloc keep what is freed; glibc only, and of threads other than the first only blocks below 64 MiB."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, NEVER)
        mallopt(M_TOP_PAD, LARGEST_HEAP)


def release_freed_memory() -> None:
    """Give back to the system what malloc keeps; glibc only."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
