"""A Chrome trace as its slices, the names of its rows and what was wrong with it, whatever program wrote it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from backends.profiling.chrome_trace.pairing import Pairing
from backends.profiling.chrome_trace.slice_columns import Slice, Slices, TraceThread
from backends.profiling.chrome_trace.trace_events import Document, read_events
from backends.profiling.chrome_trace.trace_text import text_blocks

__all__ = ["Slice", "Slices", "Trace", "TraceThread", "read_trace"]


@dataclass(frozen=True)
class Trace:
    """The slices of a file in the order of their start, the names of its rows, and what was wrong with it."""

    slices: Sequence[Slice]
    """Those of a file are `Slices`; `columns` has them as such in any case."""
    processes: Mapping[int | str, str] = field(default_factory=dict)
    threads: Mapping[TraceThread, str] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    """What the file states beside its events; the first value if it gives several."""
    contradicted: frozenset[str] = frozenset()
    """The names of properties of which it gives several values: several files are in it."""
    problems: tuple[str, ...] = ()
    """A sentence for each reason why events were dropped."""
    named_twice: frozenset[int | str] = frozenset()
    """The processes that the file names more than once."""
    begin: int = 0
    """When the earliest event started, in nanoseconds by the file's own clock."""

    @cached_property
    def columns(self) -> Slices:
        """The slices as columns: for what is asked of all of them."""
        return Slices.of(self.slices)


def read_trace(path: Path) -> Trace:
    """Read a Chrome trace, plain or compressed by gzip, as much of it as there is.

    Complete events, begins with their ends and asynchronous ones with theirs become slices; counters, instants and
    flows do not. Of operators on a host the arguments are not kept. Raises OSError if the file cannot be read, and
    ValueError, in one line, if nothing in it can be used.
    """
    document = Document()
    pairing = Pairing()
    try:
        for events in read_events(text_blocks(path), document):
            pairing.take(events)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    slices, begin = pairing.finish()
    problems = _problems(document, pairing)
    if not slices:
        raise ValueError(f"{path} cannot be used: {_why_nothing(path, document, problems)}")
    return Trace(
        slices,
        pairing.processes,
        pairing.threads,
        document.properties,
        frozenset(document.contradicted),
        problems,
        frozenset(pairing.named_twice),
        begin,
    )


def _problems(document: Document, pairing: Pairing) -> tuple[str, ...]:
    problems = ["The file ends before its events do: it was cut off."] if document.cut else []
    if document.damaged:
        problems.append(f"{_events(document.damaged)} could not be read, left out.")
    problems += [
        f"{_events(len(names))} {reason}, left out: the first is {names[0][:60]!r}."
        for reason, names in pairing.dropped.items()
        if names
    ]
    return tuple(problems)


def _why_nothing(path: Path, document: Document, problems: tuple[str, ...]) -> str:
    if path.stat().st_size == 0:
        return "it is empty"
    if not document.has_list:
        return "it is no Chrome trace, for it has no list of events"
    return " ".join(("it holds no events that have a beginning and an end.", *problems))


def _events(count: int) -> str:
    return f"{count:,} event{'' if count == 1 else 's'}"
