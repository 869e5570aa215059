"""Find a backend's profiler by entry point, and run it."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from backends.errors import BackendError
from backends.profiling.chrome_trace.slices import Trace
from backends.profiling.marks import Mark
from backends.profiling.timeline import Timeline
from backends.protocol import Backend
from backends.registry import registered

__all__ = ["GROUP", "Profiler", "check_profiler", "profile", "understand"]

GROUP = "parallel_core.profilers"


class Profiler(Protocol):
    """What an entry point of the group names: a module with these functions."""

    def check(self, backend: Backend) -> None:
        """Raise BackendError, in one line, where the profiler cannot be run on this backend's devices."""

    def profile(self, backend: Backend, path: Path) -> AbstractContextManager[Mark]:
        """Run the profiler, which writes its trace to `path` when the context ends; give what makes marks."""

    def is_from(self, trace: Trace) -> bool:
        """Tell whether this profiler wrote a trace. Neither this nor reading one may need the framework."""

    def timeline_of(self, trace: Trace) -> Timeline:
        """Read a trace that this profiler wrote."""


def check_profiler(backend: Backend) -> None:
    """Raise BackendError, in one line, where a backend has no profiler, or none for its devices."""
    _find(backend.name).check(backend)


def profile(backend: Backend, path: Path) -> AbstractContextManager[Mark]:
    """Run the framework's own profiler, which writes its trace to `path` when the context ends.

    Within it every verb of `backend` leaves a mark; the context gives what makes marks of the caller's own. One at a
    time: frameworks have one profiler in a process. Raises BackendError where there is none, or none for these devices.
    """
    check_profiler(backend)
    return _find(backend.name).profile(backend, path)


def understand(trace: Trace) -> Timeline:
    """Read a trace that one of the profilers wrote; raises ValueError, in one line, for another's."""
    names = sorted({entry.name for entry in registered(GROUP)})
    for profiler in map(_find, names):
        if profiler.is_from(trace):
            return profiler.timeline_of(trace)
    raise ValueError(f"none of the profilers known here wrote it (known for {', '.join(names)})")


def _find(name: str) -> Profiler:
    found = {entry.name: entry for entry in registered(GROUP)}
    if name not in found:
        raise BackendError(f"{name} has no profiler of its own (profilers are known for {', '.join(sorted(found))})")
    profiler: Profiler = found[name].load()
    return profiler
