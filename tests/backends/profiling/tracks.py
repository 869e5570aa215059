"""What every timeline must hold, made up or measured: one thing at a time on a track."""

from operator import attrgetter

from backends.profiling import Span, Timeline


def overlapping(timeline: Timeline) -> list[tuple[Span, Span]]:
    """List the pairs of spans that are on one queue at the same time: each with the one before it that ends last.

    There are none in a timeline that is right; viewers cannot show them.
    """
    latest: dict[tuple[str, str], Span] = {}
    found = []
    for span in sorted(timeline.spans, key=attrgetter("start", "end")):
        queue = span.device, span.queue
        before = latest.get(queue)
        if before is not None and span.start < before.end:
            found.append((before, span))
        if before is None or span.end > before.end:
            latest[queue] = span
    return found
