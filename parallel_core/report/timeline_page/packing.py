"""A timeline in few bytes, for a page: names once each, numbers as differences in columns, all compressed.

What is compressed (zlib) is one number, the length of a JSON object; that object; and the columns behind each other.
A number takes seven bits a byte, the lowest first; the top bit says that more follow (LEB128). Numbers that may be
negative are folded first: 0, −1, 1, −2 become 0, 1, 2, 3. `unpacking.js` reads it.

    {"origin": 0, "lanes": [["gpu:0", "stream 7", 3753], …], "labels": [["gemm", "aten::mm", "compute"], …],
     "cases": [["run", 0, 900], …], "segments": 120}

`lanes` name the device, the queue and the number of spans. The spans stand lane by lane in the order of their start,
with a column for each of: the time since the end of the span before (folded; the first one's: since the origin), the
duration, the place in `labels`, the delay since the launch (folded, plus one; 0 if it is not known). Then come the
segments of the critical paths, joined where they follow each other on a lane, with columns of the time since the end
of the one before, the duration, and the place of the lane plus one; 0 is idle. All times are nanoseconds.
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from backends.profiling import Span, Timeline, queue_order
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.critical_path import Segment, critical_path
from parallel_core.trace_analysis.lanes import look, shortened

__all__ = ["pack"]

MAX_NAME_CHARACTERS = 300
COMPRESSION = 9


class _Stretch(NamedTuple):
    """A part of a critical path on one lane, or idle."""

    start: int
    end: int
    lane: int


def pack(timeline: Timeline) -> bytes:
    """Return a timeline with the critical paths of its cases as compressed bytes; equal timelines give equal bytes."""
    spans = timeline.spans
    queues = sorted({(span.device, span.queue) for span in spans}, key=lambda queue: queue_order(*queue))
    lane_of = {queue: lane for lane, queue in enumerate(queues)}
    path = _path(timeline, lane_of)
    lanes = np.fromiter((lane_of[span.device, span.queue] for span in spans), np.int64, len(spans))
    # Within a lane they keep their order, which is that of their start.
    order = np.argsort(lanes, kind="stable")
    starts = np.fromiter((span.start for span in spans), np.int64, len(spans))
    ends = np.fromiter((span.end for span in spans), np.int64, len(spans))
    known = np.fromiter((span.launched is not None for span in spans), bool, len(spans))
    launched = np.fromiter((span.start if span.launched is None else span.launched for span in spans), np.int64)
    labels, label_of = _labels(spans)
    origin = int(min((*starts[:1], *launched, *(case.start for case in timeline.cases)), default=0))
    header = {
        "origin": origin,
        "lanes": [(*queue, count) for queue, count in zip(queues, np.bincount(lanes).tolist(), strict=True)],
        "labels": labels,
        "cases": timeline.cases,
        "segments": len(path),
    }
    written = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    waited = np.where(known, _folded(starts - launched) + 1, 0)
    columns = (
        [len(written)],
        _folded(_since_before(starts[order], ends[order], lanes[order], origin)),
        (ends - starts)[order],
        label_of[order],
        waited[order],
        _folded(_since_before([one.start for one in path], [one.end for one in path], [0] * len(path), origin)),
        [one.end - one.start for one in path],
        [one.lane + 1 for one in path],
    )
    first, *others = map(_variable_length, columns)
    return zlib.compress(first + written + b"".join(others), COMPRESSION)


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
    return shortened(span.name, MAX_NAME_CHARACTERS), shortened(operator, MAX_NAME_CHARACTERS), look(span)


def _path(timeline: Timeline, lane_of: dict[tuple[str, str], int]) -> list[_Stretch]:
    stretches: list[_Stretch] = []
    for case in cases_of(timeline):
        for one in critical_path(case):
            stretch = _stretch(one, lane_of)
            before = stretches[-1] if stretches else None
            if before and before.lane == stretch.lane and before.end == stretch.start:
                stretches[-1] = before._replace(end=stretch.end)
            else:
                stretches.append(stretch)
    return stretches


def _stretch(segment: Segment, lane_of: dict[tuple[str, str], int]) -> _Stretch:
    span = segment.span
    return _Stretch(segment.start, segment.end, -1 if span is None else lane_of[span.device, span.queue])


def _since_before(
    starts: Sequence[int] | np.ndarray, ends: Sequence[int] | np.ndarray, lanes: Sequence[int] | np.ndarray, origin: int
) -> np.ndarray:
    """Return the time from the end of what stands before in its lane to each start; of the first, since the origin."""
    starts, ends, lanes = (np.asarray(some, dtype=np.int64) for some in (starts, ends, lanes))
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
