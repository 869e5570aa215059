"""What a reader must know before he trusts a trace's figures: rules, each with its sentence.

A rule looks at the whole timeline, before any step is cut out of it.
"""

import re
from collections.abc import Callable, Iterator

import numpy as np

from backends.profiling import HOST_DEVICE, Timeline
from backends.profiling.collectives import named_like_collectives, of_unknown_names
from backends.profiling.slices import coded
from backends.profiling.timeline import UNKNOWN
from parallel_core.system.formatting import listed, seconds
from parallel_core.traces.case_spans import groups_of
from parallel_core.traces.steps.figures import step_windows
from parallel_core.traces.steps.pauses import unrecorded_time
from parallel_core.traces.waits import waits_for_nothing

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
LANE = re.compile(r"^(stream \d+) \(\d+\)$")
"""How a reader calls a further lane for operations that a stream seems to run at once."""


def notes_of(timeline: Timeline) -> Iterator[str]:
    """Yield what the rules say of a timeline that was read from a file."""
    for rule in RULES:
        yield from rule(timeline)


def _waits_for_nothing(timeline: Timeline) -> Iterator[str]:
    """Say that the host waited for a device on which nothing was recorded."""
    waits = waits_for_nothing(timeline)
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


def _unrecorded_time(timeline: Timeline) -> Iterator[str]:
    """Say for how long nothing was recorded; where there are steps, a pause says as much."""
    if not timeline.cases and not step_windows(timeline.annotations):
        yield from unrecorded_time(timeline)


RULES: tuple[Callable[[Timeline], Iterator[str]], ...] = (
    _waits_for_nothing,
    _queues_in_order,
    named_like_collectives,
    of_unknown_names,
    _other_unit,
    _unrecorded_time,
)
