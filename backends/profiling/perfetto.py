"""Our timelines as Chrome traces that open in Perfetto (https://ui.perfetto.dev), and read back as they were written.

A process for each device, the host's first, and a thread for each queue; the cases are a process of their own above
them. An arrow leads from the call that launched an operation to the operation, where the profiler gives the link.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any, BinaryIO, NamedTuple, TypeAlias, get_args

import msgspec

from backends.profiling.chrome_trace.slices import Slice, Trace
from backends.profiling.timeline import Kind, Span, Timeline, Window, queue_order

__all__ = ["OWN_KEY", "timeline_of", "write_timeline"]

OWN_KEY = "parallel_core"
"""What a trace of ours says of itself stands under this key."""

SCHEMA = 1
CASES = "cases"
CASES_PROCESS = 1
FIRST_DEVICE = 2
NANOSECONDS = 1e9
"""Times are kept to the nanosecond, so that what touches still touches, and no more, when it is read back."""

Object: TypeAlias = dict[str, Any]
Queue: TypeAlias = tuple[str, str]


class _Row(NamedTuple):
    """The numbers that stand for a queue. Threads' are unique in the file: viewers mix up equal ones."""

    pid: int
    tid: int


def write_timeline(timeline: Timeline, stream: BinaryIO) -> None:
    """Write a timeline as a Chrome trace, an event on a line; what the file says of itself comes first."""
    rows = _rows(timeline.spans)
    # In the order of time, so that also a file that is cut off begins with its earliest event.
    slices = sorted(chain(_cases(timeline.cases), _spans(timeline.spans, rows)), key=itemgetter("ts"))
    own = {
        "schema": SCHEMA,
        "source": timeline.source,
        "notes": timeline.notes,
        # A trace has no beginning but its first event.
        "first_event_us": slices[0]["ts"] if slices else 0.0,
    }
    encode = msgspec.json.Encoder().encode
    stream.write(b'{"displayTimeUnit":"ms",\n"%s":%s,\n"traceEvents":[' % (OWN_KEY.encode(), encode(own)))
    between = b"\n"
    for event in chain(_names(timeline, rows), slices, _arrows(timeline.spans, rows)):
        stream.write(between)
        stream.write(encode(event))
        between = b",\n"
    stream.write(b"\n]}\n")


def timeline_of(trace: Trace) -> Timeline:
    """Read back what `write_timeline` wrote. Raises ValueError for a trace of anybody else's, or another schema."""
    own = trace.properties.get(OWN_KEY)
    if not isinstance(own, Mapping):
        raise ValueError("it is no trace of parallel-core")
    if own.get("schema") != SCHEMA:
        raise ValueError(f"it is a timeline of schema {own.get('schema')}, where {SCHEMA} is known")
    try:
        first = float(own["first_event_us"]) / 1e6
        return Timeline(
            str(own["source"]),
            tuple(_span(one, trace, first) for one in trace.slices if one.process != CASES_PROCESS),
            tuple(_window(one, first) for one in trace.slices if one.process == CASES_PROCESS),
            tuple(map(str, own["notes"])),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"it is a damaged timeline of parallel-core ({error!r})") from error


def _rows(spans: Iterable[Span]) -> dict[Queue, _Row]:
    queues = dict.fromkeys((span.device, span.queue) for span in spans)
    in_order = sorted(queues, key=lambda queue: queue_order(*queue))
    devices = dict.fromkeys(device for device, _ in in_order)
    pids = {device: FIRST_DEVICE + place for place, device in enumerate(devices)}
    return {queue: _Row(pids[queue[0]], FIRST_DEVICE + len(pids) + place) for place, queue in enumerate(in_order)}


def _names(timeline: Timeline, rows: Mapping[Queue, _Row]) -> Iterator[Object]:
    if timeline.cases:
        yield from _named("process", _Row(CASES_PROCESS, 0), CASES)
        yield from _named("thread", _Row(CASES_PROCESS, CASES_PROCESS), CASES)
    for pid, device in {row.pid: device for (device, _), row in rows.items()}.items():
        yield from _named("process", _Row(pid, 0), device)
    for (_, queue), row in rows.items():
        yield from _named("thread", row, queue)


def _named(what: str, row: _Row, name: str) -> Iterator[Object]:
    order = row.pid if what == "process" else row.tid
    yield {"ph": "M", "name": f"{what}_name", **row._asdict(), "args": {"name": name}}
    yield {"ph": "M", "name": f"{what}_sort_index", **row._asdict(), "args": {"sort_index": order}}


def _cases(cases: Iterable[Window]) -> Iterator[Object]:
    for case in cases:
        row = _Row(CASES_PROCESS, CASES_PROCESS)
        yield {"ph": "X", "name": case.name, "cat": "case", **row._asdict(), **_times(case)}


def _spans(spans: Iterable[Span], rows: Mapping[Queue, _Row]) -> Iterator[Object]:
    for span in spans:
        told: Object = {"operator": span.operator, "kind": span.kind}
        if span.launched is not None:
            told["waited_us"] = (_nanoseconds(span.start) - _nanoseconds(span.launched)) / 1000
        row = rows[span.device, span.queue]
        yield {"ph": "X", "name": span.name, "cat": span.kind, **row._asdict(), **_times(span), "args": told}


def _arrows(spans: Iterable[Span], rows: Mapping[Queue, _Row]) -> Iterator[Object]:
    # After the spans, for at equal times a viewer binds an arrow to what it has read.
    launches = {_microseconds(span.start): rows[span.device, span.queue] for span in spans if span.kind == "host"}
    for number, span in enumerate(spans, 1):
        launched = None if span.launched is None else _microseconds(span.launched)
        if launched in launches:
            arrow = {"name": "launch", "cat": "launch", "id": number}
            row = rows[span.device, span.queue]
            yield {"ph": "s", **arrow, **launches[launched]._asdict(), "ts": launched}
            yield {"ph": "f", "bp": "e", **arrow, **row._asdict(), "ts": _microseconds(span.start)}


def _span(one: Slice, trace: Trace, first: float) -> Span:
    start = _nanoseconds(first + one.start)
    kind, waited = one.args["kind"], one.args.get("waited_us")
    if kind not in get_args(Kind):
        raise ValueError(f"unknown kind {kind!r}")
    return Span(
        one.name,
        kind,
        trace.processes[one.process],
        trace.threads[one.process, one.thread],
        start / NANOSECONDS,
        _nanoseconds(first + one.end) / NANOSECONDS,
        # The very number at which the span of the launch starts.
        None if waited is None else (start - round(waited * 1000)) / NANOSECONDS,
        str(one.args.get("operator", "")),
    )


def _window(one: Slice, first: float) -> Window:
    start, end = _nanoseconds(first + one.start), _nanoseconds(first + one.end)
    return Window(one.name, start / NANOSECONDS, end / NANOSECONDS)


def _times(one: Span | Window) -> Object:
    return {"ts": _microseconds(one.start), "dur": (_nanoseconds(one.end) - _nanoseconds(one.start)) / 1000}


def _microseconds(seconds: float) -> float:
    return _nanoseconds(seconds) / 1000


def _nanoseconds(seconds: float) -> int:
    return round(seconds * NANOSECONDS)
