"""The frameworks' own profilers: how they are run, and their traces in one form for all
frameworks.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from backends.errors import BackendError
from backends.profiling.chrome_trace import read_trace
from backends.profiling.doubts import Doubt
from backends.profiling.marks import Mark, case_text
from backends.profiling.readers import ChromeReader, TraceFile, timeline_from, timeline_in
from backends.profiling.slices import Trace
from backends.profiling.timeline import (
    HOST_DEVICE,
    Span,
    SpanKind,
    Spans,
    Timeline,
    Window,
    in_seconds,
    queue_order,
)
from backends.protocol import Backend
from backends.registry import offered

__all__ = [
    "HOST_DEVICE",
    "ChromeReader",
    "Doubt",
    "Profiler",
    "Span",
    "SpanKind",
    "Spans",
    "Timeline",
    "Trace",
    "TraceFile",
    "Window",
    "case_text",
    "check_profiler",
    "in_seconds",
    "queue_order",
    "read_trace",
    "run_profiler",
    "timeline_from",
    "timeline_in",
]


class Profiler(Protocol):
    """The functions of a profiler's module."""

    def check(self, backend: Backend) -> None:
        """Raise BackendError, in one line, if the profiler cannot be run on this backend's
        devices.
        """

    def profile(self, backend: Backend, path: Path) -> AbstractContextManager[Mark]:
        """Run the profiler, which writes its trace to `path` when the context ends; the context
        gives a `Mark`.
        """


def check_profiler(backend: Backend) -> None:
    """Raise BackendError, in one line, if a backend has no profiler, or none for its devices."""
    _load(backend.name).check(backend)


def run_profiler(backend: Backend, path: Path) -> AbstractContextManager[Mark]:
    """Run the framework's own profiler, which writes its trace to `path` when the context ends.

    Within it every verb of `backend` leaves a mark; the context gives a `Mark` for marks of the
    caller's own. One at a time: frameworks have one profiler in a process. Raises BackendError if
    there is none, or none for these devices.
    """
    check_profiler(backend)
    return _load(backend.name).profile(backend, path)


def _load(name: str) -> Profiler:
    """Import a backend's profiler; raises BackendError if there is none."""
    profilers = offered("profiler")
    if name not in profilers:
        raise BackendError(
            f"{name} has no profiler (profilers are known for {', '.join(profilers)})"
        )
    return profilers[name]()
