"""Put timelines, packed, and their figures in tables into one self-contained page."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from humanize import metric
from jinja2 import Environment, PackageLoader, StrictUndefined

from backends.profiling import SpanKind, Timeline, in_seconds, queue_order
from parallel_core.plots.style import LOOKS
from parallel_core.report.timeline_page.packing import pack
from parallel_core.system import files
from parallel_core.system.formatting import percent
from parallel_core.trace_analysis.case_spans import CaseSpans, cases_of
from parallel_core.trace_analysis.figures import CaseFigures
from parallel_core.trace_analysis.lanes import look, overlap_phrases

__all__ = ["render", "write_timeline_page"]

MAX_OPERATIONS = 15
"""So many operations, and parts of a critical path, are listed: those that took the most time."""


class _Operation(NamedTuple):
    """All spans of one name on devices."""

    name: str
    kind: str
    spans: int
    seconds: float
    share: float
    """Of the time of all operations, added up."""
    longest_seconds: float


class _Case(NamedTuple):
    """A case's figures, and the operations that took the most time."""

    figures: CaseFigures
    operations: tuple[_Operation, ...]
    others: int
    """How many names of operations are not listed."""
    remarks: tuple[str, ...]


class _Shown(NamedTuple):
    """A timeline as the page holds it; without a name if it is the only one."""

    name: str
    timeline: Timeline
    lanes: tuple[str, ...]
    packed: str
    cases: tuple[_Case, ...]


def write_timeline_page(
    timelines: Mapping[str, Timeline], figures: Mapping[str, Sequence[CaseFigures]], path: Path
) -> None:
    """Write the page of timelines by their names, stacked in their order; see `render`. Raises OSError."""
    files.write_whole(path, lambda stream: stream.write(render(timelines, figures).encode(errors="replace")))


def render(timelines: Mapping[str, Timeline], figures: Mapping[str, Sequence[CaseFigures]]) -> str:
    """Return the page of timelines by their names, with each one's figures under the same name.

    A single timeline may have the name "". Each begins at its own zero.
    """
    environment = Environment(
        loader=PackageLoader("parallel_core.report.timeline_page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["seconds"] = lambda value: metric(value, "s")
    environment.filters["percent"] = percent
    shown = [_shown(name, timeline, figures[name]) for name, timeline in timelines.items()]
    used = {look(span) for timeline in timelines.values() for span in timeline.spans}
    return environment.get_template("page.html.jinja").render(
        shown=shown,
        source=", ".join(dict.fromkeys(timeline.source for timeline in timelines.values())),
        spans=sum(len(timeline.spans) for timeline in timelines.values()),
        looks={one: appearance.name for one, appearance in LOOKS.items() if one in used},
        max_rows=MAX_OPERATIONS,
    )


def _shown(name: str, timeline: Timeline, figures: Sequence[CaseFigures]) -> _Shown:
    lanes = sorted({(span.device, span.queue) for span in timeline.spans}, key=lambda queue: queue_order(*queue))
    by_name = {case.name: case for case in cases_of(timeline)}
    return _Shown(
        name,
        timeline,
        tuple(map(" ".join, lanes)),
        b64encode(pack(timeline)).decode(),
        tuple(_case(one, by_name[one.case]) for one in figures),
    )


def _case(figures: CaseFigures, case: CaseSpans) -> _Case:
    operations = _operations(case)
    return _Case(
        figures, operations[:MAX_OPERATIONS], max(0, len(operations) - MAX_OPERATIONS), overlap_phrases(figures)
    )


def _operations(case: CaseSpans) -> tuple[_Operation, ...]:
    """Return the operations of a case by name, those that took the most time first."""
    lengths: dict[tuple[str, SpanKind], list[int]] = {}
    for span in case.spans:
        if span.kind != "host":
            lengths.setdefault((span.name, span.kind), []).append(span.end - span.start)
    whole = sum(map(sum, lengths.values())) or 1
    rows = (
        _Operation(name, LOOKS[kind].name, len(some), in_seconds(sum(some)), sum(some) / whole, in_seconds(max(some)))
        for (name, kind), some in lengths.items()
    )
    return tuple(sorted(rows, key=attrgetter("seconds"), reverse=True))
