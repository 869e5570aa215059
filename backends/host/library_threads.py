"""Threads of the C libraries below frameworks: BLAS and OpenMP.

A process may have loaded several copies of BLAS, each with a separate number of threads, and one
OpenMP for several frameworks. OpenMP reads OMP_NUM_THREADS when the first of them loads it, and
gives that number to every thread that starts later. threadpoolctl comes with the installed package;
a checkout may run without it, and the numbers then stay as they are.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TASKS = Path("/proc/self/task")


def limit_blas_threads(framework: str, threads: int) -> None:
    """Set the number of threads of the BLAS in a framework's package, or of every BLAS without one.

    A package may contain several.
    """
    for library in blas_libraries(framework) or _libraries("blas"):
        library.set_num_threads(threads)


@contextmanager
def one_blas_thread(framework: str) -> Iterator[None]:
    """Let the BLAS in a framework's package compute with one thread within a `with` block.

    That holds for every thread that calls the BLAS.
    """
    libraries = blas_libraries(framework)
    threads_before = [library.get_num_threads() for library in libraries]
    for library in libraries:
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, threads in zip(libraries, threads_before, strict=True):
            library.set_num_threads(threads)


def blas_libraries(framework: str) -> list[Any]:
    """List threadpoolctl's controllers of every BLAS in a framework's package that is loaded."""
    # In the package's folder, or in the one beside it that wheels install: numpy.libs.
    folders = {framework, f"{framework}.libs"}

    return [
        library
        for library in _libraries("blas")
        if not folders.isdisjoint(Path(library.filepath).parts)
    ]


def limit_openmp_threads(threads: int) -> None:
    """Set the number of threads that OpenMP uses for what the calling thread computes."""
    for library in _libraries("openmp"):
        library.set_num_threads(threads)


def threads_named(name: str) -> list[int]:
    """List this process's threads of a name, by the numbers that Linux gives them.

    Empty on other systems.
    """
    threads = []
    for file in TASKS.glob("*/comm"):
        # A thread may have ended since the folder was read.
        with suppress(OSError):
            if file.read_text().strip() == name:
                threads.append(int(file.parent.name))
    return threads


def _libraries(interface: str) -> list[Any]:
    """List threadpoolctl's controllers of the loaded libraries of an interface: BLAS or OpenMP."""
    if find_spec("threadpoolctl") is None:
        return []
    from threadpoolctl import ThreadpoolController

    libraries = ThreadpoolController().lib_controllers
    return [library for library in libraries if library.user_api == interface]
