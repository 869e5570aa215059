"""Repeat a result's cases once under the framework's own profiler, after everything that is
reported was timed.

What its trace adds to the result is whether trace and clock agree within the noise, and how
efficient it was. The clock's figures come from timed repetitions without a profiler; the trace's
come from one repetition under it. The noise of a quantity that is computed from several cases'
times is propagated from theirs: each time is changed by its noise, one at a time, and the changes
are added as squares, as independent errors are.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from backends import Backend
from backends.profiling import Timeline, case_text, run_profiler
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.formulas import Formula, Times
from parallel_core.experiments.workloads import BESIDE
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.timing import without_garbage_collection
from parallel_core.measurement.verdicts import MIN_NOISE
from parallel_core.system.errors import MeasurementError
from parallel_core.system.formatting import figure, framework_in_words, percent, seconds
from parallel_core.trace_analysis.figures import CaseFigures
from parallel_core.trace_analysis.trace_files import read_timeline

MAX_PROFILED_CASES = 8
"""If a result has more, only the cases that a comparison shows, and their parts, are repeated."""

SECONDS, DISPATCH = "seconds", "dispatch_fraction"
COMPARED: Mapping[tuple[str, str], str] = {
    ("run and copy together", "overlap_efficiency"): "hidden_of_shorter",
    ("together the book's way", "book_overlap_efficiency"): "hidden_of_shorter",
    # A device with several workers counts once, in isolation as together.
    ("on all together", "parallel_speedup"): "devices_at_once",
}
"""By case and metric, the figure of the case that says the same by the trace."""
CAUSES: Mapping[str, str] = {
    SECONDS: "Calls take longer under the profiler; a trace lacks what Python did before its first "
    "call and after its "
    "last, and may be incomplete.",
    DISPATCH: "Launching takes longer under the profiler; Python was busy before its first call or "
    "after its last.",
}
"""By quantity, what may make trace and clock differ."""
CAUSE = (
    "Operations that slow each other down overlap and save no time; time that single parts "
    "were idle is saved."
)
"""The same, of metrics."""


@dataclass(frozen=True)
class Profile:
    """What the profiler recorded, and how many seconds each repetition took by the clock
    meanwhile.
    """

    timeline: Timeline
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Agreement:
    """One quantity of one case, by trace and by clock. They may differ by `noise`, in the same
    unit, by chance.
    """

    case: str
    quantity: str
    by_trace: float
    by_clock: float
    noise: float

    @property
    def agree(self) -> bool:
        """Whether the two differ by no more than the noise."""
        return abs(self.by_trace - self.by_clock) <= self.noise

    @property
    def too_noisy(self) -> bool:
        """Whether the noise is as large as the time itself, or as any share: then nothing can
        disagree.
        """
        whole = 0.0 if self.quantity == SECONDS else 1.0
        return self.noise >= max(abs(self.by_trace), abs(self.by_clock), whole)

    @property
    def sentence(self) -> str:
        """What is said if the two do not agree."""
        write = seconds if self.quantity == SECONDS else figure
        trace, clock, noise = map(write, (self.by_trace, self.by_clock, self.noise))
        apart = (
            f"{self.quantity} {trace} by the trace, {clock} by the clock, more apart than the "
            f"noise (± {noise})."
        )
        return f"{apart} {CAUSES.get(self.quantity, CAUSE)}"


def profile(backend: Backend, result: Result) -> Profile:
    """Repeat cases of a result that `backend` gave in this process, within
    `measurement.repeatable`.

    Raises MeasurementError if none of them can be repeated; BackendError if there is no profiler.
    """
    cases, notes = _cases_to_repeat(result)
    if not cases:
        raise MeasurementError(
            f"no case of this result of {result.experiment} can be repeated under a profiler"
        )
    seconds_of_case = {}
    # Bound before the profiler marks the verbs: these waits are no part of a case.
    wait_unmarked = backend.waitall
    with TemporaryDirectory(prefix="parallel-core-") as folder:
        path = Path(folder) / "trace.json"
        with without_garbage_collection(), run_profiler(backend, path) as mark:
            for number, case in enumerate(cases):
                assert case.again is not None
                tell(case.name, number / (len(cases) + 1))
                # A thread's first events cost a profiler more than the rest.
                case.again()
                wait_unmarked()
                with mark(case_text(case.name)):
                    _, seconds_of_case[case.name] = case.again()
                    wait_unmarked()
        tell("reading what was recorded", len(cases) / (len(cases) + 1))
        timeline = read_timeline(path)
    source = framework_in_words(result.backend)
    timed = {case.name: case.again_seconds for case in cases}
    whole = replace(
        timeline,
        source=source,
        notes=(*timeline.notes, *notes),
        timed=timed,
        experiment=result.experiment,
    )
    return Profile(whole, seconds_of_case)


def seconds_unprofiled(result: Result) -> float:
    """Return how long the cases that are profiled take without a profiler: each is repeated
    twice.
    """
    cases, _ = _cases_to_repeat(result)
    return sum(2 * case.repeats * median(case.seconds) for case in cases)


def agreements(result: Result, figures: Sequence[CaseFigures]) -> tuple[Agreement, ...]:
    """Compare the clock's figures with the trace's: the experiment's own first, then each case's
    time and dispatch.

    Cases that only one side has are left out; so is the dispatch of cases that run several times
    within one timing, because control returns several times in them.
    """
    by_trace = {traced.case: traced for traced in figures if traced.seconds > 0}
    cases = {case.name: case for case in result.cases}
    of_metrics: list[Agreement] = []
    of_cases: list[Agreement] = []
    for name, case in cases.items():
        if name in by_trace:
            of_metrics += _of_metrics(case, by_trace[name], result, cases)
            of_cases += _of_case(case, by_trace[name])
    return *of_metrics, *of_cases


def overhead(result: Result, profiled: Mapping[str, float]) -> str:
    """Say how long profiled repetitions took beside the medians without, both by the clock."""
    ratios = [
        profiled[case.name] / (case.median * case.share)
        for case in result.cases
        if case.name in profiled
    ]
    basis = "one case" if len(ratios) == 1 else f"median of {len(ratios)} cases"
    return f"Under the profiler it took {median(ratios):.2f} × its time without ({basis})."


def propagated(formula: Formula, times: Mapping[str, float], noises: Mapping[str, float]) -> float:
    """Return the noise of what a formula gives of cases' times; the noise of each time is a share
    of it.

    The last of the times is that of a case whose parts are the others.
    """
    parts = tuple(times)[:-1]
    cases = {name: Case(name, (), (), parts=parts) for name in times}

    def value(changed_times: Mapping[str, float]) -> float:
        return float(formula(Times(lambda name, _: changed_times[name], cases)))

    half_changes = []
    for name, noise in noises.items():
        longer = value({**times, name: times[name] * (1 + noise)})
        shorter = value({**times, name: times[name] * (1 - noise)})
        half_changes.append((longer - shorter) / 2)
    return math.hypot(*half_changes)


def about_efficiency(case: CaseFigures) -> str:
    """Say how many devices worked at once, what was hidden, and when nothing ran; empty if nothing
    was recorded.

    Of a case that the profiler slowed down only that is said.
    """
    if case.devices_at_once is None:
        return ""
    if case.slowed_in_words:
        return (
            f"The trace of “{case.case}” says nothing of its efficiency; it was "
            f"{case.slowed_in_words}."
        )
    hidden = ""
    if case.hidden_of_shorter is not None:
        share = percent(case.hidden_of_shorter)
        hidden = f", {share} of the shorter of computing and communicating was hidden"
    return (
        f"By the trace of “{case.case}” {figure(case.devices_at_once)} of {len(case.devices)} "
        f"devices worked at the same time, on average{hidden}, and nothing ran for "
        f"{percent(case.idle_share)} of the time."
    )


def _cases_to_repeat(result: Result) -> tuple[Sequence[Case], Sequence[str]]:
    """Return the cases that are repeated under the profiler, and a note if others are not."""
    # A trace of the whole shows what goes on beside what.
    repeatable = [case for case in result.cases if case.again and case.name != BESIDE]
    if len(repeatable) <= MAX_PROFILED_CASES:
        return repeatable, ()
    experiment = EXPERIMENTS[result.experiment]
    names = {experiment.case, experiment.queued_case, experiment.drawn_case}
    parts: set[str] = set()
    for case in repeatable:
        if case.name in names:
            parts.update(case.parts)
    chosen = [case for case in repeatable if case.name in names | parts]
    if not chosen:
        chosen = repeatable[-MAX_PROFILED_CASES:]
    note = f"{len(chosen)} of {len(repeatable)} cases were repeated under the profiler"
    return chosen, (note,)


def _of_metrics(
    case: Case, traced: CaseFigures, result: Result, cases: Mapping[str, Case]
) -> Iterator[Agreement]:
    """Compare the metrics of an experiment that a case's trace has, too."""
    used = (*case.parts, case.name)
    if any(part not in cases for part in used):
        return
    medians = {part: cases[part].median for part in used}
    # The noise may reach the whole median, and a time of 0 has no speedup.
    noises = {part: min(_noise(cases[part]), 0.99) for part in used}
    for (name, metric), figure_name in COMPARED.items():
        if name != case.name or metric not in result.metrics:
            continue
        by_trace, by_clock = getattr(traced, figure_name), result.metrics[metric]
        formula = EXPERIMENTS[result.experiment].metric_named(metric).formula
        if by_trace is not None and math.isfinite(by_clock) and formula is not None:
            noise = propagated(formula, medians, noises)
            yield Agreement(name, metric, by_trace, by_clock, noise)


def _of_case(case: Case, traced: CaseFigures) -> Iterator[Agreement]:
    """Compare a case's time and, if it runs once within a timing, its dispatch."""
    by_clock = case.median * case.share
    by_trace = traced.seconds / case.repeats
    yield Agreement(case.name, SECONDS, by_trace, by_clock, _noise(case) * by_clock)
    if traced.dispatch_fraction is None or case.repeats != 1:
        return
    if len(case.dispatch_seconds) != len(case.seconds):
        return
    shares = []
    for dispatched, done in zip(case.dispatch_seconds, case.seconds, strict=True):
        shares.append(dispatched / done)
    # Both are shares of the same time, and so is the noise.
    noise = max((max(shares) - min(shares)) / 2, MIN_NOISE)
    share = case.dispatch_median / case.median
    yield Agreement(case.name, DISPATCH, traced.dispatch_fraction, share, noise)


def _noise(case: Case) -> float:
    """Return by what share of it a case's time may differ by chance."""
    return max(case.spread, MIN_NOISE)
