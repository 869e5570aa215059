"""Timelines as files: traces for Perfetto, and pictures."""

import gzip
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from backends.profiling import Timeline
from backends.profiling.chrome_trace.perfetto import write_timeline
from parallel_core.system.files import write_whole

__all__ = ["write_picture_file", "write_trace_file"]


def write_trace_file(timeline: Timeline, path: Path) -> None:
    """Write a Chrome trace, compressed where the path ends in `.gz`; `-` is standard output. Raises OSError."""
    write_whole(path, lambda stream: _write(timeline, stream, path.suffix == ".gz"))


def write_picture_file(timeline: Timeline, path: Path) -> None:
    """Draw a timeline, as the path's ending says; `drawing.check_drawing` tells whether it can be. Raises OSError."""
    # Drawing needs matplotlib, which is an extra.
    from parallel_core.plots.timeline import draw_timeline

    kind = path.suffix.removeprefix(".").lower()
    write_whole(path, lambda stream: draw_timeline(timeline, stream, kind))


def _write(timeline: Timeline, stream: BinaryIO, compressed: bool) -> None:
    if not compressed:
        write_timeline(timeline, stream)
        return
    plain = BytesIO()
    write_timeline(timeline, plain)
    # Without the time of day, the same timeline gives the same bytes.
    stream.write(gzip.compress(plain.getvalue(), mtime=0))
