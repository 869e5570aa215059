"""The host beneath the frameworks: its cores, its C libraries' threads and memory, and a clock.

A process may have loaded several copies of BLAS, each with a separate number of threads, and one
OpenMP for several frameworks. OpenMP reads OMP_NUM_THREADS when the first of them loads it, and
gives that number to every thread that starts later. threadpoolctl comes with the installed package;
a checkout may run without it, and the numbers then stay as they are.
"""

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

from backends.devices import Device
from backends.errors import BackendError

# malloc.h
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
NEVER = 2**31 - 1
LARGEST_HEAP = 2**26
"""Bytes of the heap of a thread other than the first; a heap with less room behind it than the
padding is kept.
"""

_compiling = [0.0]


def processor_flags() -> frozenset[str]:
    """Return what the processor can do, as Linux names it (`avx2`); empty if the system does not
    say.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(
        next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    )


def core_numbers() -> list[int]:
    """List the cores this process may use; empty if the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def available_cores() -> int:
    """Count the cores this process may use (a container or `taskset` may allow fewer than the
    machine has).
    """
    return len(core_numbers()) or os.cpu_count() or 1


def threads_for(devices: int, workers: int) -> int:
    """Divide this process's cores evenly among the workers of so many CPU devices."""
    return max(1, available_cores() // (max(1, devices) * workers))


def check_workers(framework: str, engine: str, workers: int) -> None:
    """Raise BackendError for several workers per device on the sync engine, which has no queue for
    them.
    """
    if workers > 1 and engine == "sync":
        raise BackendError(
            f"{framework}'s sync engine has no queue for {workers} workers to serve: use --workers "
            "1"
        )


def cores_of(devices: Sequence[Device], threads: int | None) -> list[set[int]]:
    """Give each CPU device `threads` separate cores (all cores, for None), as `core_shares` does,
    and GPUs none.
    """
    on_cpus = sum(device.kind == "cpu" for device in devices)
    shares = iter(
        [set(core_numbers())] * on_cpus if threads is None else core_shares(on_cpus, threads)
    )
    return (
        [next(shares) if device.kind == "cpu" else set() for device in devices] if on_cpus else []
    )


def core_shares(devices: int, threads: int) -> list[set[int]]:
    """Give each of `devices` its own `threads` cores, or all cores to each if there are too few or
    none can be chosen.

    A worker that the system moves from core to core, or two on one core, would be measured as a
    slower device.
    """
    cores = core_numbers()
    if devices * threads > len(cores):
        return [set(cores)] * devices
    return [set(cores[first : first + threads]) for first in range(0, devices * threads, threads)]


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Keep the calling thread, and threads that it starts meanwhile, to some cores; to any if
    `cores` is empty.
    """
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def limit_blas_threads(framework: str, threads: int) -> None:
    """Set the number of threads of the BLAS in a framework's package, or of every BLAS if the
    package contains none.
    """
    for library in blas_libraries(framework) or _libraries("blas"):
        library.set_num_threads(threads)


@contextmanager
def one_blas_thread(framework: str) -> Iterator[None]:
    """Within a `with` block, let the BLAS in a framework's package compute with one thread, whoever
    calls it.
    """
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
    return [
        library for library in _libraries("blas") if folders & set(Path(library.filepath).parts)
    ]


def limit_openmp_threads(threads: int) -> None:
    """Set the number of threads that OpenMP uses for what the calling thread computes."""
    for library in _libraries("openmp"):
        library.set_num_threads(threads)


def _libraries(interface: str) -> list[Any]:
    if find_spec("threadpoolctl") is None:
        return []
    from threadpoolctl import ThreadpoolController

    return [
        library
        for library in ThreadpoolController().lib_controllers
        if library.user_api == interface
    ]


def keep_freed_memory() -> None:
    """Make malloc keep what is freed; glibc only, and of threads other than the first only blocks
    below 64 MiB.
    """
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


def tell_compiling(seconds: float) -> None:
    """Report that a first launch compiled for so many seconds, on the thread that called it."""
    _compiling[0] += seconds


def clock_without_compiling() -> float:
    """Return the seconds of `perf_counter` that were not spent on compiling: for budgets, not for
    timings.

    Only frameworks that compile functions when they are first launched report it.
    """
    return perf_counter() - _compiling[0]
