"""The book's experiments. Each is a function of a backend that returns a frozen result; none names a framework."""

from collections.abc import Mapping
from types import MappingProxyType

from parallel_core.experiments.asynchronous import run as run_async
from parallel_core.experiments.data_parallel import run as run_data_parallel
from parallel_core.experiments.overlap import run as run_overlap
from parallel_core.experiments.parallel import run as run_parallel

__all__ = ["CHAPTERS", "run_async", "run_data_parallel", "run_overlap", "run_parallel"]

CHAPTERS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "Asynchronous Computation": {
            "async": "when does control return, what does waiting wait for, and what does it cost?",
        },
        "Automatic Parallelism": {
            "parallel": "do two devices work at the same time when nobody tells them to?",
            "overlap": "can results travel to another device while the next ones are computed?",
        },
        "Training on Multiple GPUs": {
            "data-parallel": "LeNet from scratch, each batch divided over the devices",
        },
    }
)
"""The experiments by the book's chapter, each with its question."""
