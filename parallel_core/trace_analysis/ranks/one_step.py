"""A timeline cut to one step of the program: what it did in it, and what it launched in it, whenever that ran."""

import re
from dataclasses import replace

import numpy as np

from backends.profiling import Timeline
from backends.profiling.timeline import UNKNOWN
from parallel_core.errors import RequestError
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.device_figures.steps import steps

__all__ = ["only_step"]

NUMBER = re.compile(r"(\d+)\s*$")


def only_step(timeline: Timeline, number: int) -> Timeline:
    """Return what belongs to the step of this number. Raises RequestError if there is no such step, or none at all."""
    found = None if timeline.cases else steps(cases_of(timeline)[0])
    marked = found.steps if found else ()
    numbered = {int(match[1]): one for one in marked if (match := NUMBER.search(one.name))}
    if not numbered:
        raise RequestError("it marks no steps with numbers")
    if number not in numbered:
        raise RequestError(f"it has no step {number}, but {min(numbered)} to {max(numbered)}")
    step = numbered[number]
    start = round(step.start_seconds * 1e9)
    end = start + round(step.seconds * 1e9)
    spans = timeline.columns
    since = np.where(spans.launched == UNKNOWN, spans.starts, spans.launched)
    return replace(
        timeline,
        spans=spans.select((since >= start) & (since < end)),
        annotations=tuple(one for one in timeline.annotations if start <= one.start and one.end <= end),
    )
