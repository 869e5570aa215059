"""Timelines as Chrome traces that open in Perfetto (https://ui.perfetto.dev), and read back as they
were written.

A process for each device, the host's first, and a thread for each queue; the cases are a separate
process above them. An arrow leads from the call that launched an operation to the operation, if the
profiler gives the link.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any, BinaryIO

import msgspec
import numpy as np

from backends.profiling.doubts import Doubt
from backends.profiling.readers import ChromeReader
from backends.profiling.slices import Slices, Trace, TraceThread, coded, recoded
from backends.profiling.timeline import (
    KINDS,
    UNKNOWN,
    Queue,
    Span,
    Spans,
    Timeline,
    Window,
    queue_order,
)

OWN_KEY = "parallel_core"
"""The key under which our traces describe themselves."""

SCHEMA = 1
CASES = "cases"
CASES_PROCESS = 1
FIRST_DEVICE = 2

JSONObject = dict[str, Any]
PerfettoRow = dict[str, int]
"""The `pid` and `tid` that stand for a queue. A `tid` is unique in the file: viewers mix up equal
ones.
"""

CASES_ROW = {"pid": CASES_PROCESS, "tid": CASES_PROCESS}


def write_timeline(timeline: Timeline, stream: BinaryIO) -> None:
    """Write a timeline as a Chrome trace, an event on a line; its description of itself comes
    first.
    """
    rows = _rows(timeline.spans)
    # In the order of time, so that also a file that is cut off begins with its earliest event.
    slices = sorted(_slices(timeline, rows), key=itemgetter("ts"))
    description = {
        "schema": SCHEMA,
        "source": timeline.source,
        "experiment": timeline.experiment,
        "notes": timeline.notes,
        "models": timeline.models,
        "unlinked": timeline.unlinked,
        "timed": timeline.timed,
        # A trace has no beginning but its first event.
        "first_event_us": slices[0]["ts"] if slices else 0.0,
    }
    encode = msgspec.json.Encoder().encode
    stream.write(b'{"displayTimeUnit":"ms",\n')
    stream.write(b'"%s":%s,\n' % (OWN_KEY.encode(), encode(description)))
    stream.write(b'"traceEvents":[')
    # Arrows come last: at equal times a viewer binds an arrow to what it has read before.
    events = chain(_names(timeline, rows), slices, _arrows(timeline.spans, rows))
    separator = b"\n"
    for event in events:
        stream.write(separator + encode(event))
        separator = b",\n"
    stream.write(b"\n]}\n")


def parse_timeline(trace: Trace) -> Timeline:
    """Read back what `write_timeline` wrote. Raises ValueError for any other trace, or another
    schema.
    """
    description = trace.properties.get(OWN_KEY)
    if not isinstance(description, Mapping):
        raise ValueError("it is no trace of parallel-core")
    schema = description.get("schema")
    if schema != SCHEMA:
        raise ValueError(f"it is a timeline of schema {schema}, but {SCHEMA} is known")
    try:
        return _described_timeline(trace, description)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"it is a damaged timeline of parallel-core ({error!r})") from error


def is_own(trace: Trace) -> bool:
    """Return whether `write_timeline` wrote a trace."""
    return OWN_KEY in trace.properties


READER = ChromeReader(is_own, parse_timeline)


def _rows(spans: Iterable[Span]) -> dict[Queue, PerfettoRow]:
    """Return the row of each queue: a process for each device, a thread for each queue."""
    queues = {(span.device, span.queue) for span in spans}
    queues_in_order = sorted(queues, key=lambda queue: queue_order(*queue))
    pid_of: dict[str, int] = {}
    for device, _ in queues_in_order:
        pid_of.setdefault(device, FIRST_DEVICE + len(pid_of))
    # Threads are numbered on from the processes, so that no number is used for both.
    first_tid = FIRST_DEVICE + len(pid_of)
    rows = {}
    for tid, (device, queue) in enumerate(queues_in_order, first_tid):
        rows[device, queue] = {"pid": pid_of[device], "tid": tid}
    return rows


def _names(timeline: Timeline, rows: Mapping[Queue, PerfettoRow]) -> Iterator[JSONObject]:
    """Yield the events that name and order the processes, and then the threads."""
    all_rows = {(CASES, CASES): CASES_ROW, **rows} if timeline.cases else rows
    device_of = {row["pid"]: device for (device, _), row in all_rows.items()}
    for pid, device in device_of.items():
        yield from naming("process", {"pid": pid, "tid": 0}, device, pid)
    for (_, queue), row in all_rows.items():
        yield from naming("thread", row, queue, row["tid"])


def naming(noun: str, row: PerfettoRow, name: str, sort_index: int) -> Iterator[JSONObject]:
    """Yield the two events that name a process or a thread, and say where viewers show it."""
    yield {"ph": "M", "name": f"{noun}_name", **row, "args": {"name": name}}
    yield {"ph": "M", "name": f"{noun}_sort_index", **row, "args": {"sort_index": sort_index}}


def _slices(timeline: Timeline, rows: Mapping[Queue, PerfettoRow]) -> Iterator[JSONObject]:
    """Yield an event for each case, and then for each span."""
    for case in timeline.cases:
        yield _slice(case, "case", CASES_ROW)
    for span in timeline.spans:
        args: JSONObject = {"operator": span.operator, "kind": span.kind}
        if span.launched is not None:
            args["waited_us"] = (span.start - span.launched) / 1000
        row = rows[span.device, span.queue]
        yield {**_slice(span, span.kind, row), "args": args}


def _slice(item: Span | Window, category: str, row: PerfettoRow) -> JSONObject:
    """Return the event of a span or a case; events have microseconds."""
    ts = item.start / 1000
    dur = (item.end - item.start) / 1000
    return {"ph": "X", "name": item.name, "cat": category, **row, "ts": ts, "dur": dur}


def _arrows(spans: Iterable[Span], rows: Mapping[Queue, PerfettoRow]) -> Iterator[JSONObject]:
    """Yield the two ends of an arrow from each call that launched an operation to the operation."""
    # A span knows when it was launched, so its launch is the call that started then.
    row_of_call = {}
    for span in spans:
        if span.kind == "host":
            row_of_call[span.start] = rows[span.device, span.queue]
    for number, span in enumerate(spans, 1):
        if span.launched is not None and span.launched in row_of_call:
            # An arrow starts (`s`) at the call and finishes (`f`) at the slice that encloses (`e`)
            # its end.
            arrow = {"name": "launch", "cat": "launch", "id": number}
            row = rows[span.device, span.queue]
            yield {"ph": "s", **arrow, **row_of_call[span.launched], "ts": span.launched / 1000}
            yield {"ph": "f", "bp": "e", **arrow, **row, "ts": span.start / 1000}


def _described_timeline(trace: Trace, description: Mapping[str, Any]) -> Timeline:
    """Return the timeline that `write_timeline` wrote, with what the file says of itself."""
    first_event = round(float(description["first_event_us"]) * 1000)
    slices = trace.columns
    rows_of_cases = {row for row in slices.rows if row[0] == CASES_PROCESS}
    is_case = slices.on_threads(rows_of_cases)
    spans = _parse_spans(slices.select(~is_case), trace)
    cases = tuple(
        Window(case.name, first_event + case.start, first_event + case.end)
        for case in slices.select(is_case)
    )
    # Older files have no `unlinked`, `timed`, `experiment` and `models`.
    timed = dict(description.get("timed", {}))
    return Timeline(
        str(description["source"]),
        spans.moved(first_event),
        cases,
        tuple(map(_parse_note, description["notes"])),
        int(description.get("unlinked", 0)),
        {str(case): float(seconds) for case, seconds in timed.items()},
        experiment=str(description.get("experiment", "")),
        models=tuple(map(str, description.get("models", ()))),
    )


def _parse_note(note: Any) -> Doubt:
    """Return a note that `write_timeline` wrote."""
    # Up to version 0.3 notes were only sentences.
    if isinstance(note, str):
        return Doubt("by-the-reader", note)
    return Doubt(str(note["code"]), str(note["sentence"]))


def _parse_spans(slices: Slices, trace: Trace) -> Spans:
    """Return the spans of slices other than the cases'.

    Raises ValueError for a kind that does not exist, and KeyError for a row without a name.
    """
    arguments = slices.arguments("kind", "operator", "waited_us")
    unknown_kinds = {kind for kind, _, _ in arguments if kind not in KINDS}
    if unknown_kinds:
        raise ValueError(f"unknown kind {min(map(str, unknown_kinds))!r}")
    kinds = np.array([KINDS.index(kind) for kind, _, _ in arguments], np.int8)
    names, name_of = recoded(slices.names, slices.name_of, str)
    operators, operator_of = coded(str(operator or "") for _, operator, _ in arguments)

    def queue_of_row(row: TraceThread) -> Queue:
        process, _ = row
        return trace.processes[process], trace.threads[row]

    queues, queue_of = recoded(slices.rows, slices.row_of, queue_of_row)
    launched = []
    for start, (_, _, waited_us) in zip(slices.starts.tolist(), arguments, strict=True):
        # Rounded, it is exactly when the span of the launch starts.
        launched.append(UNKNOWN if waited_us is None else start - round(waited_us * 1000))
    return Spans(
        names,
        operators,
        queues,
        name_of,
        operator_of,
        queue_of,
        kinds,
        slices.starts,
        slices.ends,
        np.array(launched).astype(np.int64),
    )
