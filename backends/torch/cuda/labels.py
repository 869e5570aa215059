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
    """Say that the calling thread records a graph within a `with` block: it computes nothing."""
    _here.records = True
    try:
        yield
    finally:
        _here.records = False


def is_recorded_here() -> bool:
    """Return whether the calling thread records a graph."""
    return getattr(_here, "records", False)


def keep_bounds(on_gpu: Any, on_host: Any) -> None:
    """Keep the least and the greatest integer of a tensor with its copy on a GPU.

    Other tensors have no bounds.
    """
    has_integers = not on_host.is_floating_point() and not on_host.is_complex()
    if has_integers and on_host.numel():
        setattr(on_gpu, KEPT, (on_gpu._version, *_bounds(on_host)))


def check_labels(labels: Any, classes: int) -> None:
    """Raise IndexError if a label is of no class.

    Blocks until the labels are computed, unless their bounds were kept when they were loaded.
    """
    if not labels.numel():
        return
    version, lowest, highest = getattr(labels, KEPT, (None, 0, 0))
    # A tensor that has been written to since has other numbers than were loaded.
    if version != labels._version:
        lowest, highest = _bounds(labels)
    if lowest < 0 or highest >= classes:
        wrong_label = highest if highest >= classes else lowest
        raise IndexError(f"labels are from 0 to {classes - 1}, and there is {wrong_label}")


def _bounds(x: Any) -> tuple[int, int]:
    """Return the least and the greatest of a tensor's integers; blocks until they are computed."""
    # PyTorch compares no integers of uint16, uint32 and uint64.
    is_comparable = x.dtype.is_signed or x.element_size() == 1
    lowest, highest = (x if is_comparable else x.long()).aminmax()
    return int(lowest), int(highest)


def loss_of_labels(labels: Any, classes: int, dtype: Any) -> tuple[Any, Any]:
    """Return labels that are all of a class, and a number of a dtype: 0, or NaN if one was not.

    For a graph that is being recorded, when nothing can be asked of the GPU; and nothing can be
    raised when it is replayed.
    """
    is_valid = (labels >= 0) & (labels < classes)
    valid_labels = labels.where(is_valid, 0)
    zero = is_valid.new_zeros((), dtype=dtype)
    return valid_labels, zero.masked_fill(~is_valid.all(), nan)
