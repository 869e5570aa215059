"""The traces that a comparison keeps: one for each cell, written by the cell's own process of the last round."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

from backends.profiling import Timeline
from parallel_core.comparison.cells import Cell
from parallel_core.errors import RequestError

__all__ = ["TimelineOf", "new_traces", "reason_path", "saved_timelines", "trace_path"]

TRACES = "traces"

TimelineOf: TypeAlias = Callable[[Cell], Timeline]
"""Read a cell's timeline; raises RequestError, in one line, where there is none. A comparison's may fill the memory."""


def trace_path(folder: Path, cell: Cell) -> Path:
    """Return where a comparison's folder keeps a cell's trace."""
    return folder / TRACES / f"{cell.experiment}-{cell.backend}-{cell.engine}.json.gz"


def reason_path(trace: Path) -> Path:
    """Return where it stands why there is no such trace."""
    return trace.with_name(trace.name.partition(".")[0] + ".txt")


def new_traces(folder: Path) -> None:
    """Make the place for traces in a comparison's folder; raises RequestError."""
    try:
        (folder / TRACES).mkdir(exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make the folder {folder / TRACES}: {error.strerror}") from error


def saved_timelines(folder: Path) -> TimelineOf | None:
    """Return how the timelines of a comparison's folder are read; None where it was made without traces."""
    return partial(saved_timeline, folder) if (folder / TRACES).is_dir() else None


def saved_timeline(folder: Path, cell: Cell) -> Timeline:
    """Read a cell's timeline; raises RequestError where its process wrote none, or one that cannot be read."""
    from parallel_core.trace_analysis.trace_files import read_timeline

    path = trace_path(folder, cell)
    if path.exists():
        return read_timeline(path)
    try:
        reason = reason_path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        reason = "its process wrote no trace"
    raise RequestError(reason)
