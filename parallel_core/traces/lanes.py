"""Lanes for pictures of a timeline: one for each queue, with few enough blocks to be seen.

A case may hold 100 000 spans, and a picture is some hundred points wide. Short spans that are close
together become one block, which records how much of it was busy. Spans and gaps longer than the
resolution stay as they are.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple

from backends.profiling import HOST_DEVICE, Span, SpanKind, in_seconds, queue_order
from backends.profiling.kernel_names import shortened
from parallel_core.system.formatting import percent, seconds
from parallel_core.traces.case_spans import CaseSpans, is_wait
from parallel_core.traces.cases import CaseFigures

MOST_PARTS = 1500
"""The number of parts of a case's time that a reader can distinguish."""
MIN_LANE_PARTS = 10
MAX_BLOCK_PARTS = 25
"""A block of many spans is at most this many parts wide, so that its busy share is that of its
surroundings.
"""
MAX_LAUNCHES = 40
MAX_NAMES = 2
MAX_NAME_CHARACTERS = 120
"""Kernels of GPUs have names of hundreds."""
MAX_LISTED_CHARACTERS = 32
"""Of a name among other names."""
RANK = re.compile(r"rank (\d+) (.+)")
"""A device of one rank among several."""

Look = SpanKind | Literal["wait"]
"""How a block is drawn: by its kind, or as a wait of the host."""


class Block(NamedTuple):
    """Spans of one look that are drawn as one, usually a single span.

    Times are in seconds from the case's beginning.
    """

    start: float
    end: float
    look: Look
    label: str
    """`matmul`, or `412 × add`."""
    spans: int
    """The number of spans it stands for."""
    busy: float
    """The seconds in which a span ran: less than the block's length if there are gaps."""
    waited: float | None
    """The longest time that a span waited between launch and start; None if that is not known."""

    @property
    def busy_share(self) -> float:
        """The busy seconds as a share of the block's."""
        return min(1.0, self.busy / (self.end - self.start)) if self.end > self.start else 1.0


@dataclass(frozen=True)
class Lane:
    """A queue of a device, as pictures name it, and its blocks in the order of time; they do not
    overlap.
    """

    name: str
    blocks: tuple[Block, ...]


class Launch(NamedTuple):
    """When an operation was launched, and when it started on which lane; in seconds from the case's
    beginning.
    """

    launched: float
    start: float
    lane: str


@dataclass(frozen=True)
class CaseLanes:
    """A case's lanes: the host's first, then the devices in order, computing before copying."""

    seconds: float
    """From the first launch or span to the end of the last span."""
    lanes: tuple[Lane, ...]
    launches: tuple[Launch, ...] = ()
    """Empty if there are too many to be seen."""

    @property
    def count(self) -> int:
        """The number of blocks in all lanes."""
        return sum(len(lane.blocks) for lane in self.lanes)


def lanes(case: CaseSpans, parts: int = MOST_PARTS) -> CaseLanes:
    """Return a case's lanes; spans and gaps shorter than one of `parts` parts of its time are
    merged.
    """
    by_lane: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in case.spans:
        by_lane[span.device, span.queue].append(span)
    merged_lanes = tuple(
        Lane(" ".join(queue), _merged(by_lane[queue], case.start, case.nanoseconds / parts))
        for queue in sorted(by_lane, key=lambda queue: _lane_order(*queue))
    )
    # The launches of several ranks come from as many hosts.
    several = any(RANK.fullmatch(device) for device, _ in by_lane)
    launches = () if several else _launches(case.spans, case.start)
    return CaseLanes(case.seconds, merged_lanes, launches)


def _lane_order(device: str, queue: str) -> tuple[object, ...]:
    """Return the key by which lanes are sorted: rank by rank if there are several, and as
    `queue_order` says.
    """
    match = RANK.fullmatch(device)
    if match is None:
        return -1, *queue_order(device, queue)
    rank, device_of_rank = match.groups()
    return int(rank), *queue_order(device_of_rank, queue)


def few_lanes(case: CaseSpans, max_blocks: int) -> CaseLanes:
    """Return a case's lanes with about `max_blocks` blocks at most, as finely divided as that
    allows.
    """
    parts = MOST_PARTS
    shown = lanes(case, parts)
    while shown.count > max_blocks and parts > MIN_LANE_PARTS:
        parts = max(MIN_LANE_PARTS, int(parts * min(0.9, max_blocks / shown.count)))
        shown = lanes(case, parts)
    return shown


def drawn_ends(blocks: Sequence[Block], min_seconds: float) -> list[float]:
    """Return where drawings of blocks end: one too short to be seen takes up to a quarter of the
    gap after it.

    A block of `min_seconds` can be seen. No block is drawn over the next one, and three quarters of
    a gap stay empty.
    """
    ends = []
    next_starts = [*(block.start for block in blocks[1:]), inf]
    for block, next_start in zip(blocks, next_starts, strict=True):
        visible_end = block.start + min_seconds
        latest_end = block.end + (next_start - block.end) / 4
        ends.append(max(block.end, min(visible_end, latest_end)))
    return ends


def _launches(spans: Sequence[Span], origin: int) -> tuple[Launch, ...]:
    """Return when the devices' operations were launched and started; nothing if there are too many
    to be seen.
    """
    launched = tuple(
        Launch(
            in_seconds(span.launched - origin),
            in_seconds(span.start - origin),
            f"{span.device} {span.queue}",
        )
        for span in spans
        if span.launched is not None and span.device != HOST_DEVICE
    )
    return launched if len(launched) <= MAX_LAUNCHES else ()


def _merged(spans: Sequence[Span], origin: int, resolution: float) -> tuple[Block, ...]:
    """Return a lane's blocks. Spans and gaps below the resolution, in nanoseconds, are short.

    Neighbouring short spans of one look, with short gaps between them, become one block. If looks
    change faster than the resolution, each look of a place becomes a block whose length is its
    share of the busy time.
    """
    merged_spans: list[list[Span]] = []
    looks: set[Look] = set()
    """Those of the last spans that were merged."""
    for span in spans:
        last = merged_spans[-1] if merged_spans else [span]
        gap = span.start - last[-1].end
        all_short = max(_length(last[-1]), _length(span), gap) < resolution
        max_width = MAX_BLOCK_PARTS * resolution if looks == {look(span)} else resolution
        if merged_spans and all_short and span.end - last[0].start < max_width:
            last.append(span)
        else:
            merged_spans.append([span])
            looks.clear()
        looks.add(look(span))
    blocks: list[Block] = []
    for spans_of_blocks in merged_spans:
        blocks += _blocks_of(spans_of_blocks, origin)
    return tuple(blocks)


def _blocks_of(spans: Sequence[Span], origin: int) -> Iterator[Block]:
    """Make a block for each look of merged spans, one after the other, with lengths in proportion
    to their busy times.
    """
    spans_of_look: dict[Look, list[Span]] = defaultdict(list)
    for span in spans:
        spans_of_look[look(span)].append(span)
    start, end = spans[0].start, spans[-1].end
    busy_of_all = sum(map(_length, spans))
    busy_so_far = 0
    block_start = start
    for number, (one_look, alike) in enumerate(spans_of_look.items(), start=1):
        busy = sum(map(_length, alike))
        busy_so_far += busy
        # The last one ends where the spans do, whatever rounding says.
        if number == len(spans_of_look) or not busy_of_all:
            block_end = end
        else:
            block_end = start + (end - start) * busy_so_far // busy_of_all
        waited = [span.start - span.launched for span in alike if span.launched is not None]
        yield Block(
            start=in_seconds(block_start - origin),
            end=in_seconds(block_end - origin),
            look=one_look,
            label=_block_label(alike),
            spans=len(alike),
            busy=in_seconds(busy),
            waited=in_seconds(max(waited)) if waited else None,
        )
        block_start = block_end


def look(span: Span) -> Look:
    """Return the look of a span."""
    return "wait" if is_wait(span) else span.kind


def _length(span: Span) -> int:
    return span.end - span.start


def _block_label(spans: Sequence[Span]) -> str:
    """Name the spans of a block; a single operation by the framework's own name too."""
    if len(spans) == 1:
        (span,) = spans
        name = shortened(span.name, MAX_NAME_CHARACTERS)
        if span.kind == "host" or not span.operator or span.operator == span.name:
            return name
        return f"{name} ({shortened(span.operator, MAX_NAME_CHARACTERS)})"
    counts = Counter(span.name for span in spans)
    names = [shortened(name, MAX_LISTED_CHARACTERS) for name, _ in counts.most_common(MAX_NAMES)]
    if len(counts) > MAX_NAMES:
        names.append("…")
    return f"{len(spans)} × {', '.join(names)}"


def block_text(block: Block) -> str:
    """Say what a block is, in lines: its name, how long it took from when on, and how long it
    waited.
    """
    lines = [block.label, f"{seconds(block.end - block.start)} from {1000 * block.start:.6g} ms"]
    if block.spans > 1:
        lines[-1] += f", {percent(block.busy_share)} of it busy"
    if block.waited is not None:
        limit = "at most " if block.spans > 1 else ""
        lines.append(f"{limit}{seconds(block.waited)} from launch to start")
    return "\n".join(lines)


def overlap_phrases(case: CaseFigures) -> tuple[str, ...]:
    """Return `1.9 queues at once` and `87 % of communication alongside computation`, those that are
    defined for a case.

    Of a case that the profiler slowed down only that is said.
    """
    if case.slowed_in_words:
        return (case.slowed_in_words,)
    phrases = []
    if case.queues_at_once is not None:
        count = f"{case.queues_at_once:.1f}"
        noun = "queue" if count == "1.0" else "queues"
        phrases.append(f"{count} {noun} at once")
    # Of ranks side by side, none hides its communication under another's computation.
    of_ranks = any(queue.device.startswith("rank ") for queue in case.queues)
    # Without computation nothing could lie alongside it.
    if case.hidden_share is not None and case.compute_seconds and not of_ranks:
        phrases.append(f"{percent(case.hidden_share)} of communication alongside computation")
    return tuple(phrases)
