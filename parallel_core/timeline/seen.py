"""What a picture says of a case in few words: how much communication lay under computation, how much ran at once."""

from collections.abc import Iterable, Sequence

from backends.profiling import HOST_DEVICE, Span, Timeline, Window
from parallel_core.wording import percent

__all__ = ["seen"]

Interval = tuple[float, float]


def seen(timeline: Timeline, case: Window) -> tuple[str, ...]:
    """Return `1.9 queues at once` and `87% of communication under computation`, those of them that can be said."""
    spans = [span for span in timeline.of(case) if span.device != HOST_DEVICE and span.kind != "host"]
    if not spans:
        return ()
    hidden, at_once = shares(spans)
    queues = f"{at_once:.1f} {'queue' if f'{at_once:.1f}' == '1.0' else 'queues'} at once"
    return (queues,) if hidden is None else (queues, f"{percent(hidden)} of communication under computation")


def shares(spans: Sequence[Span]) -> tuple[float | None, float]:
    """Return the share of communication's time that has computation beside it, and the mean number of busy queues.

    The share is None where there is no communication, or no computation.
    """
    computing = union((span.start, span.end) for span in spans if span.kind == "compute")
    communicating = union((span.start, span.end) for span in spans if span.kind in ("copy", "exchange"))
    either = union((span.start, span.end) for span in spans)
    both = total(computing) + total(communicating) - total(either)
    at_once = sum(span.end - span.start for span in spans) / (total(either) or 1.0)
    return (both / total(communicating) if computing and total(communicating) else None), at_once


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the times that lie in any of some intervals."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def total(intervals: Iterable[Interval]) -> float:
    """Return how long some intervals are together."""
    return sum(end - start for start, end in intervals)
