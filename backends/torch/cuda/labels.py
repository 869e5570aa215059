"""Class labels on GPUs, checked to be labels before a kernel reads them.

A kernel that meets a label of no class ends CUDA for the whole process: every later call fails. So
whoever issues such a kernel asks first. What the caller loads is measured while it is still on the
host, which costs the GPU nothing; of other integers the issuing thread has to wait for their
bounds.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import nan
from typing import Any

KEPT = "_parallel_core_bounds"

_here = threading.local()


@contextmanager
def recording_here() -> Iterator[None]:
    """Within a `with` block, what the calling thread issues is recorded as a graph: it is computed
    later, if at all.
    """
    _here.records = True
    try:
        yield
    finally:
        _here.records = False


def is_recorded_here() -> bool:
    """Return whether the calling thread records a graph."""
    return getattr(_here, "records", False)


def keep_bounds(on_gpu: Any, on_host: Any) -> None:
    """Keep with a tensor on a GPU the least and the greatest number of the integers that it is a
    copy of.
    """
    if on_host.numel() and not (on_host.is_floating_point() or on_host.is_complex()):
        setattr(on_gpu, KEPT, (on_gpu._version, *_bounds(on_host)))


def check_labels(labels: Any, classes: int) -> None:
    """Raise IndexError if a label is of no class; blocks until they are computed if nobody has kept
    their bounds.
    """
    if not labels.numel():
        return
    version, low, high = getattr(labels, KEPT, (None, 0, 0))
    # What has been written to since is no longer what was loaded.
    if version != labels._version:
        low, high = _bounds(labels)
    if not 0 <= low <= high < classes:
        raise IndexError(
            f"labels are from 0 to {classes - 1}, and there is {high if high >= classes else low}"
        )


def _bounds(x: Any) -> tuple[int, int]:
    # PyTorch compares no integers of uint16, uint32 and uint64.
    low, high = (x if x.dtype.is_signed or x.element_size() == 1 else x.long()).aminmax()
    return int(low), int(high)


def loss_of_labels(labels: Any, classes: int, dtype: Any) -> tuple[Any, Any]:
    """Return labels that are all of a class, and 0 if nothing had to be changed for that, or else
    NaN.

    For a graph that is being recorded: nothing can be asked of the GPU then, and nothing raised
    when it is replayed.
    """
    valid = (labels >= 0) & (labels < classes)
    return labels.where(valid, 0), valid.new_zeros((), dtype=dtype).masked_fill(~valid.all(), nan)
