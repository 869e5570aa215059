"""Keep freed memory in the process, so that a repetition does not pay for pages that the one before gave back.

glibc returns the end of a thread's heap to the system whenever enough of it is free, large blocks at once, and every
64 MiB that a thread other than the first has filled and emptied. Whether 50 results of a megabyte come from kept pages
or from new ones, which the kernel must clear first, then depends on what lay behind them: the same products took 113
or 139 ms, by chance, on the machine where this was found.
"""

import ctypes

__all__ = ["keep_freed_memory"]

# malloc.h
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8
NEVER = 2**31 - 1


def keep_freed_memory() -> None:
    """Tell malloc to take all blocks from one heap for all threads, and to keep there what is freed; glibc only."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, NEVER)
        mallopt(M_ARENA_MAX, 1)
