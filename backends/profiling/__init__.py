"""What the frameworks' own profilers saw: how they are run, and their traces in one form for all frameworks."""

from backends.profiling.chrome_trace.slices import Trace, read_trace
from backends.profiling.marks import Mark, case_text
from backends.profiling.profilers import check_profiler, profile, understand
from backends.profiling.timeline import HOST_DEVICE, Kind, Span, Timeline, Window, queue_order

__all__ = [
    "HOST_DEVICE",
    "Kind",
    "Mark",
    "Span",
    "Timeline",
    "Trace",
    "Window",
    "case_text",
    "check_profiler",
    "profile",
    "queue_order",
    "read_trace",
    "understand",
]
