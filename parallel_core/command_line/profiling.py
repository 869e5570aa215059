"""What `run --trace` and `run --timeline` do when the result is there: profile once more, show, write."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from backends import Backend
from backends.profiling import check_profiler
from parallel_core import plots as drawing
from parallel_core.comparison.storage import reason_path
from parallel_core.errors import RequestError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.result import Result
from parallel_core.system import files
from parallel_core.terminal.timeline import show_agreements, show_figures
from parallel_core.trace_analysis.clock_agreement import agreements, overhead
from parallel_core.trace_analysis.figures import figures
from parallel_core.trace_analysis.profiling_run import profile, shown_case
from parallel_core.trace_analysis.trace_files import write_trace_file

__all__ = ["check_profiling", "profile_and_show", "profile_if_possible"]


def check_profiling(trace_path: Path | None, picture_path: Path | None, *others: Path | None) -> None:
    """Raise RequestError where one of the files could not be written, before anything is run, or two are the same."""
    asked = [path.absolute() for path in (trace_path, picture_path, *others) if path and path != files.STANDARD_OUTPUT]
    for path in asked:
        if asked.count(path) > 1:
            raise RequestError(f"two files would be written to {path}: give each its own")
    if trace_path == files.STANDARD_OUTPUT:
        raise RequestError("--trace needs a file: standard output shows what was measured")
    if trace_path is not None:
        files.check_writable(trace_path)
    if picture_path is not None:
        drawing.check_drawing(picture_path)
        files.check_writable(picture_path)


def profile_and_show(
    backend: Backend, result: Result, console: Console, trace_path: Path | None, picture_path: Path | None
) -> None:
    """Repeat a result's cases under the profiler, print what it saw beside the clock, and write what is asked for."""
    found = profile(backend, result)
    if trace_path is not None:
        write_trace_file(found.timeline, trace_path)
    if picture_path is not None:
        # Matplotlib takes half a second to import, which a run without a picture need not wait for.
        from parallel_core.plots.timeline import write_picture_file

        write_picture_file(found.timeline, picture_path)
    seen = figures(found.timeline)
    described = EXPERIMENTS[result.experiment]
    main = shown_case([one.case for one in seen], described.case)
    console.print(f"\nSeen by the profiler of {escape(found.timeline.source)}, in one more repetition", style="bold")
    show_figures(seen, console, main)
    held = agreements(result, seen, found.seconds)
    show_agreements(held, overhead(result, found.seconds), console, main, described.metric)
    for note in found.timeline.notes:
        console.print(f"· {escape(note)}")


def profile_if_possible(backend: Backend, result: Result, console: Console, trace_path: Path) -> None:
    """Do the same for a comparison, whose measurement counts also where it cannot be profiled: say why instead."""
    try:
        check_profiler(backend)
        profile_and_show(backend, result, console, trace_path, None)
    except Exception as error:
        reason = f"{error}\n".encode()
        console.print(f"no trace: {error}", markup=False)
        files.write_whole(reason_path(trace_path), lambda stream: stream.write(reason))
