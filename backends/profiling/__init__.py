"""The frameworks' own profilers: how they are run, and their traces in one form for all frameworks."""

from backends.profiling.chrome_trace.reading import read_trace
from backends.profiling.chrome_trace.slices import Trace
from backends.profiling.marks import Mark, case_text
from backends.profiling.profilers import check_profiler, run_profiler, timeline_from
from backends.profiling.timeline import (
    HOST_DEVICE,
    HostCalls,
    Span,
    SpanKind,
    Spans,
    Timeline,
    Window,
    in_seconds,
    queue_order,
)

__all__ = [
    "HOST_DEVICE",
    "HostCalls",
    "Mark",
    "Span",
    "SpanKind",
    "Spans",
    "Timeline",
    "Trace",
    "Window",
    "case_text",
    "check_profiler",
    "in_seconds",
    "queue_order",
    "read_trace",
    "run_profiler",
    "timeline_from",
]
