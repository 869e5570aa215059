"""What a reader must know before he trusts a trace's figures: rules, each with its sentence.

A rule looks at the whole timeline, before any step is cut out of it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from backends.profiling import HOST_DEVICE, Doubt, Timeline, in_seconds
from backends.profiling.collectives import named_like_collectives, of_unknown_names
from backends.profiling.slices import coded
from backends.profiling.timeline import UNKNOWN, HostCalls, Spans
from parallel_core.system.formatting import listed, percent, seconds
from parallel_core.traces.case_spans import groups_of, lengths_within, total_length, union
from parallel_core.traces.steps.figures import step_windows
from parallel_core.traces.steps.pauses import LEAST_PAUSE

LEAST_NANOSECONDS, FEWEST_SPANS = 10, 20
"""No recording of this many operations has less time for each: a launch takes 100 times that."""
PROGRAMMATIC = 10_000
"""Nanoseconds by which an operation may begin before the one before it on its queue has ended: some
launches allow that, and clocks differ.
"""
DISORDER = 0.01
"""Operations of one queue that run at the same time for this share of its time are no chance."""

DISORDER_WORDS = (
    "{} operations on {} begin before the one before them has ended, and a queue runs them in "
    "order: its times are not right, or several queues have this name. No share of it is certain."
)
LONG = 1_000_000
"""Nanoseconds: shorter waits may be the runtime's own work."""
MOSTLY = 0.5
LEAST_GAP, SHORTEST_GAP = 0.01, 1_000_000
"""Gaps of a smaller share of the recording, or shorter ones, are the program's usual ones."""
UNUSUAL = 10
"""Gaps that are less than this many times as long as the median gap are usual ones, too."""
UNSEEN = "devices-unseen"
"""Why no figure of a recording is known on whose devices hardly anything was recorded."""
LANE = re.compile(r"^(stream \d+) \(\d+\)$")
"""How a reader calls a further lane for operations that a stream seems to run at once."""


class WaitsForNothing(NamedTuple):
    """Waits of the host during most of which nothing was recorded on a device."""

    seconds: float
    calls: tuple[str, ...]
    """The names of the calls that waited, each once."""


def waits_for_nothing(spans: Spans, calls: HostCalls | None) -> WaitsForNothing | None:
    """Return the long waits for a device on which hardly anything was recorded; None without.

    While a graph is captured nothing is to run.
    """
    if calls is None:
        return None
    waiting = calls.with_role("wait", "copy")
    waiting = waiting[calls.ends[waiting] - calls.starts[waiting] >= LONG]
    waits = calls.intervals(waiting)
    busy = union(spans.intervals(~spans.of_kind("host")))
    lengths = waits[:, 1] - waits[:, 0]
    is_captured = lengths_within(union(calls.captures), waits) > 0
    is_for_nothing = (lengths_within(busy, waits) < MOSTLY * lengths) & ~is_captured
    if not is_for_nothing.any():
        return None
    names = {calls.names[place]: None for place in calls.name_of[waiting[is_for_nothing]].tolist()}
    # Several threads may wait at the same time.
    waited = total_length(union(waits[is_for_nothing]))
    return WaitsForNothing(in_seconds(waited), tuple(names))


def doubts_about(timeline: Timeline) -> Iterator[Doubt]:
    """Yield what the reader of a file noted, and what the rules say."""
    yield from timeline.notes
    for code, rule in RULES.items():
        for sentence in rule(timeline):
            yield Doubt(code, sentence)


def in_one_line(doubts: Sequence[Doubt], has_links: bool) -> str:
    """Say whether a trace is complete, or what it lacks first."""
    if doubts:
        more = f" ({len(doubts) - 1} more: --details)" if len(doubts) > 1 else ""
        return f"Not certain: {doubts[0].sentence.rstrip('.')}{more}."
    if has_links:
        return "Complete: every launch has its operation."
    return "Nothing is known to be missing; the profiler recorded no launches."


def _waits_for_nothing(timeline: Timeline) -> Iterator[str]:
    """Say that the host waited for a device on which nothing was recorded."""
    waits = waits_for_nothing(timeline.columns, timeline.host_calls)
    if waits is not None:
        yield (
            f"for {seconds(waits.seconds)} the host waited in {listed(list(waits.calls))}, and on "
            "the device hardly anything was recorded: events are missing, or it waited for "
            "something else. What the device did then is not known."
        )


def _queues_in_order(timeline: Timeline) -> Iterator[str]:
    """Say which queues of devices run several operations at once, which a queue does not."""
    spans = timeline.columns
    # The lanes of a stream are one queue.
    streams = [(device, LANE.sub(r"\1", queue)) for device, queue in spans.queues]
    _, stream_of_queue = coded(streams)
    for places in groups_of(stream_of_queue[spans.queue_of]):
        on_queue = spans.select(places)
        device, queue = streams[on_queue.queue_of[0]]
        if device == HOST_DEVICE or device.startswith("cpu"):
            continue
        # The operation, of those before each one, that ends last.
        latest_end = np.maximum.accumulate(on_queue.ends)
        ends_last = np.where(on_queue.ends == latest_end, np.arange(len(on_queue)), 0)
        before = np.maximum.accumulate(ends_last)[:-1]
        together = np.minimum(latest_end[:-1], on_queue.ends[1:]) - on_queue.starts[1:]
        same_launch = on_queue.launched[1:] == on_queue.launched[before]
        of_a_graph = same_launch & (on_queue.launched[1:] != UNKNOWN)
        least = DISORDER * int((on_queue.ends - on_queue.starts).sum())
        is_disorder = together > PROGRAMMATIC
        if together[is_disorder & ~of_a_graph].sum() > least:
            count = int((is_disorder & ~of_a_graph).sum())
            yield DISORDER_WORDS.format(f"{count:,} of {len(on_queue):,}", f"{device} {queue}")
        elif together[is_disorder & of_a_graph].sum() > least:
            yield (
                f"operations of one launch run at the same time on {device} {queue}: they are a "
                "graph's branches, which share the name of its queue."
            )


def _other_unit(timeline: Timeline) -> Iterator[str]:
    """Say that operations are so short that the file's times are not in microseconds."""
    spans = timeline.columns
    took = int(spans.ends.max()) - int(spans.starts.min())
    if len(spans) >= FEWEST_SPANS and took < LEAST_NANOSECONDS * len(spans):
        yield (
            f"{len(spans):,} operations took {took:,} ns together: the file's times are probably "
            "not in microseconds, as the format has them, and all times here are too short."
        )


def unrecorded_time(timeline: Timeline) -> Iterator[str]:
    """Yield a note of long times in which a program without steps recorded nothing, not on a host.

    Where there are steps, a pause says as much.
    """
    if timeline.cases or step_windows(timeline.annotations):
        return
    recorded = [timeline.columns.intervals()]
    if timeline.host_calls is not None:
        recorded.append(timeline.host_calls.intervals())
    covered = union(*recorded)
    if len(covered) < 2:
        return
    start, end = int(covered[0, 0]), int(covered[-1, 1])
    lengths = covered[1:, 0] - covered[:-1, 1]
    usual = float(np.median(lengths))
    is_long = lengths >= max(SHORTEST_GAP, LEAST_GAP * (end - start), UNUSUAL * usual)
    share = int(lengths[is_long].sum()) / (end - start)
    if share < LEAST_PAUSE:
        return
    longest = int(np.argmax(lengths))
    yield (
        f"nothing was recorded in {percent(share)} of the time: longest for "
        f"{seconds(in_seconds(lengths[longest]))}, after {seconds(in_seconds(covered[longest, 1]))}"
    )


RULES: Mapping[str, Callable[[Timeline], Iterator[str]]] = {
    "waits-for-nothing": _waits_for_nothing,
    "queue-out-of-order": _queues_in_order,
    "named-like-collectives": named_like_collectives,
    "unknown-names": of_unknown_names,
    "other-unit": _other_unit,
    "unrecorded-time": unrecorded_time,
}
"""By code, in the order in which they are said."""
LACKING: Mapping[str, str] = {
    "hidden": "it is hidden but for little, or takes little time",
    UNSEEN: "hardly anything was recorded of the devices",
    "no-backward-pass": "no operator is known as one of a backward pass",
    "no-communication": "there was no communication, or no computation",
    "no-copies": "nothing was copied",
    "no-exchange": "nothing was exchanged",
    "no-gaps": "no queue was idle between two operations",
    "no-launches": "no launches of the host were recorded",
    "no-links": "no operation is linked to its launch",
    "no-operations": "nothing ran on a device",
    "no-pause": "the median step hides no long pause",
    "no-straggler": "all ranks waited about equally long, or no collective was matched",
    "no-steps": "the program marks no steps",
    "no-time": "the recording is empty",
    "not-matched": "no collective was found on all of its ranks",
    "not-said": "the traces do not record it",
    "not-timed-alone": "it was not timed without the profiler",
    "slowed-down": "the profiler slowed the steps down, so their times are not the program's",
    "single-step": "a single step has no interval",
}
"""Why a figure is unknown, by the code that its declaration names."""
