"""The host beneath the frameworks: its cores, its C libraries' threads and memory, and a clock."""

from backends.host.compiling_clock import clock_without_compiling, tell_compiling
from backends.host.cores import (
    available_cores,
    check_workers,
    core_numbers,
    core_shares,
    cores_of,
    on_cores,
    processor_field,
    processor_flags,
    threads_for,
)
from backends.host.freed_memory import keep_freed_memory, release_freed_memory
from backends.host.library_threads import (
    blas_libraries,
    limit_blas_threads,
    limit_openmp_threads,
    one_blas_thread,
)

__all__ = [
    "available_cores",
    "blas_libraries",
    "check_workers",
    "clock_without_compiling",
    "core_numbers",
    "core_shares",
    "cores_of",
    "keep_freed_memory",
    "limit_blas_threads",
    "limit_openmp_threads",
    "on_cores",
    "one_blas_thread",
    "processor_field",
    "processor_flags",
    "release_freed_memory",
    "tell_compiling",
    "threads_for",
]
