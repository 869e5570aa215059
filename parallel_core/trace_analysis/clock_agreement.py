"""The same quantity by the trace and by the clock, and whether the two agree within the noise.

The clock's figures come from timed repetitions without a profiler; the trace's come from one repetition under it. A
quantity of several cases' times is as uncertain as they make it: each time is moved by its noise, one at a time, and
the changes are added as squares, as errors that do not know of each other are.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from humanize import metric

from backends.profiling import Kind
from parallel_core.formatting import figure, listed, percent
from parallel_core.measurement.checks import MIN_NOISE
from parallel_core.measurement.result import Case, Result
from parallel_core.trace_analysis.figures import CaseFigures

__all__ = [
    "COMPARED",
    "DISPATCH",
    "SECONDS",
    "Agreement",
    "Compared",
    "Overhead",
    "agreements",
    "overhead",
    "stretches",
    "why",
]


SECONDS, DISPATCH = "seconds", "dispatch_fraction"


OTHER_THING = 2.0
"""Where the same repetition took so many times as long by one of the two, they do not measure the same thing."""


Times = Sequence[float]


class Compared(NamedTuple):
    """Which metric of a result is held against which figure of which case, and in what words.

    `by_clock` computes the metric from the median times of the case's parts and then of the case itself.
    """

    case: str
    metric: str
    by_trace: Callable[[CaseFigures], float | None]
    by_clock: Callable[[Times], float]
    words: str
    write: Callable[[float], str]


@dataclass(frozen=True)
class Agreement:
    """One quantity of one case, both ways. `noise` is by how much they may differ by chance, in the same unit."""

    case: str
    quantity: str
    by_trace: float
    by_clock: float
    noise: float
    sentence: str

    @property
    def agree(self) -> bool:
        """Whether the two differ by no more than the noise."""
        return abs(self.by_trace - self.by_clock) <= self.noise


@dataclass(frozen=True)
class Overhead:
    """How many times as long each case took under the profiler, by the clock: by case, and the median of them."""

    ratios: Mapping[str, float]
    median: float
    sentence: str


def saved_share(times: Times) -> float:
    """Return the time saved as a share of the shorter part, as `overlap` does: two parts, then both together."""
    one, other, together = times
    return (one + other - together) / min(one, other)


def speedup(times: Times) -> float:
    """Return the parts' times over the time of all together, which comes last."""
    *parts, together = times
    return sum(parts) / together


def _overlap_of(case: str, name: str) -> Compared:
    words = "{trace} of the shorter part lay under the other by the trace, {clock} of it was saved by the clock"
    return Compared(case, name, lambda found: found.hidden_of_shorter, saved_share, words, percent)


COMPARED: Mapping[str, tuple[Compared, ...]] = MappingProxyType(
    {
        "overlap": (
            _overlap_of("run and copy together", "overlap_efficiency"),
            _overlap_of("together the book's way", "book_overlap_efficiency"),
        ),
        "parallel": (
            Compared(
                "on all together",
                "parallel_speedup",
                # A device whose queue is served by several workers counts once, alone as together.
                lambda found: found.devices_at_once,
                speedup,
                "{trace} devices worked at once by the trace, together was {clock} × as fast by the clock",
                figure,
            ),
        ),
    }
)
"""By experiment: the figures that clock and trace both give."""


def agreements(result: Result, figures: Sequence[CaseFigures], profiled: Mapping[str, float]) -> tuple[Agreement, ...]:
    """Hold the clock's figures against the trace's: the experiment's own first, then each case's time and dispatch.

    `profiled` holds the seconds that the profiled repetition of each case took by the clock, as `Case.again` returns
    them. Cases that only one side knows are left out; so is the dispatch of cases that were done several times within
    one timing, where control returns several times.
    """
    cases = {case.name: case for case in result.cases}
    traced = {found.case: found for found in figures if found.seconds > 0}
    made = [
        one
        for compared in COMPARED.get(result.experiment, ())
        if (one := _of_metric(compared, result, cases, traced)) is not None
    ]
    for name, case in cases.items():
        if name in traced:
            made += _of_case(case, traced[name], profiled.get(name))
    return tuple(made)


def overhead(result: Result, profiled: Mapping[str, float]) -> Overhead | None:
    """Compare the seconds of profiled repetitions with the medians without, all by the clock; None for none."""
    ratios = {
        case.name: profiled[case.name] / (case.median * case.share) for case in result.cases if case.name in profiled
    }
    if not ratios:
        return None
    typical = median(ratios.values())
    of = "one case" if len(ratios) == 1 else f"median of {len(ratios)} cases"
    return Overhead(MappingProxyType(ratios), typical, f"Under the profiler it took {typical:.2f} × as long ({of}).")


def noise_of(case: Case) -> float:
    """Return by what share a single repetition of a case may differ from its median."""
    return max(case.spread, MIN_NOISE)


def propagated(quantity: Callable[[Times], float], times: Times, noises: Times) -> float:
    """Return the noise of a quantity of times, each of which is known up to a share of itself."""
    changes = []
    for place, noise in enumerate(noises):
        more, less = ([*times[:place], times[place] * factor, *times[place + 1 :]] for factor in (1 + noise, 1 - noise))
        changes.append((quantity(more) - quantity(less)) / 2)
    return math.hypot(*changes)


def _of_metric(
    compared: Compared, result: Result, cases: Mapping[str, Case], traced: Mapping[str, CaseFigures]
) -> Agreement | None:
    if compared.case not in cases or compared.case not in traced or compared.metric not in result.metrics:
        return None
    together, found = cases[compared.case], traced[compared.case]
    by_trace, by_clock = compared.by_trace(found), result.metrics[compared.metric]
    if by_trace is None or not math.isfinite(by_clock) or not all(part in cases for part in together.parts):
        return None
    used = [*(cases[part] for part in together.parts), together]
    # Half a repetition's range may reach the whole median, and nothing takes no time.
    noises = [min(noise_of(case), 0.99) for case in used]
    noise = propagated(compared.by_clock, [case.median for case in used], noises)
    told = compared.words.format(trace=compared.write(by_trace), clock=compared.write(by_clock))
    if abs(by_trace - by_clock) > noise:
        parts = [traced[part] for part in together.parts if part in traced]
        told += f": more apart than the noise (± {compared.write(noise)}). {why(found, parts, by_trace > by_clock)}"
    else:
        told += f": they agree within the noise (± {compared.write(noise)})."
    return Agreement(compared.case, compared.metric, by_trace, by_clock, noise, told)


def _of_case(case: Case, found: CaseFigures, profiled: float | None) -> list[Agreement]:
    seconds, by_clock = found.seconds / case.repeats, case.median * case.share
    noise = noise_of(case) * by_clock
    told = f"{metric(seconds, 's')} by the trace, {metric(by_clock, 's')} by the clock"
    if case.share < 1:
        told += f", which is {percent(case.share)} of what was timed"
    if profiled is not None and not 1 / OTHER_THING < seconds / profiled < OTHER_THING:
        # Something may still be running when the clock stops, and a trace may be incomplete.
        told += (
            f", which read {metric(profiled, 's')} for the repetition that was traced: the two do not measure the same "
            "thing, or the trace is not whole."
        )
        return [Agreement(case.name, SECONDS, seconds, by_clock, noise, told)]
    if abs(seconds - by_clock) <= noise:
        told += f": they agree within the noise (± {percent(noise / by_clock)})."
    elif seconds > by_clock:
        told += (
            f": under the profiler it took {seconds / by_clock:.2f} × as long, which is more than the noise "
            f"(± {percent(noise / by_clock)})."
        )
    else:
        told += (
            f": more apart than the noise (± {percent(noise / by_clock)}). The trace does not show what Python did "
            "before its first call and after its last, or it is not whole."
        )
    return [Agreement(case.name, SECONDS, seconds, by_clock, noise, told), *_of_dispatch(case, found)]


def _of_dispatch(case: Case, found: CaseFigures) -> list[Agreement]:
    if found.dispatch_fraction is None or case.repeats > 1 or len(case.dispatch_seconds) != len(case.seconds):
        return []
    shares = [sent / done for sent, done in zip(case.dispatch_seconds, case.seconds, strict=True)]
    # Both are shares of the same time, and so is the least noise.
    noise = max((max(shares) - min(shares)) / 2, MIN_NOISE)
    by_trace, by_clock = found.dispatch_fraction, case.dispatch_median / case.median
    told = f"control returned after {percent(by_trace)} of the time by the trace, {percent(by_clock)} by the clock"
    if abs(by_trace - by_clock) <= noise:
        told += f": they agree within the noise (± {percent(noise)})."
    else:
        told += f": more apart than the noise (± {percent(noise)}). "
        told += (
            "Launching takes longer under the profiler."
            if by_trace > by_clock
            else "Python was busy before its first call or after its last, or the whole took longer under the profiler."
        )
    return [Agreement(case.name, DISPATCH, by_trace, by_clock, noise, told)]


WORDS: dict[Kind, str] = {"compute": "computations", "copy": "copies", "exchange": "exchanges"}


def stretches(together: CaseFigures, parts: Sequence[CaseFigures]) -> dict[Kind, float]:
    """Return how many times as long an operation of each kind took together as in the parts, on average."""
    found: dict[Kind, float] = {}
    for kind in WORDS:
        alone = [row for part in parts for row in part.kinds if row.kind == kind]
        seconds, mean = sum(row.spans * row.mean_seconds for row in alone), together.mean_of(kind)
        if seconds and mean is not None:
            found[kind] = mean / (seconds / sum(row.spans for row in alone))
    return found


def why(together: CaseFigures, parts: Sequence[CaseFigures], trace_is_more: bool) -> str:
    """Say in a sentence what made the saving less than the overlap (`trace_is_more`), or more than it.

    Operations that slow each other down overlap and save nothing; idle time, of all or of the parts, is in no overlap.
    """
    reasons = []
    for kind, factor in stretches(together, parts).items():
        if trace_is_more and factor > 1 + MIN_NOISE:
            reasons.append(f"{WORDS[kind]} took {figure(factor)} × as long as alone")
        elif not trace_is_more and factor < 1 - MIN_NOISE:
            reasons.append(f"{WORDS[kind]} took only {figure(factor)} × as long as alone")
    if trace_is_more and together.idle_share > MIN_NOISE:
        reasons.append(f"no operation ran in {percent(together.idle_share)} of the time together")
    elif not trace_is_more:
        reasons += [
            f"alone, no operation ran in {percent(part.idle_share)} of the time of “{part.case}”"
            for part in parts
            if part.idle_share > MIN_NOISE
        ]
    if not reasons:
        return "The trace does not tell why: the operations took as long as alone, with few gaps between them."
    said = listed(reasons)
    return f"{said[0].upper()}{said[1:]}."
