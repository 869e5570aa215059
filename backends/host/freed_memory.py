"""Memory that C's malloc keeps when it is freed, or gives back to the system; glibc only."""

import ctypes

# malloc.h
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
NEVER = 2**31 - 1
LARGEST_HEAP = 2**26
"""The bytes of the heap of a thread other than the first.

A heap with less room behind it than the padding is kept.
"""


def keep_freed_memory() -> None:
    """Make malloc keep freed memory instead of giving it back to the system.

    Threads other than the first keep only blocks below 64 MiB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, NEVER)
        mallopt(M_TOP_PAD, LARGEST_HEAP)


def release_freed_memory() -> None:
    """Give freed memory that malloc keeps back to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
