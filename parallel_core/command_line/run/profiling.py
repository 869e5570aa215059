"""`run --trace` and `run --timeline`: when the result is there, profile once more, print and write."""

from pathlib import Path

from humanize import precisedelta
from rich.console import Console

from backends import Backend
from backends.profiling import check_profiler
from parallel_core.comparison.storage import reason_path
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.result import Result
from parallel_core.plots import write_picture_file
from parallel_core.system import files
from parallel_core.terminal.console import ASIDE, terminal_console
from parallel_core.terminal.layout import show_sentence
from parallel_core.terminal.measurement_progress import measurement_progress
from parallel_core.terminal.timeline import show_agreements, show_figures, show_prices
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.clock_agreement import about_efficiency, agreements, overhead
from parallel_core.trace_analysis.device_figures.interference import interference
from parallel_core.trace_analysis.figures import timeline_figures
from parallel_core.trace_analysis.profiling_run import profile, seconds_unprofiled, shown_case
from parallel_core.trace_analysis.trace_files import write_trace_file

__all__ = ["profile_and_show", "profile_if_possible"]


def profile_and_show(
    backend: Backend, result: Result, console: Console, trace_path: Path | None, picture_path: Path | None
) -> str:
    """Repeat a result's cases under the profiler, print its figures beside the clock's, and write the files.

    Returns what the trace adds to the answer: how efficient the main case was.
    """
    duration = precisedelta(seconds_unprofiled(result), minimum_unit="seconds", format="%.2g")
    show_sentence(
        f"\nRecording it once more: {duration} without the profiler, several times that if operations are tiny",
        console,
        ASIDE,
    )
    with measurement_progress(terminal_console(stderr=True), "profiler"):
        profiled = profile(backend, result)
    timeline = profiled.timeline
    if trace_path is not None:
        write_trace_file(timeline, trace_path)
    if picture_path is not None:
        write_picture_file(timeline, picture_path)
    figures = timeline_figures(timeline)
    experiment = EXPERIMENTS[result.experiment]
    main = shown_case([case.case for case in figures], experiment.case)
    show_sentence(f"\nRecorded by the profiler of {timeline.source}, in one more repetition", console, "bold")
    show_figures(figures, console, main)
    show_prices(interference(cases_of(timeline)), console)
    compared = agreements(result, figures, profiled.seconds)
    show_agreements(compared, overhead(result, profiled.seconds), console, main, experiment.main.name)
    for note in timeline.notes:
        show_sentence(note, console, bullet="· ")
    return next((about_efficiency(case) for case in figures if case.case == main), "")


def profile_if_possible(backend: Backend, result: Result, console: Console, trace_path: Path) -> None:
    """Profile a comparison's cell; if that fails, write the reason instead, because the measurement counts anyway."""
    try:
        check_profiler(backend)
        profile_and_show(backend, result, console, trace_path, None)
    except Exception as error:
        reason = f"{error}\n".encode()
        show_sentence(f"no trace: {error}", console)
        files.write_whole(reason_path(trace_path), lambda stream: stream.write(reason))
