"""Real traces, read in the plainest way there is: as integers, event by event, to count out what figures must be."""

import gzip
import itertools
import json
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from parallel_core.trace_analysis.case_spans import CaseSpans, cases_of
from parallel_core.trace_analysis.trace_files import read_timeline

FOLDER = Path(__file__).parent / "linked"
LINKED = ("event_sync", "stream_wait", "hip_training", "h100_bert", "h100_qwen", "two_streams", "ddp")
ON_GPU = {"kernel", "gpu_memcpy", "gpu_memset"}
RUNTIME = {"cuda_runtime", "cuda_driver"}


@dataclass(frozen=True)
class Event:
    """An event of a file, in nanoseconds."""

    name: str
    category: str
    row: tuple[Any, Any]
    start: int
    end: int
    args: dict[str, Any]

    @property
    def correlation(self) -> Any:
        """The number that ties an operation to its launch."""
        return self.args.get("correlation")

    @property
    def is_collective(self) -> bool:
        """Whether it is one of NCCL's kernels."""
        return self.category == "kernel" and "nccl" in self.name


@cache
def events(name: str) -> tuple[Event, ...]:
    """Read all events of a trace, in the order of their start."""
    document = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()), parse_float=Decimal)
    found = []
    for one in document["traceEvents"]:
        if one["ph"] == "X":
            start, end = (int(time * 1000) for time in (one["ts"], one["ts"] + one["dur"]))
            row = one["pid"], one["tid"]
            found.append(Event(one["name"], one["cat"], row, start, end, one.get("args", {})))
    return tuple(sorted(found, key=lambda one: one.start))


def operations(name: str) -> list[Event]:
    """Return all that ran on a GPU."""
    return [one for one in events(name) if one.category in ON_GPU]


def launches(name: str) -> dict[Any, int]:
    """Return when each operation was launched, by its correlation."""
    return {one.correlation: one.start for one in events(name) if one.category in RUNTIME}


@cache
def case_of_trace(name: str) -> CaseSpans:
    """Read a trace as the program does."""
    (case,) = cases_of(read_timeline(FOLDER / f"{name}.json.gz"))
    return case


def covered(*groups: list[Event]) -> int:
    """Count the nanoseconds in which an event of every group runs, stretch by stretch."""
    times = sorted({time for group in groups for one in group for time in (one.start, one.end)})
    return sum(
        end - start
        for start, end in itertools.pairwise(times)
        if all(any(one.start <= start and end <= one.end for one in group) for group in groups)
    )
