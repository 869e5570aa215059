"""`run EXPERIMENT` on one backend, in one process or as a rank of a job: measure, show, write,
profile, answer.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from time import monotonic
from typing import Any

from humanize import precisedelta
from rich.console import Console

import backends
from backends import Backend
from backends.profiling import check_profiler
from parallel_core.command_line.options import console_beside
from parallel_core.command_line.run.resources import arguments_of, files_of_resources
from parallel_core.comparison.storage import reason_path
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.runner.declaration import shown_case
from parallel_core.experiments.runner.guess import Guess, check_guess, judge, what_is_guessed
from parallel_core.jobs.rank import check_job, described, joined, share_gpus
from parallel_core.measurement.fresh_process import Measured
from parallel_core.measurement.result import Result
from parallel_core.measurement.timing import repeatable
from parallel_core.report.plots import check_drawing, write_picture_file
from parallel_core.system import files
from parallel_core.system.errors import DisturbedError, MeasurementError, RequestError
from parallel_core.terminal.console import ASIDE, terminal_console
from parallel_core.terminal.layout import show_sentence, show_sentences
from parallel_core.terminal.progress import measurement_progress
from parallel_core.terminal.result import show, show_again, show_answer
from parallel_core.terminal.timeline import show_agreements, show_figures, show_prices
from parallel_core.trace_analysis import profiling_run
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.figures import timeline_figures
from parallel_core.trace_analysis.interference import interference
from parallel_core.trace_analysis.trace_files import write_trace_file


def run_on_one_backend(
    experiment: Experiment,
    values: Mapping[str, Any],
    own: Mapping[str, Any],
    given: Mapping[str, Any],
    measured: list[Measured] | None,
) -> None:
    """Run an experiment with the values of all options of its command; `own` are those that not all
    commands have.

    `given` are those among them that are written on the command line and decide its work. If it is
    a rank of a job, the first rank shows and writes the result of all. A `measured` list gets the
    result.
    """
    if values["interpreters"]:
        raise RequestError(
            "--python is for several backends side by side: a single one runs in this Python"
        )
    if values["guess"] is not None:
        check_guess(values["guess"], what_is_guessed(values["guess"], experiment))
    trace_path, timeline_path = values["trace_path"], values["timeline_path"]
    where = check_job(experiment.name, values["backend"])
    if where is not None and (trace_path or timeline_path):
        raise RequestError("the profilers see one process: leave out --trace and --timeline")
    if where is not None and where.rank:
        values = {**values, "json_path": None, "plot_path": None}
    if trace_path == files.STANDARD_OUTPUT:
        raise RequestError("--trace needs a file: standard output shows what was measured")
    outputs = (
        values["json_path"],
        values["plot_path"],
        trace_path or values["trace_if_possible"],
        timeline_path,
    )
    for picture in filter(None, (values["plot_path"], timeline_path)):
        check_drawing(picture)
    files.check_outputs(*outputs, others=files_of_resources(values))
    console = console_beside(values["json_path"])
    devices = values["devices"] or (experiment.devices if where is None else 1)
    if where is not None and isinstance(devices, int):
        share_gpus(where, devices)
    settings = (
        values[name] for name in ("device_kind", "engine", "threads", "workers", "variants")
    )
    loaded = backends.load(values["backend"], devices, *settings)
    if where is None:
        if trace_path or timeline_path:
            check_profiler(loaded)
        began = monotonic()
        with _alone(experiment, values), arguments_of(experiment, loaded, values) as arguments:
            result = experiment.run(
                loaded, count=values["count"], sizes_chosen=values["sizes_chosen"], **arguments
            )
        _report_alone(result, loaded, values, given, console)
        if measured is not None:
            measured.append(Measured(result, began, monotonic()))
    else:
        with (
            joined(loaded, where, experiment.name, own) as together,
            arguments_of(experiment, together, values) as arguments,
        ):
            # The profilers see one process.
            result = experiment.run(together, count=0, **arguments)
            if together.group.rank == 0:
                _answer(result, console, _write(described(result, together), console, values))
    # A count decides without times; only a disturbance may make these invalid.
    if result.counts and (result.has_verdict or result.is_merely_disturbed or not result.problems):
        return
    if result.problems:
        error = DisturbedError if result.is_merely_disturbed else MeasurementError
        raise error(
            f"{result.experiment} on {result.backend['name']} gave an invalid result: "
            f"{result.problems[0]}"
        )
    if not result.has_verdict:
        raise DisturbedError(
            f"{result.experiment} on {result.backend['name']}: {result.explanation}"
        )


@contextmanager
def _alone(experiment: Experiment, values: Mapping[str, Any]) -> Iterator[None]:
    """Show progress while an experiment runs in this process, and keep what the profiler
    repeats.
    """
    # A training shows a separate bar.
    progress = measurement_progress(terminal_console(stderr=True), experiment.name)
    is_profiled = values["trace_path"] or values["timeline_path"] or values["trace_if_possible"]
    with (
        repeatable() if is_profiled else nullcontext(),
        progress if experiment.extent is None else nullcontext(),
    ):
        yield


def _report_alone(
    result: Result,
    loaded: Backend,
    values: Mapping[str, Any],
    given: Mapping[str, Any],
    console: Console,
) -> None:
    """Write and show a result, profile it if that was asked for, and say what repeats it."""
    trace_path, timeline_path = values["trace_path"], values["timeline_path"]
    judged = _write(result, console, values)
    by_trace = ""
    try:
        if trace_path or timeline_path:
            by_trace = profile_and_show(loaded, result, console, trace_path, timeline_path)
        elif values["trace_if_possible"] is not None:
            _profile_if_possible(loaded, result, console, values["trace_if_possible"])
    finally:
        _answer(result, console, judged, by_trace)
        show_again(result, given, console)


def _write(result: Result, console: Console, values: Mapping[str, Any]) -> Guess | None:
    """Write a result's files, with the judgement of a guess, which is returned, and then show
    it.
    """
    experiment, guess = EXPERIMENTS[result.experiment], values["guess"]
    judged = None
    if guess is not None:
        judged = judge(guess, what_is_guessed(guess, experiment), result)
    # A pipe that closes early must not cost the files, nor a full disk the table.
    try:
        files.write_json(
            values["json_path"], result.as_json() | ({"guess": judged.as_json()} if judged else {})
        )
        if values["plot_path"] is not None:
            write_picture_file(result, values["plot_path"])
    finally:
        show(result, console, answered=False)
    return judged


def _answer(result: Result, console: Console, judged: Guess | None, by_trace: str = "") -> None:
    """Print the answer, the last that is read; nothing of a trace if the result has no verdict."""
    if result.answer is not None:
        show_answer(result.answer, console, by_trace if result.has_verdict else "")
    if judged is not None:
        show_sentence(f"\n{judged.sentence}", console, "bold")


def profile_and_show(
    backend: Backend,
    result: Result,
    console: Console,
    trace_path: Path | None,
    picture_path: Path | None,
) -> str:
    """Repeat a result's cases under the profiler, print its figures beside the clock's, and write
    the files.

    Returns what the trace adds to the answer: how efficient the main case was.
    """
    duration = precisedelta(
        profiling_run.seconds_unprofiled(result), minimum_unit="seconds", format="%.2g"
    )
    show_sentence(
        f"\nRecording it once more: {duration} without the profiler, several times that if "
        "operations are tiny",
        console,
        ASIDE,
    )
    with measurement_progress(terminal_console(stderr=True), "profiler"):
        profiled = profiling_run.profile(backend, result)
    timeline = profiled.timeline
    if trace_path is not None:
        write_trace_file(timeline, trace_path)
    if picture_path is not None:
        write_picture_file(timeline, picture_path)
    figures = timeline_figures(timeline)
    experiment = EXPERIMENTS[result.experiment]
    main = shown_case([case.case for case in figures], experiment.drawn_case)
    show_sentence(
        f"\nRecorded by the profiler of {timeline.source}, in one more repetition", console, "bold"
    )
    show_figures(figures, console, main)
    show_prices(interference(cases_of(timeline)), console)
    show_agreements(profiling_run.agreements(result, figures), console, main, experiment.main.name)
    show_sentence(profiling_run.overhead(result, profiled.seconds), console, ASIDE)
    show_sentences(timeline.notes, console, bullet="· ")
    return next((profiling_run.about_efficiency(case) for case in figures if case.case == main), "")


def _profile_if_possible(
    backend: Backend, result: Result, console: Console, trace_path: Path
) -> None:
    """Profile a comparison's cell; if that fails, write the reason instead, because the measurement
    counts anyway.
    """
    try:
        check_profiler(backend)
        profile_and_show(backend, result, console, trace_path, None)
    except Exception as error:
        reason = f"{error}\n".encode()
        show_sentence(f"no trace: {error}", console)
        files.write_whole(reason_path(trace_path), lambda stream: stream.write(reason))
