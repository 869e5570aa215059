"""The slices of a Chrome trace, as a framework's profiler wrote it: read robustly, and not yet understood."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from backends.profiling.chrome_trace.pairing import Measured, Pairing
from backends.profiling.chrome_trace.trace_events import Surroundings, read_events
from backends.profiling.chrome_trace.trace_text import text_blocks

__all__ = ["Slice", "Trace", "read_trace"]

MICROSECONDS = 1e6


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
    """Read a Chrome trace, plain or compressed by gzip, as much of it as there is.

    Complete events, begins with their ends and asynchronous ones with theirs become slices; counters, instants and
    flows do not. Raises OSError where the file cannot be read, and ValueError, in one line, where nothing in it can be
    used.
    """
    beside = Surroundings()
    pairing = Pairing()
    try:
        for events in read_events(text_blocks(path), beside):
            pairing.take(events)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    slices = _in_seconds(pairing.finish())
    problems = _problems(beside, pairing)
    if not slices:
        raise ValueError(f"{path} cannot be used: {_nothing(path, beside, problems)}")
    return Trace(slices, pairing.processes, pairing.threads, beside.properties, problems)


def _in_seconds(measured: list[Measured]) -> tuple[Slice, ...]:
    measured.sort(key=itemgetter(0))
    # Each slice takes the place of what it is made from: two lists of a million would need twice the memory.
    slices: list[Any] = measured
    first = measured[0][0] if measured else 0.0
    for place, (start, end, name, category, process, thread, args) in enumerate(measured):
        slices[place] = Slice(
            name, category, process, thread, (start - first) / MICROSECONDS, (end - first) / MICROSECONDS, args
        )
    return tuple(slices)


def _problems(beside: Surroundings, pairing: Pairing) -> tuple[str, ...]:
    told = []
    if beside.cut:
        told.append("The file ends before its events do: it was cut off.")
    if beside.damaged:
        told.append(f"{_events(beside.damaged)} could not be read and left out.")
    for names, reason in (
        (pairing.endless, "began and never ended"),
        (pairing.beginless, "ended without a beginning"),
        (pairing.timeless, "without times, or with times that cannot be"),
    ):
        if names:
            told.append(f"{_events(len(names))} {reason}, left out: the first is {names[0][:60]!r}.")
    return tuple(told)


def _nothing(path: Path, beside: Surroundings, problems: tuple[str, ...]) -> str:
    if path.stat().st_size == 0:
        return "it is empty"
    if not beside.has_list:
        return "it is no Chrome trace, for it has no list of events"
    return " ".join(("it holds no events that have a beginning and an end.", *problems))


def _events(count: int) -> str:
    return f"{count:,} event{'' if count == 1 else 's'}"
