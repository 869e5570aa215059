"""What a profiler's trace adds to a result: whether trace and clock agree within the noise, and how efficient it was.

The clock's figures come from timed repetitions without a profiler; the trace's come from one repetition under it. The
noise of a quantity that is computed from several cases' times is propagated from theirs: each time is changed by its
noise, one at a time, and the changes are added as squares, as independent errors are.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from backends.profiling import SpanKind
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.metrics import Formula, Times
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.verdicts import MIN_NOISE
from parallel_core.system.formatting import figure, listed, percent, seconds
from parallel_core.trace_analysis.figures import CaseFigures

SECONDS, DISPATCH = "seconds", "dispatch_fraction"
MAX_RATIO = 2.0
"""If trace and clock differ by more for the same repetition, they do not measure the same thing."""
KIND_IN_WORDS: dict[SpanKind, str] = {"compute": "computations", "copy": "copies", "exchange": "exchanges"}


class Compared(NamedTuple):
    """The figure of a case that is compared with a metric of a result, and the sentence about both."""

    figure: str
    sentence: str
    in_percent: bool


HIDDEN = Compared(
    "hidden_of_shorter",
    "by the trace {trace} of the shorter part lay under the other, by the clock {clock} of it was saved",
    in_percent=True,
)

COMPARED: Mapping[tuple[str, str], Compared] = {
    ("run and copy together", "overlap_efficiency"): HIDDEN,
    ("together the book's way", "book_overlap_efficiency"): HIDDEN,
    # A device with several workers counts once, alone as together.
    ("on all together", "parallel_speedup"): Compared(
        "devices_at_once",
        "by the trace {trace} devices worked at once, by the clock all together were {clock} × as fast",
        in_percent=False,
    ),
}
"""By case and metric: those that clock and trace both give."""


@dataclass(frozen=True)
class Agreement:
    """One quantity of one case, by trace and by clock. They may differ by `noise`, in the same unit, by chance."""

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

    @property
    def too_noisy(self) -> bool:
        """Whether the noise is as large as the time itself, or as any share: then nothing can disagree."""
        whole = 0.0 if self.quantity == SECONDS else 1.0
        return self.noise >= max(abs(self.by_trace), abs(self.by_clock), whole)


@dataclass(frozen=True)
class Overhead:
    """How many times as long each case took under the profiler, by the clock: for each case, and the median."""

    ratios: Mapping[str, float]
    median: float
    sentence: str


def agreements(result: Result, figures: Sequence[CaseFigures], profiled: Mapping[str, float]) -> tuple[Agreement, ...]:
    """Compare the clock's figures with the trace's: the experiment's own first, then each case's time and dispatch.

    `profiled` holds the seconds that the profiled repetition of each case took by the clock, as `Case.again` returns
    them. Cases that only one side has are left out; so is the dispatch of cases that run several times within one
    timing, because control returns several times in them.
    """
    cases = {case.name: case for case in result.cases}
    traced = {one.case: one for one in figures if one.seconds > 0}
    compared = [one for case, metric in COMPARED for one in _of_metric(case, metric, result, cases, traced)]
    for name, case in cases.items():
        if name in traced:
            compared += _of_case(case, traced[name], profiled.get(name))
    return tuple(compared)


def overhead(result: Result, profiled: Mapping[str, float]) -> Overhead | None:
    """Compare the seconds of profiled repetitions with the medians without, both by the clock; None if none are."""
    ratios = {
        case.name: profiled[case.name] / (case.median * case.share) for case in result.cases if case.name in profiled
    }
    if not ratios:
        return None
    typical = median(ratios.values())
    of = "one case" if len(ratios) == 1 else f"median of {len(ratios)} cases"
    return Overhead(ratios, typical, f"Under the profiler it took {typical:.2f} × as long ({of}).")


def _repetition_noise(case: Case) -> float:
    return max(case.spread, MIN_NOISE)


def propagated(formula: Formula, times: Mapping[str, float], noises: Mapping[str, float]) -> float:
    """Return the noise of what a formula gives of cases' times; the noise of each time is a share of it."""

    def changed(case: str, factor: float) -> float:
        # A case's own parts are all others.
        cases = {name: Case(name, (), (), parts=tuple(times)[:-1]) for name in times}
        return float(formula(Times(lambda name, _: times[name] * (factor if name == case else 1), cases)))

    return math.hypot(*((changed(case, 1 + noise) - changed(case, 1 - noise)) / 2 for case, noise in noises.items()))


def _of_metric(
    case: str, metric: str, result: Result, cases: Mapping[str, Case], traced: Mapping[str, CaseFigures]
) -> list[Agreement]:
    if case not in cases or case not in traced or metric not in result.metrics:
        return []
    used, figures, compared = (*cases[case].parts, case), traced[case], COMPARED[case, metric]
    by_trace, by_clock = getattr(figures, compared.figure), result.metrics[metric]
    formula = EXPERIMENTS[result.experiment].metric_named(metric).formula
    if by_trace is None or not math.isfinite(by_clock) or not all(map(cases.__contains__, used)) or formula is None:
        return []
    # The noise may reach the whole median, and a time of 0 has no speedup.
    noises = {name: min(_repetition_noise(cases[name]), 0.99) for name in used}
    noise = propagated(formula, {name: cases[name].median for name in used}, noises)
    write = percent if compared.in_percent else figure
    sentence = compared.sentence.format(trace=write(by_trace), clock=write(by_clock))
    parts = [traced[part] for part in used[:-1] if part in traced]
    one = Agreement(case, metric, by_trace, by_clock, noise, sentence)
    return [_with_verdict(one, write(noise), explain_difference(figures, parts, by_trace > by_clock))]


def _with_verdict(one: Agreement, noise: str, reason: str) -> Agreement:
    if one.too_noisy and one.agree:
        return replace(one, sentence=f"{one.sentence}: too noisy to tell whether they agree (± {noise}).")
    agree, differ = f"agree within the noise (± {noise}).", f"differ by more than the noise (± {noise}). {reason}"
    return replace(one, sentence=f"{one.sentence}: they {agree if one.agree else differ}")


def _of_case(case: Case, figures: CaseFigures, profiled: float | None) -> list[Agreement]:
    traced, by_clock = figures.seconds / case.repeats, case.median * case.share
    noise = _repetition_noise(case) * by_clock
    sentence = f"{seconds(traced)} by the trace, {seconds(by_clock)} by the clock"
    if case.share < 1:
        sentence += f", which is {percent(case.share)} of what was timed"
    if profiled is not None and not 1 / MAX_RATIO < traced / profiled < MAX_RATIO:
        # Something may still be running when the clock stops, and a trace may be incomplete.
        sentence += (
            f", which read {seconds(profiled)} for the repetition that was traced: the two do not measure the same "
            "thing, or the trace is incomplete."
        )
        return [Agreement(case.name, SECONDS, traced, by_clock, noise, sentence)]
    reason = (
        f"Under the profiler it took {traced / by_clock:.2f} × as long."
        if traced > by_clock
        else "The trace does not show what Python did before its first call and after its last, or it is incomplete."
    )
    one = Agreement(case.name, SECONDS, traced, by_clock, noise, sentence)
    return [_with_verdict(one, percent(noise / by_clock), reason), *_of_dispatch(case, figures)]


def _of_dispatch(case: Case, figures: CaseFigures) -> list[Agreement]:
    if figures.dispatch_fraction is None or case.repeats > 1 or len(case.dispatch_seconds) != len(case.seconds):
        return []
    shares = [sent / done for sent, done in zip(case.dispatch_seconds, case.seconds, strict=True)]
    # Both are shares of the same time, and so is the noise.
    noise = max((max(shares) - min(shares)) / 2, MIN_NOISE)
    by_trace, by_clock = figures.dispatch_fraction, case.dispatch_median / case.median
    sentence = f"control returned after {percent(by_trace)} of the time by the trace, {percent(by_clock)} by the clock"
    reason = (
        "Launching takes longer under the profiler."
        if by_trace > by_clock
        else "Python was busy before its first call or after its last, or the whole took longer under the profiler."
    )
    one = Agreement(case.name, DISPATCH, by_trace, by_clock, noise, sentence)
    return [_with_verdict(one, percent(noise), reason)]


def stretches(together: CaseFigures, parts: Sequence[CaseFigures]) -> dict[SpanKind, float]:
    """Return how many times as long an operation of each kind took together as in the parts, on average."""
    ratios: dict[SpanKind, float] = {}
    means = {row.kind: row.mean_seconds for row in together.kinds}
    for kind in KIND_IN_WORDS:
        alone = [row for part in parts for row in part.kinds if row.kind == kind]
        seconds = sum(row.spans * row.mean_seconds for row in alone)
        if seconds and kind in means:
            ratios[kind] = means[kind] / (seconds / sum(row.spans for row in alone))
    return ratios


def explain_difference(together: CaseFigures, parts: Sequence[CaseFigures], trace_is_more: bool) -> str:
    """Explain in a sentence why the time saved is less than the overlap (`trace_is_more`), or more than it.

    Operations that slow each other down overlap and save nothing; idle time, of all or of the parts, does not overlap.
    """
    reasons = []
    for kind, factor in stretches(together, parts).items():
        if abs(factor - 1) > MIN_NOISE and (factor > 1) == trace_is_more:
            only = "" if trace_is_more else "only "
            reasons.append(f"{KIND_IN_WORDS[kind]} took {only}{figure(factor)} × as long as alone")
    if trace_is_more and together.idle_share > MIN_NOISE:
        reasons.append(f"no operation ran in {percent(together.idle_share)} of the time together")
    elif not trace_is_more:
        reasons += [
            f"alone, no operation ran in {percent(part.idle_share)} of the time of “{part.case}”"
            for part in parts
            if part.idle_share > MIN_NOISE
        ]
    if not reasons:
        return "The trace does not show why: the operations took as long as alone, with few gaps between them."
    joined = listed(reasons)
    return f"{joined[0].upper()}{joined[1:]}."


def about_efficiency(case: CaseFigures) -> str:
    """Say how many devices worked at once, what was hidden, and when nothing ran; empty if nothing was recorded.

    Of a case that the profiler slowed down only that is said.
    """
    if case.devices_at_once is None:
        return ""
    if case.slowed_in_words:
        return f"The trace of “{case.case}” says nothing of its efficiency; it was {case.slowed_in_words}."
    share = case.hidden_of_shorter
    hidden = "" if share is None else f", {percent(share)} of the shorter of computing and communicating was hidden"
    return (
        f"By the trace of “{case.case}” {figure(case.devices_at_once)} of {len(case.devices)} devices worked at the "
        f"same time, on average{hidden}, and nothing ran for {percent(case.idle_share)} of the time."
    )
