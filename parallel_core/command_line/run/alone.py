"""`run EXPERIMENT` in this process alone: measure, write, record, show and answer."""

from contextlib import AbstractContextManager, nullcontext

from humanize import precisedelta
from rich.console import Console

from backends import Backend
from backends.profiling import check_profiler
from parallel_core.command_line.options import console_beside
from parallel_core.command_line.run.answer import (
    TOLD,
    refuse_files,
    refuse_invalid,
    show_guess,
    write_result,
)
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.request import Files, Request
from parallel_core.measurement.result import Result
from parallel_core.report.plots import write_picture_file
from parallel_core.run.measure import load, measure
from parallel_core.run.options import command_again
from parallel_core.run.recording import Recorded, overhead, record, seconds_unprofiled
from parallel_core.terminal.console import ASIDE, terminal_console
from parallel_core.terminal.layout import show_sentence, show_sentences
from parallel_core.terminal.progress import measurement_progress
from parallel_core.terminal.result import show
from parallel_core.terminal.timeline import show_figures, show_prices
from parallel_core.traces.case_spans import cases_of
from parallel_core.traces.evidence.interference import interference


def run_alone(request: Request) -> None:
    """Measure what is asked for, write it, and show it with its answer and command.

    Raises RequestError for what cannot be had, MeasurementError for an invalid result, and
    DisturbedError if times are disturbed and nothing was counted.
    """
    refuse_files(request)
    backend = load(request.work)
    if request.files.is_recorded:
        check_profiler(backend)
    with _progress_of(request):
        result = measure(request, backend, TOLD)
    console = console_beside(request.files.json)
    judged = recorded = None
    # The result is shown even if a disk is full or the profiler fails.
    try:
        judged = write_result(result, request)
        if request.files.is_recorded:
            recorded = record_and_draw(backend, result, request.files, console)
    finally:
        show(
            result,
            console,
            by_trace=recorded.sentence if recorded and result.has_verdict else "",
            again=command_again(request.work, result),
            with_details=request.words.details,
        )
        if recorded and request.words.details:
            _show_recorded(result, recorded, console)
        show_guess(judged, console)
    refuse_invalid(result)


def _progress_of(request: Request) -> AbstractContextManager[None]:
    """Show how far a measurement is; a training shows a separate bar."""
    experiment = EXPERIMENTS[request.work.experiment]
    if experiment.extent is not None:
        return nullcontext()
    return measurement_progress(terminal_console(stderr=True), experiment.name)


def record_and_draw(backend: Backend, result: Result, wanted: Files, console: Console) -> Recorded:
    """Repeat a result's cases under the profiler, and write the trace and a picture if wanted."""
    duration = precisedelta(seconds_unprofiled(result), minimum_unit="seconds", format="%.2g")
    show_sentence(
        f"Recording it once more: {duration} without the profiler, several times that if "
        "operations are tiny",
        console,
        ASIDE,
    )
    with measurement_progress(terminal_console(stderr=True), "profiler"):
        recorded = record(backend, result, wanted.trace)
    if wanted.trace is not None:
        show_sentence(f"Wrote {wanted.trace}: open it in ui.perfetto.dev\n", console, ASIDE)
    if wanted.timeline is not None:
        write_picture_file(recorded.profile.timeline, wanted.timeline)
    return recorded


def _show_recorded(result: Result, recorded: Recorded, console: Console) -> None:
    """Print the figures of a recording beside the clock's, and what the profiler cost."""
    timeline = recorded.profile.timeline
    show_sentence(
        f"\nRecorded by the profiler of {timeline.source}, in one more repetition", console, "bold"
    )
    show_figures(recorded.figures, console, recorded.main)
    show_prices(interference(cases_of(timeline)), console)
    show_sentence(overhead(result, recorded.profile.seconds), console, ASIDE)
    show_sentences(timeline.notes, console, bullet="· ")
