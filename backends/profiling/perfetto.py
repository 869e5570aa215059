"""Timelines as Chrome traces that open in Perfetto (https://ui.perfetto.dev), and read back as they
were written.

A process for each device, the host's first, and a thread for each queue; the cases are a separate
process above them. An arrow leads from the call that launched an operation to the operation, if the
profiler gives the link.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any, BinaryIO, TypeAlias

import msgspec
import numpy as np

from backends.profiling.readers import ChromeReader
from backends.profiling.slices import Slices, Trace, coded, recoded
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

JSONObject: TypeAlias = dict[str, Any]
PerfettoRow: TypeAlias = dict[str, int]
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
    own = {
        "schema": SCHEMA,
        "source": timeline.source,
        "experiment": timeline.experiment,
        "notes": timeline.notes,
        "unlinked": timeline.unlinked,
        "timed": timeline.timed,
        # A trace has no beginning but its first event.
        "first_event_us": slices[0]["ts"] if slices else 0.0,
    }
    encode = msgspec.json.Encoder().encode
    stream.write(
        b'{"displayTimeUnit":"ms",\n"%s":%s,\n"traceEvents":[' % (OWN_KEY.encode(), encode(own))
    )
    # Arrows come last: at equal times a viewer binds an arrow to what it has read before.
    for number, event in enumerate(
        chain(_names(timeline, rows), slices, _arrows(timeline.spans, rows))
    ):
        stream.write((b",\n" if number else b"\n") + encode(event))
    stream.write(b"\n]}\n")


def parse_timeline(trace: Trace) -> Timeline:
    """Read back what `write_timeline` wrote. Raises ValueError for any other trace, or another
    schema.
    """
    own = trace.properties.get(OWN_KEY)
    if not isinstance(own, Mapping):
        raise ValueError("it is no trace of parallel-core")
    if own.get("schema") != SCHEMA:
        raise ValueError(f"it is a timeline of schema {own.get('schema')}, but {SCHEMA} is known")
    try:
        first = round(float(own["first_event_us"]) * 1000)
        slices = trace.columns
        of_cases = slices.on_threads({row for row in slices.rows if row[0] == CASES_PROCESS})
        return Timeline(
            str(own["source"]),
            _parse_spans(slices.select(~of_cases), trace).moved(first),
            tuple(
                Window(one.name, first + one.start, first + one.end)
                for one in slices.select(of_cases)
            ),
            tuple(map(str, own["notes"])),
            # Files of before have none of these.
            int(own.get("unlinked", 0)),
            {str(case): float(seconds) for case, seconds in dict(own.get("timed", {})).items()},
            experiment=str(own.get("experiment", "")),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"it is a damaged timeline of parallel-core ({error!r})") from error


def is_own(trace: Trace) -> bool:
    """Return whether `write_timeline` wrote a trace."""
    return OWN_KEY in trace.properties


READER = ChromeReader(is_own, parse_timeline)


def _rows(spans: Iterable[Span]) -> dict[Queue, PerfettoRow]:
    queues = dict.fromkeys((span.device, span.queue) for span in spans)
    in_order = sorted(queues, key=lambda queue: queue_order(*queue))
    devices = dict.fromkeys(device for device, _ in in_order)
    pids = {device: FIRST_DEVICE + place for place, device in enumerate(devices)}
    first = FIRST_DEVICE + len(pids)
    return {queue: {"pid": pids[queue[0]], "tid": tid} for tid, queue in enumerate(in_order, first)}


def _names(timeline: Timeline, rows: Mapping[Queue, PerfettoRow]) -> Iterator[JSONObject]:
    all_rows = {(CASES, CASES): CASES_ROW, **rows} if timeline.cases else rows
    processes = {row["pid"]: device for (device, _), row in all_rows.items()}
    named = [("process", pid, {"pid": pid, "tid": 0}, device) for pid, device in processes.items()]
    named += [("thread", row["tid"], row, queue) for (_, queue), row in all_rows.items()]
    for what, order, row, name in named:
        yield {"ph": "M", "name": f"{what}_name", **row, "args": {"name": name}}
        yield {"ph": "M", "name": f"{what}_sort_index", **row, "args": {"sort_index": order}}


def _slices(timeline: Timeline, rows: Mapping[Queue, PerfettoRow]) -> Iterator[JSONObject]:
    for case in timeline.cases:
        yield _slice(case, "case", CASES_ROW)
    for span in timeline.spans:
        args: JSONObject = {"operator": span.operator, "kind": span.kind}
        if span.launched is not None:
            args["waited_us"] = (span.start - span.launched) / 1000
        yield {**_slice(span, span.kind, rows[span.device, span.queue]), "args": args}


def _slice(one: Span | Window, category: str, row: PerfettoRow) -> JSONObject:
    ts, dur = one.start / 1000, (one.end - one.start) / 1000
    return {"ph": "X", "name": one.name, "cat": category, **row, "ts": ts, "dur": dur}


def _arrows(spans: Iterable[Span], rows: Mapping[Queue, PerfettoRow]) -> Iterator[JSONObject]:
    launches = {span.start: rows[span.device, span.queue] for span in spans if span.kind == "host"}
    for number, span in enumerate(spans, 1):
        if span.launched is not None and span.launched in launches:
            arrow = {"name": "launch", "cat": "launch", "id": number}
            row = rows[span.device, span.queue]
            yield {"ph": "s", **arrow, **launches[span.launched], "ts": span.launched / 1000}
            yield {"ph": "f", "bp": "e", **arrow, **row, "ts": span.start / 1000}


def _parse_spans(slices: Slices, trace: Trace) -> Spans:
    arguments = slices.arguments("kind", "operator", "waited_us")
    if unknown := {kind for kind, _, _ in arguments if kind not in KINDS}:
        raise ValueError(f"unknown kind {min(map(str, unknown))!r}")
    kinds = np.array([KINDS.index(kind) for kind, _, _ in arguments], np.int8)
    names, name_of = recoded(slices.names, slices.name_of, str)
    operators, operator_of = coded(str(operator or "") for _, operator, _ in arguments)
    queues, queue_of = recoded(
        slices.rows, slices.row_of, lambda row: (trace.processes[row[0]], trace.threads[row])
    )
    # The very number at which the span of the launch starts.
    starts = slices.starts.tolist()
    waited = zip(starts, arguments, strict=True)
    launched = np.array(
        [UNKNOWN if wait is None else start - round(wait * 1000) for start, (_, _, wait) in waited]
    )
    launched = launched.astype(np.int64)
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
        launched,
    )
