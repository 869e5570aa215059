"""A page that shows timelines: one file without a network, to zoom, to search, and with the figures in tables."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from backends.profiling import Timeline
from backends.profiling.timeline import KINDS
from parallel_core.report.plots.timeline import LOOKS, key_case, message_of
from parallel_core.report.timeline_page.packing import MARK, MAX_NAME_CHARACTERS, first_time, pack
from parallel_core.system import files
from parallel_core.system.formatting import figure, percent, seconds
from parallel_core.trace_analysis.figures import CaseFigures
from parallel_core.trace_analysis.lanes import overlap_phrases, shortened

MAX_ROWS = 15
"""Of operations and parts of a critical path, those that took the most time, and of steps."""


class _Shown(NamedTuple):
    """A timeline as the page holds it; without a name if it is the only one."""

    name: str
    timeline: Timeline
    lanes: tuple[str, ...]
    looks: set[str]
    packed: str
    figures: Sequence[CaseFigures]


def write_timeline_page(
    timelines: Mapping[str, Timeline],
    figures: Mapping[str, Sequence[CaseFigures]],
    path: Path,
    later: Mapping[str, int],
) -> None:
    """Write the page of timelines by their names, stacked in their order; see `render`. Raises OSError."""
    page = render(timelines, figures, later).encode(errors="replace")
    files.write_whole(path, lambda stream: stream.write(page))


def render(
    timelines: Mapping[str, Timeline], figures: Mapping[str, Sequence[CaseFigures]], later: Mapping[str, int]
) -> str:
    """Return the page of timelines by their names, with each one's figures under the same name.

    A single timeline may have the name "". All have one scale of time; `later` are the nanoseconds by which the zeros
    of some lie later than those of the rest.
    """
    environment = Environment(
        loader=PackageLoader("parallel_core.report.timeline_page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"seconds": seconds, "percent": percent, "figure": figure, "phrases": overlap_phrases}
    environment.filters["short"] = partial(shortened, characters=MAX_NAME_CHARACTERS)
    shifts = {name: later.get(name, 0) for name in timelines}
    origin = min((first_time(timeline) + shifts[name] for name, timeline in timelines.items()), default=0)
    shown = [_shown(name, timeline, figures[name], origin - shifts[name]) for name, timeline in timelines.items()]
    used = set[str]().union(*(one.looks for one in shown))
    looks: dict[str, str] = {one: words for one, words in LOOKS.items() if one in used}
    if MARK in used:
        looks |= {MARK: "cases and annotations"}
    source = ", ".join(dict.fromkeys(timeline.source for timeline in timelines.values()))
    experiment = next((timeline.experiment for timeline in timelines.values()), "")
    key = key_case([one for name in timelines for one in figures[name]], experiment)
    return environment.get_template("page.html.jinja").render(
        shown=shown,
        source=source,
        message=message_of(key, experiment) if key else f"Timeline of {source}",
        key=key.case if key else "",
        spans=sum(len(timeline.spans) for timeline in timelines.values()),
        looks=looks,
        kinds={kind: LOOKS[kind] for kind in KINDS},
        max_rows=MAX_ROWS,
    )


def _shown(name: str, timeline: Timeline, figures: Sequence[CaseFigures], origin: int) -> _Shown:
    lanes, looks, data = pack(timeline, origin)
    names = tuple(" ".join(filter(None, lane)) for lane in lanes)
    return _Shown(name, timeline, names, looks, b64encode(data).decode(), figures)
