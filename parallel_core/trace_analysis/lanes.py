"""What pictures of a timeline show: a lane for each queue, and in it few enough blocks to be seen.

A case may hold 100 000 spans, and a picture some hundred places. Short spans that lie close together become one block,
which knows how much of it was busy. What is longer than the resolution stays as it is, and so do longer gaps.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from backends.profiling import HOST_DEVICE, Kind, Span, queue_order
from parallel_core.formatting import percent
from parallel_core.trace_analysis.case_spans import CaseSpans, is_wait
from parallel_core.trace_analysis.figures import CaseFigures

__all__ = ["PARTS", "Block", "CaseLanes", "Lane", "Launch", "Look", "drawn_ends", "few_lanes", "lanes", "seen"]


PARTS = 1500
"""So many parts of a case's time can be told apart."""


MIN_PARTS = 10


WIDEST = 25
"""A block of many spans is at most so many parts wide, so that its busy share is that of its surroundings."""


MAX_LAUNCHES = 40


MAX_NAMES = 2


LONGEST_NAME = 32
"""Characters: kernels of GPUs have names of hundreds."""


Look: TypeAlias = Kind | Literal["wait"]
"""What a block looks like: its kind, or that the host only waits in it."""


Item = TypeVar("Item")


class Block(NamedTuple):
    """Spans that look alike and are drawn as one: mostly a single span.

    Times are in seconds from the case's beginning.
    """

    start: float
    end: float
    look: Look
    label: str
    """What a reader knows: `matmul`, or `412 × add`."""
    spans: int
    """How many it stands for."""
    busy: float
    """The seconds in which one of the spans ran: less than the block's where there are gaps."""
    waited: float | None
    """How long its spans waited between launch and start, the longest of them; None where that is not known."""

    @property
    def busy_share(self) -> float:
        """The busy seconds as a share of the block's."""
        return min(1.0, self.busy / (self.end - self.start)) if self.end > self.start else 1.0


@dataclass(frozen=True)
class Lane:
    """A queue of a device, with what ran there, in the order of time; blocks do not overlap."""

    device: str
    queue: str
    blocks: tuple[Block, ...]

    @property
    def name(self) -> str:
        """The device and queue, as a picture names them."""
        return f"{self.device} {self.queue}"


class Launch(NamedTuple):
    """When an operation was launched, and when it started on which lane; in seconds from the case's beginning."""

    launched: float
    start: float
    lane: str


@dataclass(frozen=True)
class CaseLanes:
    """A case's lanes: the host's first, then the devices in order, computing before copying."""

    case: str
    seconds: float
    """From the first launch or span to the end of the last span."""
    lanes: tuple[Lane, ...]
    launches: tuple[Launch, ...] = ()
    """Empty where they would be too many to be seen."""

    @property
    def count(self) -> int:
        """The number of blocks in all lanes."""
        return sum(len(lane.blocks) for lane in self.lanes)


def lanes(case: CaseSpans, parts: int = PARTS) -> CaseLanes:
    """Return what a picture shows of a case; what is shorter than one of `parts` parts of its time is merged."""
    by_lane: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in case.spans:
        by_lane[span.device, span.queue].append(span)
    found = tuple(
        Lane(device, queue, merged(by_lane[device, queue], case.start, case.seconds / parts))
        for device, queue in sorted(by_lane, key=lambda lane: queue_order(*lane))
    )
    return CaseLanes(case.name, case.seconds, found, launches(case.spans, case.start))


def few_lanes(case: CaseSpans, most: int) -> CaseLanes:
    """Return a case's lanes with at most about `most` blocks in all, as finely divided as that allows."""
    parts = PARTS
    found = lanes(case, parts)
    while found.count > most and parts > MIN_PARTS:
        parts = max(MIN_PARTS, int(parts * min(0.9, most / found.count)))
        found = lanes(case, parts)
    return found


def drawn_ends(blocks: Sequence[Block], least: float) -> list[float]:
    """Return where each block's drawing ends: a block too short to be seen takes up to a quarter of the gap behind it.

    `least` is what can be seen, in seconds. No block is drawn over the next one, and most of a gap remains one.
    """
    following = [*(block.start for block in blocks[1:]), inf]
    return [
        max(block.end, min(block.start + least, block.end + (start - block.end) / 4))
        for block, start in zip(blocks, following, strict=True)
    ]


def launches(spans: Sequence[Span], origin: float) -> tuple[Launch, ...]:
    """Return when a device's operations were launched and started; none where there are too many to be seen."""
    found = [span for span in spans if span.launched is not None and span.device != HOST_DEVICE]
    if len(found) > MAX_LAUNCHES:
        return ()
    return tuple(
        Launch(span.launched - origin, span.start - origin, f"{span.device} {span.queue}")
        for span in found
        if span.launched is not None
    )


def merged(spans: Sequence[Span], origin: float, resolution: float) -> tuple[Block, ...]:
    """Return a lane's blocks. Short spans are those below the resolution, and so are short gaps; both in seconds.

    Neighbouring short spans that look alike, with short gaps between them, become one block. Where looks change faster
    than the resolution, the blocks of a place have the lengths of their shares of it.
    """

    def is_close(piece: list[Span], span: Span) -> bool:
        both_short = max(span_seconds(piece[-1]), span_seconds(span)) < resolution
        return both_short and span.start - piece[-1].end < resolution

    def is_alike(piece: list[Span], span: Span) -> bool:
        return look(span) == look(piece[0]) and span.end - piece[0].start <= WIDEST * resolution

    def is_too_fine(place: list[list[Span]], piece: list[Span]) -> bool:
        return piece[-1].end - place[0][0].start < resolution

    return tuple(
        block
        for run in gathered(spans, is_close)
        for place in gathered(gathered(run, is_alike), is_too_fine)
        for block in blocks_of(place, origin)
    )


def gathered(items: Iterable[Item], belongs: Callable[[list[Item], Item], bool]) -> Iterator[list[Item]]:
    """Divide items into lists of neighbours: an item joins the list before it where it belongs to it."""
    found: list[Item] = []
    for item in items:
        if found and not belongs(found, item):
            yield found
            found = []
        found.append(item)
    if found:
        yield found


def blocks_of(place: Sequence[Sequence[Span]], origin: float) -> Iterator[Block]:
    """Make a block for each look in a place, one after the other, of lengths in proportion to their busy seconds."""
    alike: dict[Look, list[Span]] = {}
    for piece in place:
        alike.setdefault(look(piece[0]), []).extend(piece)
    start, end = place[0][0].start, place[-1][-1].end
    busy = {one: sum(map(span_seconds, spans)) for one, spans in alike.items()}
    whole = sum(busy.values())
    reached = 0.0
    at = start
    for number, (one, spans) in enumerate(alike.items(), start=1):
        reached += busy[one]
        # The last one ends where the place does, whatever rounding says.
        to = end if number == len(alike) or not whole else min(end, start + (end - start) * reached / whole)
        waited = [span.start - span.launched for span in spans if span.launched is not None]
        yield Block(at - origin, to - origin, one, label(spans), len(spans), busy[one], max(waited) if waited else None)
        at = to


def look(span: Span) -> Look:
    """Return what a span looks like."""
    return "wait" if is_wait(span) else span.kind


def span_seconds(span: Span) -> float:
    """Return how long a span took."""
    return span.end - span.start


def label(spans: Sequence[Span]) -> str:
    """Name what is drawn as one block; a single operation in the framework's own words too."""
    if len(spans) == 1:
        (span,) = spans
        name = shortened(span.name)
        told = "" if span.kind == "host" or span.operator == span.name else shortened(span.operator)
        return f"{name} ({told})" if told else name
    names = [shortened(name) for name, _ in Counter(span.name for span in spans).most_common(MAX_NAMES + 1)]
    return f"{len(spans)} × {', '.join(names[:MAX_NAMES])}{', …' if len(names) > MAX_NAMES else ''}"


def shortened(name: str) -> str:
    """Return a name, or its beginning where it is too long to be read."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def seen(case: CaseFigures) -> tuple[str, ...]:
    """Return `1.9 queues at once` and `87% of communication under computation`, those of them that can be said."""
    told = []
    if case.queues_at_once is not None:
        at_once = f"{case.queues_at_once:.1f}"
        told.append(f"{at_once} {'queue' if at_once == '1.0' else 'queues'} at once")
    # Without computation nothing could lie under it.
    if case.hidden_share is not None and case.compute_seconds:
        told.append(f"{percent(case.hidden_share)} of communication under computation")
    return tuple(told)
