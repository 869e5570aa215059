"""Traces that profilers wrote, read as the program does; `README.md` says where they are from."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from parallel_core.traces.case_spans import CaseSpans, cases_of
from parallel_core.traces.cases import CaseFigures
from parallel_core.traces.ranks.reading import RankTrace, read_ranks
from parallel_core.traces.trace_files import read_timeline

TRACES = Path(__file__).parent
INCOMPLETE = TRACES / "incomplete"
FOLDER = TRACES / "linked"
LINKED = (
    "event_sync",
    "stream_wait",
    "hip_training",
    "h100_bert",
    "h100_qwen",
    "two_streams",
    "ddp",
)
"""Those of one GPU whose operations are linked to the host's nested calls."""


@cache
def case_of_trace(name: str) -> CaseSpans:
    """Read the only case of a trace, given by its name or by its folder and name."""
    folder = FOLDER if name in LINKED else TRACES
    (case,) = cases_of(read_timeline(folder / f"{name}.json.gz"))
    return case


def events_in(path: Path) -> list[dict[str, Any]]:
    """Return the events of a file that last, by their start, read without the code under test."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    events = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    return sorted(events, key=lambda event: event["ts"])


def rank_of(path: Path) -> RankTrace:
    """Read a file, which holds a rank."""
    (rank,) = read_ranks([path]).values()
    return rank


def figures_of(path: Path) -> CaseFigures:
    """Return the figures of a file without cases."""
    (figures,) = rank_of(path).figures
    return figures
