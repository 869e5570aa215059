"""What every timeline must hold, made up or measured: one thing at a time on a track."""

from itertools import pairwise
from operator import attrgetter

from backends.profiling import Span, Timeline


def overlapping(timeline: Timeline) -> list[tuple[Span, Span]]:
    """List the neighbours on a queue that run at the same time.

    There are none in a timeline that is right; viewers cannot show them.
    """
    in_order = sorted(timeline.spans, key=attrgetter("device", "queue", "start", "end"))
    return [
        (one, other)
        for one, other in pairwise(in_order)
        if (one.device, one.queue) == (other.device, other.queue) and other.start < one.end
    ]
