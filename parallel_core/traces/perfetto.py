"""A trace with what was found in it as tracks of their own, for Perfetto and chrome://tracing.

The file is copied as it is, and our events stand before its own, under a process that
`read_trace` leaves out: read again, it gives the figures of the original.
"""

import gzip
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np

from backends.profiling import HOST_DEVICE, Timeline
from backends.profiling.perfetto import naming
from backends.profiling.slices import FINDINGS
from backends.profiling.trace_events import text_blocks
from parallel_core.system.errors import RequestError
from parallel_core.system.files import write_whole
from parallel_core.traces.account import exchanges_by_device, times_of
from parallel_core.traces.case_spans import (
    CaseSpans,
    cases_of,
    gaps,
    groups_of,
    intersection,
)
from parallel_core.traces.devices.queues import WAITED_FOR, gaps_of_queue
from parallel_core.traces.reasons import REASONS, reasoned
from parallel_core.traces.steps.figures import step_windows

EVENTS = re.compile(r'\A\s*\[|"traceEvents"\s*:\s*\[')

Event = dict[str, Any]


class Finding(NamedTuple):
    """A stretch of time on one of our tracks, in nanoseconds from the timeline's beginning."""

    name: str
    start: int
    end: int
    more: str = ""
    """What the name does not say: a reason in words."""


def write_findings(source: Path, timeline: Timeline, origin: int, target: Path) -> None:
    """Write the trace in `source` with our findings to `target`, compressed if it ends in `.gz`.

    `origin` is the timeline's zero by the file's clock, in nanoseconds. Raises RequestError if the
    file is damaged or has no list of events, and OSError.
    """
    _check_whole(source)
    (case,) = cases_of(timeline)
    tracks = tracks_of(case)

    def write(stream: BinaryIO) -> None:
        if target.suffix == ".gz":
            with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=5, mtime=0) as compressed:
                _copy(source, _events(tracks, origin), compressed)
        else:
            _copy(source, _events(tracks, origin), stream)

    write_whole(target, write)


def _check_whole(source: Path) -> None:
    """Raise RequestError if a file is cut off or damaged: its copy would be, too."""
    text = "".join(text_blocks(source)).strip()
    if text.startswith("[") and not text.endswith("]"):
        # The format allows a bare list to end without its bracket.
        text = f"{text.rstrip(',')}]"
    try:
        msgspec.json.decode(text.encode(errors="replace"), type=msgspec.Raw)
    except msgspec.MsgspecError as error:
        raise RequestError(
            f"{source} is cut off or damaged, so that Perfetto may not read it: {error}"
        ) from error


def tracks_of(case: CaseSpans) -> dict[str, list[Finding]]:
    """Return our tracks by name, in the order in which they are shown."""
    tracks = {
        "steps": [Finding(*window) for window in step_windows(case.annotations)],
        **_exchanges(case),
        "copies": list(_copies(case)),
    }
    # Every queue of a case has spans.
    places_of_queues = groups_of(case.spans.queue_of)
    for (device, queue), places in zip(case.spans.queues, places_of_queues, strict=True):
        if device != HOST_DEVICE:
            idle = zip(*(column.tolist() for column in gaps_of_queue(case, places)), strict=True)
            tracks[f"{device} {queue}, idle"] = [
                Finding(WAITED_FOR[waited_for], start, end) for start, end, waited_for in idle
            ]
    tracks |= _not_hidden(case)
    return {name: track for name, track in tracks.items() if track}


def _exchanges(case: CaseSpans) -> dict[str, list[Finding]]:
    """Return a track for each device that exchanged."""
    exchanges = exchanges_by_device(case)
    tracks = {}
    for exchange in exchanges:
        name = f"{exchange.device} exchange" if len(exchanges) > 1 else "exchange"
        tracks[name] = list(_alongside(case, exchange.exchanging, exchange.computing))
    return tracks


def _copies(case: CaseSpans) -> Iterator[Finding]:
    """Yield when copies lay alongside computation, and when not."""
    times = times_of(case)
    return _alongside(case, times.copying, times.computing)


def _alongside(
    case: CaseSpans, communicating: np.ndarray, computing: np.ndarray
) -> Iterator[Finding]:
    """Yield when communication lay alongside computation, and when not, in order of time."""
    free = gaps(computing, case.start, case.end)
    hidden = [
        Finding("under computation", start, end)
        for start, end in intersection(communicating, computing).tolist()
    ]
    alone = [
        Finding("beside no computation", start, end)
        for start, end in intersection(communicating, free).tolist()
    ]
    yield from sorted((*hidden, *alone), key=lambda finding: finding.start)


def _not_hidden(case: CaseSpans) -> dict[str, list[Finding]]:
    """Return by queues the exchanges and copies that were not hidden, under their reasons."""
    tracks: dict[str, list[Finding]] = defaultdict(list)
    operations = reasoned(case)
    if operations is None:
        return tracks
    exposed = operations.exposed
    reasons = [REASONS[number] for number in operations.reason_of.tolist()]
    spans = case.spans.select(exposed.places)
    for span, reason, operator in zip(spans, reasons, exposed.waiting, strict=True):
        sentence = reason.sentence.format(operator=operator)
        track = tracks[f"{span.device} {span.queue}, why it was not hidden"]
        track.append(Finding(reason.code, span.start, span.end, sentence))
    return tracks


def _events(tracks: dict[str, list[Finding]], origin: int) -> Iterator[Event]:
    """Yield the events of all tracks, those of a track in the order of time."""
    process = {"pid": FINDINGS, "tid": 0}
    yield from naming("process", process, "parallel-core: findings", -1)
    for number, (track, findings) in enumerate(tracks.items(), 1):
        row = {"pid": FINDINGS, "tid": FINDINGS + number}
        yield from naming("thread", row, track, number)
        for finding in findings:
            event = {
                "ph": "X",
                "name": finding.name,
                "cat": "finding",
                **row,
                "ts": _microseconds(origin + finding.start),
                "dur": _microseconds(finding.end - finding.start),
            }
            yield {**event, "args": {"more": finding.more}} if finding.more else event


def _microseconds(nanoseconds: int) -> msgspec.Raw:
    """Return a time as its exact digits: a float would round those of a time since 1970."""
    whole, rest = divmod(abs(nanoseconds), 1000)
    sign = "-" if nanoseconds < 0 else ""
    return msgspec.Raw(f"{sign}{whole}.{rest:03}".encode())


def _copy(source: Path, events: Iterable[Event], stream: BinaryIO | gzip.GzipFile) -> None:
    """Copy a trace, with some events before its own."""
    blocks = text_blocks(source)
    beginning = ""
    opening = None
    for block in blocks:
        beginning += block
        opening = EVENTS.search(beginning)
        if opening is not None:
            break
    if opening is None:
        raise RequestError(f"{source} has no list of events that findings could stand in")
    stream.write(beginning[: opening.end()].encode(errors="replace"))
    encode = msgspec.json.Encoder().encode
    separator = b"\n"
    for event in events:
        stream.write(separator + encode(event))
        separator = b",\n"
    stream.write(b",\n" + beginning[opening.end() :].encode(errors="replace"))
    for block in blocks:
        stream.write(block.encode(errors="replace"))
