"""Timelines made up for the page, what they unpack to, and pages of them."""

import json
import random
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from backends.profiling import HOST_DEVICE, Span, SpanKind, Timeline, queue_order
from parallel_core.report.timeline_page import render
from parallel_core.trace_analysis.figures import timeline_figures
from parallel_core.trace_analysis.lanes import look

__all__ = ["NASTY", "PATH", "Unpacked", "busy", "page", "plain", "unpack"]

NASTY = '</script><b>kernel & "co"</b>'
PATH = ["", "critical path"]
KINDS: tuple[SpanKind, ...] = ("compute", "compute", "copy", "exchange")


class Unpacked(NamedTuple):
    """What a timeline is after it was packed: each lane's spans, and the lanes of the critical path."""

    lanes: list[list[Any]]
    """Device, queue, and for each span: name, operator, look, start, end, delay since the launch or None."""
    cases: list[list[Any]]
    path: list[list[Any]]
    """Name, start, end, device and queue."""

    @property
    def own(self) -> list[list[Any]]:
        """The lanes without that of the critical path."""
        return [lane for lane in self.lanes if lane[:2] != PATH]


def busy(spans: int, lanes: int = 30, seed: int = 1) -> Timeline:
    """Make random spans that fill 24 queues of eight GPUs and six threads with long names."""
    numbers = random.Random(seed)
    names = [f"void at::native::kernel_{number}<float, {number % 7}>" for number in range(200)]
    made, free = [], [0] * lanes
    for number in range(spans):
        lane = number % lanes
        start = free[lane] + numbers.randrange(20_000)
        free[lane] = end = start + numbers.randrange(100, 200_000)
        if lane < lanes // 5:
            made.append(
                Span(numbers.choice(names), "host", HOST_DEVICE, f"pt_data_worker {140234567 + lane}", start, end)
            )
            continue
        device, queue = divmod(lane - lanes // 5, 3)
        launched = max(0, start - numbers.randrange(5_000_000))
        kind, name = numbers.choice(KINDS), numbers.choice(names)
        made.append(Span(name, kind, f"gpu:{device}", f"stream {7 + queue}", start, end, launched, "aten::mm"))
    return Timeline("made up", tuple(sorted(made, key=lambda span: span.start)))


def page(timelines: dict[str, Timeline]) -> str:
    """Return the page of timelines with their own figures."""
    return render(timelines, {name: timeline_figures(timeline) for name, timeline in timelines.items()}, {})


def plain(timeline: Timeline, origin: int | None = None) -> list[list[Any]]:
    """Return what the lanes of a packed timeline must be, as `Unpacked.own` has them; annotations must not overlap."""
    if origin is None:
        launched = [span.launched for span in timeline.spans if span.launched is not None]
        marks = (*timeline.cases, *timeline.annotations)
        origin = min([*launched, *(one.start for one in (*timeline.spans, *marks))])
    named = (("cases", timeline.cases), ("annotations", timeline.annotations))
    marked = [
        ["", name, [[one.name, "", "mark", one.start - origin, one.end - origin, None] for one in windows]]
        for name, windows in named
        if windows
    ]
    queues = sorted({(span.device, span.queue) for span in timeline.spans}, key=lambda queue: queue_order(*queue))
    return marked + [
        [*queue, [_plain(span, origin) for span in timeline.spans if (span.device, span.queue) == queue]]
        for queue in queues
    ]


def _plain(span: Span, origin: int) -> list[Any]:
    operator = "" if span.kind == "host" or span.operator == span.name else span.operator
    waited = None if span.launched is None else span.start - span.launched
    return [span.name, operator, look(span), span.start - origin, span.end - origin, waited]


def unpack(packed: bytes) -> Unpacked:
    """Read what `pack` wrote, as its docstring says, times from the origin."""
    data = iter(zlib.decompress(packed))
    numbers = _numbers(data)
    header = json.loads(bytes(islice(data, next(numbers))))
    counts = [count for *_, count in header["lanes"]]
    columns = [[list(islice(numbers, count)) for count in counts] for _ in range(4)]
    lanes = []
    for (device, queue, _), *of_lane in zip(header["lanes"], *columns, strict=True):
        reached, spans = 0, []
        for gap, length, label, waited in zip(*of_lane, strict=True):
            start = reached + _unfolded(gap)
            reached = start + length
            spans.append([*header["labels"][label], start, reached, _unfolded(waited - 1) if waited else None])
        lanes.append([device, queue, spans])
    on_path = next((spans for *queue, spans in lanes if queue == PATH), [])
    path = [[name, start, end, *lanes[next(numbers)][:2]] for name, _, _, start, end, _ in on_path]
    assert list(data) == []
    origin = header["origin"]
    return Unpacked(lanes, [[name, start - origin, end - origin] for name, start, end in header["cases"]], path)


def _numbers(data: Iterator[int]) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0


def _unfolded(value: int) -> int:
    return -(value + 1) // 2 if value % 2 else value // 2
