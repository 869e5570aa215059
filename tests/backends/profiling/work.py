"""Small work under a profiler, for tests of what it records, and what must be true of every
timeline.
"""

from collections.abc import Callable
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import numpy as np

from backends import Array, Backend, Device
from backends.profiling import Span, Timeline, case_text, read_trace, run_profiler, timeline_from

COUNT = 5


def see(backend: Backend, path: Path, **cases: Callable[[], object]) -> Timeline:
    """Run cases under the profiler and read what it wrote."""
    with run_profiler(backend, path) as mark:
        for name, case in cases.items():
            with mark(case_text(name)):
                kept = case()
                backend.waitall()
                del kept
    return timeline_from(read_trace(path))


def matrix(backend: Backend, device: Device, size: int = 200) -> Array:
    return backend.asarray(np.ones((size, size), dtype=np.float32), device)


def products(backend: Backend, x: Array) -> list[Array]:
    return [backend.launch(backend.ops.matmul, x, x) for _ in range(COUNT)]


def named(timeline: Timeline, name: str) -> list[Span]:
    return [span for span in timeline.spans if span.name == name]


def overlapping(timeline: Timeline) -> list[tuple[Span, Span]]:
    """List the neighbours on a queue that run at the same time: there are none, for viewers cannot
    show them.
    """
    in_order = sorted(timeline.spans, key=attrgetter("device", "queue", "start", "end"))
    return [
        (one, other)
        for one, other in pairwise(in_order)
        if (one.device, one.queue) == (other.device, other.queue) and other.start < one.end
    ]
