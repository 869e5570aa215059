"""Small work under a profiler, for tests of what it records, and what must be true of every
timeline.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import numpy as np

from backends import Array, Backend, Device
from backends.profiling import Span, Timeline, case_text, read_trace, run_profiler, timeline_from

COUNT = 5


def see(backend: Backend, path: Path, **cases: Callable[[], object]) -> Timeline:
    """Run cases under the profiler, each to its end, and read the trace that it wrote."""
    with run_profiler(backend, path) as mark:
        for name, case in cases.items():
            with mark(case_text(name)):
                results = case()
                backend.waitall()
                del results
    return timeline_from(read_trace(path))


def matrix(backend: Backend, device: Device, size: int = 200) -> Array:
    """Load a square matrix of ones."""
    return backend.asarray(np.ones((size, size), dtype=np.float32), device)


def products(backend: Backend, x: Array) -> list[Array]:
    """Launch COUNT multiplications of a matrix by itself."""
    return [backend.launch(backend.ops.matmul, x, x) for _ in range(COUNT)]


def named(timeline: Timeline, name: str) -> list[Span]:
    """List the spans with a name."""
    return [span for span in timeline.spans if span.name == name]


def queues_of(spans: Iterable[Span]) -> set[tuple[str, str]]:
    """Return the queues where some spans ran, each after its device."""
    return {(span.device, span.queue) for span in spans}


def overlapping(timeline: Timeline) -> list[tuple[Span, Span]]:
    """List the neighbours on a queue that run at the same time: there are none, for viewers cannot
    show them.
    """
    in_order = sorted(timeline.spans, key=attrgetter("device", "queue", "start", "end"))
    overlaps = []
    for span, next_span in pairwise(in_order):
        is_on_one_queue = (span.device, span.queue) == (next_span.device, next_span.queue)
        if is_on_one_queue and next_span.start < span.end:
            overlaps.append((span, next_span))
    return overlaps
