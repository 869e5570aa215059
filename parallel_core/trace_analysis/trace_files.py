"""Timelines from files: our own, and what the frameworks' profilers wrote for other programs."""

import gzip
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from backends.profiling import Timeline, Trace, read_trace, timeline_from
from backends.profiling.perfetto import OWN_KEY, parse_timeline, write_timeline
from parallel_core.errors import RequestError
from parallel_core.measurement.timing import without_garbage_collection
from parallel_core.system.files import write_whole

__all__ = ["read_timeline", "timeline_in", "trace_in", "write_trace_file"]


def read_timeline(path: Path) -> Timeline:
    """Read a trace of ours, MXNet's or PyTorch's, plain or compressed; the notes list what was wrong with the file.

    Raises RequestError if the file cannot be read, or is from another program.
    """
    # A million slices set the garbage collector off again and again, for a third of the time, and none is garbage.
    with without_garbage_collection():
        return timeline_in(trace_in(path), path)


def trace_in(path: Path) -> Trace:
    """Read a Chrome trace, whoever wrote it. Raises RequestError if the file cannot be read."""
    try:
        return read_trace(path)
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise RequestError(str(error)) from error


def timeline_in(trace: Trace, path: Path) -> Timeline:
    """Return the timeline of a trace that was read from a path. Raises RequestError if it is from another program."""
    try:
        timeline = parse_timeline(trace) if OWN_KEY in trace.properties else timeline_from(trace)
    except ValueError as error:
        raise RequestError(f"{path} cannot be used: {error}") from error
    if not timeline.spans:
        raise RequestError(f"{path} cannot be used: it holds nothing that ran on a device, or was launched")
    return replace(timeline, notes=tuple(dict.fromkeys((*timeline.notes, *trace.problems))))


def write_trace_file(timeline: Timeline, path: Path) -> None:
    """Write a Chrome trace, compressed if the path ends in `.gz`; `-` is standard output. Raises OSError."""
    write_whole(path, lambda stream: _write_trace(timeline, stream, path.suffix == ".gz"))


def _write_trace(timeline: Timeline, stream: BinaryIO, compressed: bool) -> None:
    if not compressed:
        write_timeline(timeline, stream)
        return
    plain = BytesIO()
    write_timeline(timeline, plain)
    # Without the time of day, the same timeline gives the same bytes.
    stream.write(gzip.compress(plain.getvalue(), mtime=0))
