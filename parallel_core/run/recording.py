"""Repeat a result's cases once under the framework's own profiler, after everything that is
reported was timed.

Counts are answered from such a trace, metrics by the clock: where the two contradict each other,
the counts' own words say so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from backends import Backend
from backends.profiling import Doubt, Timeline, case_text, check_profiler, run_profiler
from backends.profiling.timeline import HOST_DEVICE
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation.asynchrony import IN_NUMPY
from parallel_core.experiments.runner.declaration import shown_case
from parallel_core.experiments.workloads import BESIDE
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.timing import without_garbage_collection
from parallel_core.system import files
from parallel_core.system.errors import MeasurementError
from parallel_core.system.formatting import figure, framework_in_words, percent
from parallel_core.traces.cases import CaseFigures, timeline_figures
from parallel_core.traces.trace_files import read_timeline, write_trace_file

MAX_PROFILED_CASES = 8
"""If a result has more, only the cases that a comparison shows, and their parts, are repeated."""


@dataclass(frozen=True)
class Profile:
    """What the profiler recorded, and how many seconds each repetition took by the clock
    meanwhile.
    """

    timeline: Timeline
    seconds: Mapping[str, float]

    @cached_property
    def figures(self) -> Sequence[CaseFigures]:
        """The figures of each case."""
        return timeline_figures(self.timeline)

    @property
    def main(self) -> str:
        """The case that is shown in full."""
        names = [case.case for case in self.figures]
        return shown_case(names, EXPERIMENTS[self.timeline.experiment].drawn_case)

    @property
    def sentence(self) -> str:
        """How efficient the main case was; empty if it was not recorded."""
        for case in self.figures:
            if case.case == self.main:
                return about_efficiency(case)
        return ""


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
    return sum(2 * case.again_seconds for case in cases)


def overhead(result: Result, profiled: Mapping[str, float]) -> str:
    """Say how long profiled repetitions took beside the medians without, both by the clock."""
    ratios = [
        profiled[case.name] / (case.median * case.share)
        for case in result.cases
        if case.name in profiled
    ]
    basis = "one case" if len(ratios) == 1 else f"median of {len(ratios)} cases"
    return f"Under the profiler it took {median(ratios):.2f} × its time without ({basis})."


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
    devices = {queue.device for queue in case.queues} - {HOST_DEVICE}
    return (
        f"By the trace of “{case.case}” {figure(case.devices_at_once)} of {len(devices)} "
        f"devices worked at the same time, on average{hidden}, and nothing ran for "
        f"{percent(case.idle_share)} of the time."
    )


def _cases_to_repeat(result: Result) -> tuple[Sequence[Case], Sequence[Doubt]]:
    """Return the cases that are repeated under the profiler, and a note if others are not."""
    # A trace of the whole shows what goes on beside what, and no profiler records NumPy.
    unseen = (BESIDE, IN_NUMPY)
    repeatable = [case for case in result.cases if case.again and case.name not in unseen]
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
    sentence = f"{len(chosen)} of {len(repeatable)} cases were repeated under the profiler"
    return chosen, (Doubt("cases-left-out", sentence),)


def record(backend: Backend, result: Result, trace: Path | None) -> Profile:
    """Repeat a result's cases under the profiler, and write the trace if it is wanted."""
    recorded = profile(backend, result)
    if trace is not None:
        write_trace_file(recorded.timeline, trace)
    return recorded


def record_if_possible(backend: Backend, result: Result, trace: Path) -> None:
    """Write the trace of one more repetition, or else the reason why there is none."""
    try:
        check_profiler(backend)
        record(backend, result, trace)
    except Exception as error:
        reason = f"{error}\n".encode()
        files.write_whole(reason_path(trace), lambda stream: stream.write(reason))


def reason_path(trace: Path) -> Path:
    """Return the file that says why there is no such trace."""
    return trace.with_name(trace.name.partition(".")[0] + ".txt")
