"""Repeat a result's cases once under the framework's own profiler, when all that is reported has been timed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from backends import Backend
from backends.profiling import Timeline, case_text
from backends.profiling import profile as run_profiler
from parallel_core.errors import MeasurementError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.formatting import engine_in_words
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.timing import uncollected
from parallel_core.trace_analysis.trace_files import read_timeline

__all__ = ["MAX_CASES", "Profile", "profile", "shown_case"]

MAX_CASES = 8
"""Where a result has more, those are repeated that a comparison shows, and their parts."""


@dataclass(frozen=True)
class Profile:
    """What the profiler saw, and the seconds that each repetition took by the clock meanwhile."""

    timeline: Timeline
    seconds: Mapping[str, float]


def profile(backend: Backend, result: Result) -> Profile:
    """Repeat cases of a result that `backend` gave in this process, within `measurement.repeatable`.

    Raises MeasurementError where none of them can be repeated; BackendError where there is no profiler.
    """
    cases, left_out = chosen(result)
    if not cases:
        raise MeasurementError(f"no case of this result of {result.experiment} can be repeated under a profiler")
    seconds = {}
    # Taken before the profiler's marks stand around it: what is waited for here is no part of a case.
    wait_unseen = backend.waitall
    with TemporaryDirectory(prefix="parallel-core-") as folder:
        path = Path(folder) / "trace.json"
        with uncollected(), run_profiler(backend, path) as mark:
            for case in cases:
                assert case.again is not None
                # A thread's first events cost a profiler more than the rest.
                case.again()
                wait_unseen()
                with mark(case_text(case.name)):
                    _, seconds[case.name] = case.again()
                    wait_unseen()
        timeline = read_timeline(path)
    return Profile(
        replace(
            timeline,
            source=f"{backend.name} {backend.version}, {engine_in_words(result.backend)}",
            notes=(*timeline.notes, *left_out),
        ),
        seconds,
    )


def chosen(result: Result) -> tuple[Sequence[Case], Sequence[str]]:
    """Return the cases to repeat, and a sentence about those that are left out."""
    repeatable = [case for case in result.cases if case.again]
    if len(repeatable) <= MAX_CASES:
        return repeatable, ()
    described = EXPERIMENTS[result.experiment]
    shown = {described.case, described.queued_case}
    parts = {part for case in repeatable if case.name in shown for part in case.parts}
    some = [case for case in repeatable if case.name in shown | parts] or repeatable[-MAX_CASES:]
    return some, (f"{len(some)} of {len(repeatable)} cases were repeated under the profiler",)


def shown_case(names: Sequence[str], usual: str) -> str:
    """Return which of some cases is shown in full: the usual one, or the last where that was not repeated."""
    return usual if usual in names else names[-1]
