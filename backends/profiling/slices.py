"""The slices of a Chrome trace, as a framework's profiler wrote it: read robustly, and not yet understood."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Slice", "Trace", "read_trace"]


class Slice(NamedTuple):
    """One complete event: `X`, or a begin and its end. Times are in seconds from the trace's earliest event."""

    name: str
    category: str
    process: int | str
    thread: int | str
    start: float
    end: float
    args: Mapping[str, Any]


@dataclass(frozen=True)
class Trace:
    """The slices of a file in the order of their start, the names of its rows, and what was wrong with it."""

    slices: tuple[Slice, ...]
    processes: Mapping[int | str, str] = field(default_factory=dict)
    threads: Mapping[tuple[int | str, int | str], str] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    """What the file says of itself beside its events."""
    problems: tuple[str, ...] = ()
    """Events that were dropped, and why: a sentence each."""


def read_trace(path: Path) -> Trace:
    """Read a Chrome trace; raises ValueError, in one line, where nothing in the file can be used."""
    raise NotImplementedError(path)
