"""Readers of traces: each recognises what one profiler writes, and gives its timeline.

A reader has an entry point in the group `parallel_core.trace_readers`, in this package or in
another one. Those that read a format of their own are asked before those that read Chrome's, for
which the file is then read once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from backends.profiling.chrome_trace import read_trace
from backends.profiling.slices import Trace
from backends.profiling.timeline import Timeline
from backends.registry import trace_readers

MOST_QUEUES = 10_000
"""Of processes and threads, and of a timeline's queues: what has more is no program's recording."""


@dataclass
class TraceFile:
    """A file that some profiler wrote, and what it is as a trace in Chrome's format."""

    path: Path
    given: Trace | None = None
    """The trace, if it was read already."""
    problem: str = ""
    """Why it is no trace in Chrome's format, once that was asked."""

    @cached_property
    def trace(self) -> Trace | None:
        """The trace in Chrome's format, plain or compressed by gzip; None if it is none.

        Raises OSError if the file cannot be read.
        """
        if self.given is not None:
            return self.given
        try:
            return read_trace(self.path)
        except ValueError as error:
            self.problem = str(error)
            return None


class TraceReader(Protocol):
    """What an entry point names: an object, or a module with these functions."""

    def recognises(self, file: TraceFile) -> bool:
        """Return whether it reads this file; its name or its first bytes should tell."""

    def timeline_of(self, file: TraceFile) -> Timeline:
        """Read a file that it recognises. Raises ValueError, in one line, if it is damaged."""


@dataclass(frozen=True)
class ChromeReader:
    """A reader of what one profiler writes in Chrome's format."""

    is_from: Callable[[Trace], bool]
    """Whether that profiler wrote a trace; it may not need the framework."""
    read: Callable[[Trace], Timeline]

    def recognises(self, file: TraceFile) -> bool:
        """Return whether the file is such a trace."""
        return file.trace is not None and self.is_from(file.trace)

    def timeline_of(self, file: TraceFile) -> Timeline:
        """Return the timeline of such a trace."""
        assert file.trace is not None
        _check_queues(len(file.trace.columns.rows))
        return self.read(file.trace)


def timeline_in(file: TraceFile) -> Timeline:
    """Read a file by the first reader that recognises it.

    Raises ValueError, in one line, if there is none, and OSError if the file cannot be read.
    """
    failures: list[str] = []
    # Readers of formats of their own come first.
    readers = sorted(_loaded(failures), key=lambda reader: isinstance(reader, ChromeReader))
    for reader in readers:
        if reader.recognises(file):
            timeline = reader.timeline_of(file)
            _check_queues(len(timeline.columns.queues))
            return timeline
    names = ", ".join(trace_readers())
    reason = file.problem or f"none of the profilers known here wrote it (known for {names})"
    raise ValueError("; ".join((reason, *failures)))


def _check_queues(count: int) -> None:
    """Raise ValueError if a trace or a timeline has more queues than a program can have."""
    if count > MOST_QUEUES:
        raise ValueError(
            f"it has {count:,} threads or queues, and at most {MOST_QUEUES:,} can be compared"
        )


def timeline_from(trace: Trace) -> Timeline:
    """Read a trace in Chrome's format. Raises ValueError, in one line, if nobody recognises it."""
    return timeline_in(TraceFile(Path(), trace))


def _loaded(failures: list[str]) -> Iterator[TraceReader]:
    """Yield the readers; those that cannot be imported are added to the failures."""
    for name, load in trace_readers().items():
        try:
            reader: TraceReader = load()
        except Exception as error:
            failures.append(f"the reader {name!r} cannot be imported: {type(error).__name__}")
        else:
            yield reader
