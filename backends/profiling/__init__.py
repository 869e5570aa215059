"""What the frameworks' own profilers saw: how they are run, and their traces in one form for all frameworks."""

from backends.profiling.timeline import HOST_DEVICE, Kind, Span, Timeline, Window

__all__ = ["HOST_DEVICE", "Kind", "Span", "Timeline", "Window"]
