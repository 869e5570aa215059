"""Which kernels communicate: those of NCCL and of the libraries that took its names, and those that a user adds."""

import re
from dataclasses import replace

import numpy as np

from backends.profiling.spans import KINDS
from backends.profiling.timeline import Timeline

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
    spans = timeline.columns
    named = np.array([kernels.search(operator) is not None for operator in spans.operators], bool)[spans.operator_of]
    communicates = named & (spans.kinds != KINDS.index("host"))
    return replace(timeline, spans=replace(spans, kinds=np.where(communicates, KINDS.index("exchange"), spans.kinds)))
