"""A timeline in few bytes, for a page: names once each, numbers as differences in columns, all compressed.

What is compressed (zlib) is one number, the length of a JSON object; that object; and the columns behind each other.
A number takes seven bits a byte, the lowest first; the top bit says that more follow (LEB128). Numbers that may be
negative are folded first: 0, −1, 1, −2 become 0, 1, 2, 3. `unpacking.js` reads it.

    {"origin": 0, "lanes": [["gpu:0", "stream 7", 3753], …], "labels": [["gemm", "aten::mm", "compute"], …],
     "cases": [["run", 0, 900], …]}

`lanes` name the device, the queue and the number of spans. Those of no device come first: the cases, the program's own
annotations, and last the critical paths of all cases. The spans stand lane by lane in the order of their start, with a
column for each of: the time since the end of the span before (folded; the first one's: since the origin), the
duration, the place in `labels`, the delay since the launch (folded, plus one; 0 if it is not known). At the end stands
a column with the lane of each span of the critical paths. All times are nanoseconds.
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from backends.profiling import Span, Timeline, Window
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.critical_path import critical_path
from parallel_core.trace_analysis.lanes import lane_order, look, shortened

__all__ = ["MARK", "Packed", "first_time", "pack"]

MARK = "mark"
"""How cases and annotations look, beside the looks of spans."""
PATH = "critical path"
MAX_NAME_CHARACTERS = 300
COMPRESSION = 9

Queue: TypeAlias = tuple[str, str]
"""A device and one of its queues; of no device are what the page adds itself."""


class Packed(NamedTuple):
    """A timeline as bytes, and its lanes from top to bottom."""

    lanes: list[Queue]
    data: bytes


class _Stretch(NamedTuple):
    """A part of a critical path, and the lane that it lies on."""

    span: Span
    queue: Queue


def first_time(timeline: Timeline) -> int:
    """Return when a timeline's first span, launch or case begins; 0 if it has none."""
    begins = [span.start for span in timeline.spans[:1]]
    begins += [window.start for window in (*timeline.cases, *timeline.annotations)]
    launches = (span.launched for span in timeline.spans if span.launched is not None)
    return min((*begins, *launches), default=0)


def pack(timeline: Timeline, origin: int | None = None) -> Packed:
    """Compress a timeline with the critical paths of its cases; equal timelines give equal bytes.

    Times count from the origin, which is the timeline's first time unless told.
    """
    origin = first_time(timeline) if origin is None else origin
    marks, path = _marks(timeline), _path(timeline)
    spans = (*marks, *(one.span for one in path), *timeline.spans)
    own = {(span.device, span.queue) for span in timeline.spans} | {one.queue for one in path}
    added = dict.fromkeys((span.device, span.queue) for span in spans[: len(marks) + len(path)])
    queues = [*added, *sorted(own, key=lambda queue: lane_order(*queue))]
    lane_of = {queue: lane for lane, queue in enumerate(queues)}
    lanes = np.fromiter((lane_of[span.device, span.queue] for span in spans), np.int64, len(spans))
    # Within a lane they keep their order, which is that of their start.
    order = np.argsort(lanes, kind="stable")
    starts = np.fromiter((span.start for span in spans), np.int64, len(spans))
    ends = np.fromiter((span.end for span in spans), np.int64, len(spans))
    known = np.fromiter((span.launched is not None for span in spans), bool, len(spans))
    launched = np.fromiter((span.start if span.launched is None else span.launched for span in spans), np.int64)
    labels, label_of = _labels(spans)
    counts = np.bincount(lanes, minlength=len(queues)).tolist()
    header = {
        "origin": origin,
        "lanes": [(*queue, count) for queue, count in zip(queues, counts, strict=True)],
        "labels": labels,
        "cases": timeline.cases,
    }
    written = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    columns = (
        [len(written)],
        _folded(_since_before(starts[order], ends[order], lanes[order], origin)),
        (ends - starts)[order],
        label_of[order],
        np.where(known, _folded(starts - launched) + 1, 0)[order],
        [lane_of[one.queue] for one in path],
    )
    first, *others = map(_variable_length, columns)
    return Packed(queues, zlib.compress(first + written + b"".join(others), COMPRESSION))


def _marks(timeline: Timeline) -> list[Span]:
    """Return cases and annotations as spans of no device, on so many queues that none overlap."""
    marks = []
    for what, windows in (("cases", timeline.cases), ("annotations", timeline.annotations)):
        reached: list[int] = []
        # Of those that begin together the longest holds the others.
        for one in sorted(windows, key=lambda window: (window.start, -window.end)):
            row = next((row for row, end in enumerate(reached) if end <= one.start), len(reached))
            reached[row : row + 1] = [one.end]
            marks.append(_mark(one, what if row == 0 else f"{what} {row + 1}"))
    return marks


def _mark(window: Window, queue: str) -> Span:
    return Span(window.name, "host", "", queue, window.start, window.end)


def _path(timeline: Timeline) -> list[_Stretch]:
    """Return the critical paths as spans of no device; what follows on a lane under one name is one of them."""
    stretches: list[_Stretch] = []
    for case in cases_of(timeline):
        for start, end, span in critical_path(case):
            if span is None:
                continue
            before = stretches[-1] if stretches else None
            if before and before.span.end == start and _is_alike(before, span):
                stretches[-1] = before._replace(span=before.span._replace(end=end))
            else:
                moved = span._replace(device="", queue=PATH, start=start, end=end, launched=None)
                stretches.append(_Stretch(moved, (span.device, span.queue)))
    return stretches


def _is_alike(before: _Stretch, span: Span) -> bool:
    return before.queue == (span.device, span.queue) and (before.span.name, before.span.kind) == (span.name, span.kind)


def _labels(spans: Sequence[Span]) -> tuple[list[tuple[str, str, str]], np.ndarray]:
    """Return the distinct names of spans, the most frequent first for they take the fewest bytes, and their places."""
    found: dict[tuple[str, str, str], int] = {}
    places = np.fromiter((found.setdefault(_label(span), len(found)) for span in spans), np.int64, len(spans))
    by_count = np.argsort(-np.bincount(places, minlength=len(found)), kind="stable")
    rank = np.empty_like(by_count)
    rank[by_count] = np.arange(len(by_count))
    names = list(found)
    return [names[place] for place in by_count.tolist()], rank[places]


def _label(span: Span) -> tuple[str, str, str]:
    # The marks of the host's calls are numbered: no two are alike, and none says more than its name.
    operator = "" if span.kind == "host" or span.operator == span.name else span.operator
    how = look(span) if span.device or span.queue == PATH else MARK
    return shortened(span.name, MAX_NAME_CHARACTERS), shortened(operator, MAX_NAME_CHARACTERS), how


def _since_before(starts: np.ndarray, ends: np.ndarray, lanes: np.ndarray, origin: int) -> np.ndarray:
    """Return the time from the end of what stands before in its lane to each start; of the first, since the origin."""
    before = np.concatenate(([origin], ends[:-1]))[: len(starts)]
    before[1:][lanes[1:] != lanes[:-1]] = origin
    return starts - before


def _folded(values: np.ndarray) -> np.ndarray:
    return np.where(values < 0, -2 * values - 1, 2 * values)


def _variable_length(values: Iterable[int] | np.ndarray) -> bytes:
    """Write numbers of up to 63 bits that are not negative, seven bits a byte."""
    left = np.asarray(values, dtype=np.uint64)
    if len(left) == 0:
        return b""
    columns: list[np.ndarray] = []
    while not columns or left.any():
        columns.append((left & np.uint64(0x7F)).astype(np.uint8))
        left = left >> np.uint64(7)
    digits = np.stack(columns, axis=1)
    places = np.arange(digits.shape[1])
    last = np.max(np.where(digits, places, 0), axis=1, keepdims=True)
    digits |= np.where(places < last, np.uint8(0x80), np.uint8(0))
    return digits[places <= last].tobytes()
