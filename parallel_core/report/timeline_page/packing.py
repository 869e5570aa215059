"""A timeline in few bytes, to be put into a page: names once each, numbers as differences in columns, all compressed.

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
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from backends.profiling import Span, Spans, Timeline
from backends.profiling.timeline import KINDS, UNKNOWN, Queue
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.critical_path import critical_path
from parallel_core.trace_analysis.lanes import lane_order, look, shortened

MARK = "mark"
"""How cases and annotations look, beside the looks of spans."""
PATH = "critical path"
MAX_NAME_CHARACTERS = 300
COMPRESSION = 9


class Packed(NamedTuple):
    """A timeline as bytes, its lanes from top to bottom, and how its spans look."""

    lanes: list[Queue]
    """Those that the page adds itself are of no device."""
    looks: set[str]
    data: bytes


def first_time(timeline: Timeline) -> int:
    """Return when a timeline's first span, launch or case begins; 0 if it has none."""
    spans = timeline.columns
    begins = [window.start for window in (*timeline.cases, *timeline.annotations)]
    begins += spans.starts[:1].tolist()
    launches = spans.launched[spans.launched != UNKNOWN]
    return min((*begins, *([int(launches.min())] if len(launches) else [])), default=0)


def pack(timeline: Timeline, origin: int) -> Packed:
    """Compress a timeline with the critical paths of its cases; equal timelines give equal bytes.

    Times count from the origin.
    """
    path = _path(timeline)
    added = Spans.of([*_marks(timeline), *(span for span, _ in path)])
    spans = Spans.joined((added, timeline.columns))
    own = {timeline.columns.queues[place] for place in np.unique(timeline.columns.queue_of)}
    lanes = [*added.queues, *sorted(own.union(queue for _, queue in path), key=lambda queue: lane_order(*queue))]
    place_of = {queue: place for place, queue in enumerate(lanes)}
    lane_of = np.array([place_of.get(queue, -1) for queue in spans.queues], np.int64)[spans.queue_of]
    # Within a lane they keep their order, which is that of their start.
    order = np.argsort(lane_of, kind="stable")
    spans, lane_of = spans.select(order), lane_of[order]
    labels, label_of = _labels(spans)
    header = {
        "origin": origin,
        "lanes": [
            (*queue, count)
            for queue, count in zip(lanes, np.bincount(lane_of, minlength=len(lanes)).tolist(), strict=True)
        ],
        "labels": labels,
        "cases": timeline.cases,
    }
    written = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    columns = (
        [len(written)],
        _folded(_since_before(spans.starts, spans.ends, lane_of, origin)),
        spans.ends - spans.starts,
        label_of,
        np.where(spans.launched == UNKNOWN, 0, _folded(spans.starts - spans.launched) + 1),
        [place_of[queue] for _, queue in path],
    )
    first, *others = map(_variable_length, columns)
    looks = {how for _, _, how in labels}
    return Packed(lanes, looks, zlib.compress(first + written + b"".join(others), COMPRESSION))


def _marks(timeline: Timeline) -> Iterator[Span]:
    """Iterate over cases and annotations as spans of no device, on so many queues that none overlap."""
    for what, windows in (("cases", timeline.cases), ("annotations", timeline.annotations)):
        reached: list[int] = []
        # Of those that begin together the longest holds the other spans.
        for one in sorted(windows, key=lambda window: (window.start, -window.end)):
            row = next((row for row, end in enumerate(reached) if end <= one.start), len(reached))
            reached[row : row + 1] = [one.end]
            yield Span(one.name, "host", "", what if row == 0 else f"{what} {row + 1}", one.start, one.end)


def _path(timeline: Timeline) -> list[tuple[Span, Queue]]:
    """Return the critical paths as spans of no device, with the lanes that they lie on.

    What follows on a lane under one name is one of them.
    """
    stretches: list[tuple[Span, Queue]] = []
    for case in cases_of(timeline):
        for span in critical_path(case):
            queue = (span.device, span.queue)
            before, lane = stretches[-1] if stretches else (None, None)
            if before and (before.end, before.name, before.kind, lane) == (span.start, span.name, span.kind, queue):
                stretches[-1] = before._replace(end=span.end), queue
            else:
                stretches.append((span._replace(device="", queue=PATH, launched=None), queue))
    return stretches


def _labels(spans: Spans) -> tuple[list[tuple[str, str, str]], np.ndarray]:
    """Return the distinct names of spans, the most frequent first for they take the fewest bytes, and their places."""
    if not len(spans):
        return [], spans.name_of
    columns = (spans.name_of, spans.operator_of, spans.kinds, spans.queue_of)
    sizes = (len(spans.names), len(spans.operators), len(KINDS), len(spans.queues))
    _, examples, alike = np.unique(np.ravel_multi_index(columns, sizes), return_index=True, return_inverse=True)
    found: dict[tuple[str, str, str], int] = {}
    codes = [found.setdefault(_label(spans[place]), len(found)) for place in examples.tolist()]
    places, labels = np.array(codes)[alike], list(found)
    by_count = np.argsort(-np.bincount(places, minlength=len(labels)), kind="stable")
    rank = np.empty_like(by_count)
    rank[by_count] = np.arange(len(by_count))
    return [labels[place] for place in by_count.tolist()], rank[places]


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


def _variable_length(values: Sequence[int] | np.ndarray) -> bytes:
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
