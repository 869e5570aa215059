"""Which kernels communicate: those of NCCL and of the libraries that took its names, and those that a user adds."""

import re
from dataclasses import replace

from backends.profiling.timeline import HOST_DEVICE, Timeline

__all__ = ["is_communication", "with_communication"]

LIBRARIES = re.compile(
    r"(?:void |\w+::|\(anonymous namespace\)::)*(?:_Z\w*?\d)?(?:nccl|rccl|msccl|hccl|oneccl)", re.IGNORECASE
)
"""NCCL, RCCL (whose kernels are called `nccl…`, too), MSCCL, and those for Gaudi and for Intel's GPUs."""


def is_communication(kernel: str) -> bool:
    """Return whether a kernel, by its full name, is one of a communication library; arguments do not make it one."""
    return LIBRARIES.match(kernel) is not None


def with_communication(timeline: Timeline, kernels: re.Pattern[str]) -> Timeline:
    """Return a timeline in which also those operations on a device communicate whose full name holds `kernels`.

    For libraries that `is_communication` does not know, such as DeepEP, NVSHMEM or a framework's own `multimem_`.
    """
    communicates = {span.operator: kernels.search(span.operator) is not None for span in timeline.spans}
    return replace(
        timeline,
        spans=tuple(
            span._replace(kind="exchange") if communicates[span.operator] and span.device != HOST_DEVICE else span
            for span in timeline.spans
        ),
    )
