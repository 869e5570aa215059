"""How many threads the libraries beneath a framework use.

A process may hold several copies of BLAS, each with a number of its own, and one OpenMP for several frameworks. OpenMP
reads OMP_NUM_THREADS when the first of them brings it along, and gives that number to every thread that starts later.
threadpoolctl comes with the installed package; a checkout may be run without it, and threads then stay as they are.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["limit_blas_threads", "limit_openmp_threads"]


def limit_blas_threads(framework: str, threads: int) -> None:
    """Set the number of threads of the BLAS that a framework's package brought along; of all, where it brought none."""
    libraries = [found for found in _libraries() if found.user_api == "blas"]
    # In the package's folder, or in one beside it that its wheel made: numpy.libs.
    folders = {framework, f"{framework}.libs"}
    for library in [found for found in libraries if folders & set(Path(found.filepath).parts)] or libraries:
        library.set_num_threads(threads)


def limit_openmp_threads(threads: int) -> None:
    """Set the number of threads that OpenMP uses for what the calling thread computes."""
    for library in _libraries():
        if library.user_api == "openmp":
            library.set_num_threads(threads)


def _libraries() -> list[Any]:
    if find_spec("threadpoolctl") is None:
        return []
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().lib_controllers)
