"""A traced case's time beyond its bare time, divided by what happened meanwhile.

The bare time is that of the longest piece of work: a device's computations, or its communication. The trace shows how
long that piece took among the others, and what the rest of the time went to. The parts sum to the whole exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from humanize import metric

from backends.profiling import in_seconds
from parallel_core.measurement.checks import MIN_NOISE
from parallel_core.measurement.result import Case
from parallel_core.system.formatting import figure, listed, percent
from parallel_core.trace_analysis.case_spans import KINDS, MAX_SLOWDOWN, CaseSpans
from parallel_core.trace_analysis.interval_sets import gaps, intersection, total_length, union

__all__ = ["Division", "divide"]

COMPUTE = KINDS.index("compute")
COMMUNICATION = [KINDS.index("copy"), KINDS.index("exchange")]


@dataclass(frozen=True)
class Division:
    """Seconds of one traced repetition. `beyond_bare` is the sum of interference, turns, exposed and idle seconds."""

    seconds: float
    bare_seconds: float
    """What the operations take as one unit, without a profiler: the median of the process that was traced."""
    longest_seconds: float
    """How long the longest piece of work took by the trace: a device's computations, or its communication."""
    turns_seconds: float
    """How long others computed while that piece stood still: devices that take turns."""
    exposed_seconds: float
    """How long there was communication under which nothing computed, and which is not that piece itself."""
    idle_seconds: float
    """How long no device worked: gaps, and the cost of launching."""
    noise: float
    """By how much of a time it differs by chance."""

    @property
    def interference_seconds(self) -> float:
        """How much longer the longest piece took than as one unit; negative if it took less."""
        return self.longest_seconds - self.bare_seconds

    @property
    def bare_part_seconds(self) -> float:
        """How much of the time was bare: no more than the longest piece, if that took less than as one unit."""
        return min(self.bare_seconds, self.longest_seconds)

    @property
    def beyond_bare(self) -> float:
        """The time that is not bare."""
        return self.seconds - self.bare_seconds

    @property
    def sentences(self) -> tuple[str, str]:
        """The parts in words, and whether the trace agrees with the bare time."""
        parts = {
            "in which operations took longer than as one unit": self.interference_seconds,
            "in which others computed in turn": self.turns_seconds,
            "of communication under which nothing computed": self.exposed_seconds,
            "in which no device worked": self.idle_seconds,
        }
        named = [f"{metric(part, 's')} {words}" for words, part in parts.items() if part > MIN_NOISE * self.seconds]
        rest = f"beyond them are {listed(named)}" if named else f"nothing else takes {percent(MIN_NOISE)} of it"
        bare = f"{metric(self.bare_part_seconds, 's')} are bare"
        return f"Of {metric(self.seconds, 's')} under the profiler {bare}; {rest}.", self._agreement()

    def _agreement(self) -> str:
        both = f"The longest piece of work took {metric(self.longest_seconds, 's')} by the trace and "
        both += f"{metric(self.bare_seconds, 's')} as one unit"
        if abs(self.interference_seconds) <= self.noise * self.bare_seconds:
            return f"{both}: they agree within the noise (± {percent(self.noise)})."
        both += f", which differ by more than the noise (± {percent(self.noise)}): "
        if self.interference_seconds < 0:
            return f"{both}the unit took longer than its operations, and what is said of kernels is doubtful."
        return f"{both}operations took longer beside others, one by one or under the profiler, than as one unit."


def divide(spans: CaseSpans, case: Case, devices: Sequence[str]) -> Division | str:
    """Divide the traced repetition of a case, given what the clock said of it in the same process.

    `devices` are the names of the backend's own. Returns the reason, as a clause, if there is nothing to divide.
    """
    if not case.bare_seconds:
        return "it has no bare times"
    if spans.seconds > MAX_SLOWDOWN * case.again_seconds:
        return f"under the profiler it took {figure(spans.seconds / case.again_seconds)} × as long"
    device_of = np.array([device for device, _ in spans.queues], dtype=object)[spans.queue_of]
    seen = set(device_of[spans.operations])
    if not seen:
        return "its trace shows no operation on a device"
    if not seen <= set(devices):
        return "its trace does not tell the devices apart"
    compute, communicate = spans.kinds == COMPUTE, np.isin(spans.kinds, COMMUNICATION)
    pieces = [
        union(spans.intervals(own & (device_of == device))) for device in sorted(seen) for own in (compute, communicate)
    ]
    longest = max(pieces, key=total_length)
    elsewhere = gaps(longest, spans.start, spans.end)
    computing = union(spans.intervals(compute))
    taken, turns = total_length(longest), total_length(intersection(elsewhere, computing))
    exposed = total_length(intersection(elsewhere, union(computing, *pieces))) - turns
    return Division(
        seconds=spans.seconds,
        bare_seconds=median(case.bare_seconds) * case.share * case.repeats,
        longest_seconds=in_seconds(taken),
        turns_seconds=in_seconds(turns),
        exposed_seconds=in_seconds(exposed),
        idle_seconds=in_seconds(spans.nanoseconds - taken - turns - exposed),
        noise=max(case.spread, _spread(case.bare_seconds), MIN_NOISE),
    )


def _spread(times: Sequence[float]) -> float:
    return (max(times) - min(times)) / 2 / median(times)
