"""Keep freed memory in the process, so that a repetition does not pay for pages that the one before gave back.

glibc gives back the end of a heap whenever enough of it is free, large blocks at once, and every 64 MiB that a thread
other than the first has filled and emptied. Whether 50 results of a megabyte come from kept pages or from new ones,
which the kernel must clear first, then depends on what lay behind them: the same products took 113 or 139 ms, by
chance, on the machine where this was found.

Each thread keeps a heap of its own. In a heap for all of them a device is now and then given what another device has
just freed, which is in the other core's cache: training took 10 % longer in every second process.
"""

import ctypes

__all__ = ["keep_freed_memory"]

# malloc.h
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
NEVER = 2**31 - 1
LARGEST_HEAP = 2**26
"""Bytes of a heap that is not the first thread's: one with less room than the padding behind it is not given back."""


def keep_freed_memory() -> None:
    """Tell malloc to keep what is freed; glibc only, and of threads other than the first only blocks below 64 MiB."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, NEVER)
        mallopt(M_TOP_PAD, LARGEST_HEAP)
