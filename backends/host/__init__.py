"""The host beneath the frameworks: its cores, its C libraries' threads and memory, its connections,
and a clock.

What a system does not tell or cannot do has an answer in each function.
"""

from backends.host.compiling_clock import clock_without_compiling, tell_compiling
from backends.host.connections import seconds_since_data_came
from backends.host.cores import (
    available_cores,
    check_workers,
    core_numbers,
    core_shares,
    cores_of,
    keep_to_cores,
    on_cores,
    processor_field,
    processor_flags,
    processor_name,
    threads_for,
)
from backends.host.freed_memory import keep_freed_memory, release_freed_memory
from backends.host.library_threads import (
    blas_libraries,
    limit_blas_threads,
    limit_openmp_threads,
    one_blas_thread,
    threads_named,
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
    "keep_to_cores",
    "limit_blas_threads",
    "limit_openmp_threads",
    "on_cores",
    "one_blas_thread",
    "processor_field",
    "processor_flags",
    "processor_name",
    "release_freed_memory",
    "seconds_since_data_came",
    "tell_compiling",
    "threads_for",
    "threads_named",
]
