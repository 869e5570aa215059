"""What the framework's profiler records of a result's cases, in one more repetition."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backends import Backend
from backends.profiling import check_profiler
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.declaration import shown_case
from parallel_core.measurement.result import Result
from parallel_core.system import files
from parallel_core.trace_analysis import profiling_run
from parallel_core.trace_analysis.figures import CaseFigures, timeline_figures
from parallel_core.trace_analysis.trace_files import write_trace_file


@dataclass(frozen=True)
class Recorded:
    """What a profiler recorded of one more repetition of a result's cases."""

    profile: profiling_run.Profile
    figures: Sequence[CaseFigures]
    main: str
    """The case that is shown in full."""

    @property
    def sentence(self) -> str:
        """How efficient the main case was; empty if it was not recorded."""
        for case in self.figures:
            if case.case == self.main:
                return profiling_run.about_efficiency(case)
        return ""


def record(backend: Backend, result: Result, trace: Path | None) -> Recorded:
    """Repeat a result's cases under the profiler, and write the trace if it is wanted."""
    profile = profiling_run.profile(backend, result)
    if trace is not None:
        write_trace_file(profile.timeline, trace)
    figures = timeline_figures(profile.timeline)
    drawn_case = EXPERIMENTS[result.experiment].drawn_case
    return Recorded(profile, figures, shown_case([case.case for case in figures], drawn_case))


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
