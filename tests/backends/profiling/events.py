"""Events of Chrome traces, made up."""

from collections.abc import Callable
from typing import Any

from backends.profiling import Trace

EPOCH = 1_795_279_713_356_264
HASH = 2**64 - 1

Event = dict[str, Any]
Read = Callable[..., Trace]


def ns(seconds: float) -> int:
    """Return a time as timelines hold it, in nanoseconds."""
    return round(seconds * 1e9)


def complete(name: str = "op", start: float = 0, duration: float = 5, **more: Any) -> Event:
    """Make an event that is a whole slice; times are in microseconds, and `more` comes last."""
    return {
        "ph": "X",
        "name": name,
        "cat": "cpu_op",
        "pid": 1,
        "tid": 2,
        "ts": start,
        "dur": duration,
        **more,
    }


def event_of(phase: str, name: str, time: float, **more: Any) -> Event:
    """Make an event of a phase, such as "B" for a begin, at a time in microseconds."""
    return {"ph": phase, "name": name, "cat": "operator", "pid": 1, "tid": HASH, "ts": time, **more}


def spans(trace: Trace) -> list[tuple[str, float, float]]:
    """Return the names of slices and their times in microseconds."""
    return [(span.name, span.start / 1000, span.end / 1000) for span in trace.slices]
