"""`run EXPERIMENT` on one backend, in this process alone or as a rank of a job: measure, write,
record, show and answer.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from humanize import precisedelta
from rich.console import Console

from backends import Backend
from backends.devices import parse_devices
from backends.process_groups import Rendezvous
from backends.profiling import check_profiler
from parallel_core.command_line.options import console_beside
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.guess import Guess, asked_for, judge
from parallel_core.jobs.rank import described, joined, share_gpus
from parallel_core.jobs.shared import supplies_of_rank
from parallel_core.measurement.request import Request
from parallel_core.measurement.result import Result
from parallel_core.report.plots import check_drawing, write_picture_file
from parallel_core.run.arguments import ShownTraining, Supplies, option_values
from parallel_core.run.measure import load, measure
from parallel_core.run.options import command_again
from parallel_core.run.recording import Profile, overhead, record, seconds_unprofiled
from parallel_core.system import files
from parallel_core.system.errors import DisturbedError, MeasurementError, RequestError
from parallel_core.terminal.console import ASIDE, terminal_console
from parallel_core.terminal.layout import show_sentence, show_sentences
from parallel_core.terminal.progress import measurement_progress, training_progress
from parallel_core.terminal.result import show
from parallel_core.terminal.timeline import show_figures, show_prices
from parallel_core.traces.case_spans import cases_of
from parallel_core.traces.evidence.interference import interference
from parallel_core.training.checkpoints import FILE


def run_alone(request: Request) -> None:
    """Measure what is asked for in this process, and answer.

    Raises RequestError for what cannot be had, MeasurementError for an invalid result, and
    DisturbedError if times are disturbed and nothing was counted.
    """
    refuse_files(request)
    backend = load(request.work)
    if request.files.is_recorded:
        check_profiler(backend)
    with _progress_of(request):
        result = measure(request, backend, TOLD)
    answer(result, request, backend)
    refuse_invalid(result)


def run_as_rank(request: Request, where: Rendezvous) -> None:
    """Measure what is asked for together with the other ranks of a job; the first one answers.

    Raises RequestError for what cannot be had, MeasurementError for an invalid result, and
    DisturbedError if times are disturbed.
    """
    if request.files.is_recorded:
        raise RequestError("the profilers see one process: leave out --trace and --timeline")
    if where.rank:
        # The first rank writes the files.
        request = replace(request, files=replace(request.files, json=None, plot=None))
    refuse_files(request)
    devices = request.work.devices or 1
    wanted = parse_devices(str(devices))
    if isinstance(wanted, int):
        share_gpus(where, wanted)
    # Nothing is counted, because a profiler sees only one process.
    request = replace(request, work=replace(request.work, devices=devices, count=0))
    local = load(request.work)
    with joined(local, where, _alike_in_all(request)) as backend:
        result = measure(request, backend, supplies_of_rank(backend, where, TOLD))
        if backend.group.rank == 0:
            answer(described(result, backend), request, backend)
    refuse_invalid(result)


def _alike_in_all(request: Request) -> dict[str, object]:
    """Return what all ranks must be asked for alike; paths may differ from host to host."""
    experiment, files_asked = EXPERIMENTS[request.work.experiment], request.files
    return {
        "the experiment": experiment.name,
        **option_values(experiment, request.work.parameters),
        "checkpoint_steps": files_asked.checkpoint_steps,
        "resume": files_asked.resume,
    }


def refuse(request: Request) -> None:
    """Raise RequestError for a request that contradicts itself, or a guess that is impossible."""
    if request.words.guess is not None:
        asked_for(request.words.guess, EXPERIMENTS[request.work.experiment])
    request.check()


def refuse_files(request: Request) -> None:
    """Raise RequestError if a file that is to be written is no SVG, or cannot be written."""
    wanted = request.files
    for picture in filter(None, (wanted.plot, wanted.timeline)):
        check_drawing(picture)
    read: list[Path] = []
    if wanted.checkpoint is not None:
        read.append(wanted.checkpoint / FILE)
    if request.work.data_dir is not None:
        read += request.work.data_dir.glob("*")
    files.check_outputs(wanted.json, wanted.plot, wanted.trace, wanted.timeline, others=read)


def _shown_training(epochs: int, images: int) -> AbstractContextManager[ShownTraining]:
    """Show the progress of a training."""
    return training_progress(terminal_console(stderr=True), epochs, images)


TOLD = Supplies(tell=partial(click.echo, err=True), show_training=_shown_training)
"""What programs are supplied with by a process that tells the user of it."""


def _progress_of(request: Request) -> AbstractContextManager[None]:
    """Show how far a measurement is; a training shows a separate bar."""
    experiment = EXPERIMENTS[request.work.experiment]
    if experiment.extent is not None:
        return nullcontext()
    return measurement_progress(terminal_console(stderr=True), experiment.name)


def answer(result: Result, request: Request, backend: Backend) -> None:
    """Write a result, record it once more if that is wanted, and show it with its answer."""
    console = console_beside(request.files.json)
    with_details = request.words.details
    judged = recorded = None
    # The result is shown even if a disk is full or the profiler fails.
    try:
        judged = write_result(result, request)
        if request.files.is_recorded:
            recorded = record_and_draw(backend, result, request, console)
    finally:
        by_trace = recorded.sentence if recorded and result.has_verdict else ""
        again = command_again(request.work, result)
        show(result, console, by_trace=by_trace, again=again, with_details=with_details)
        if recorded and with_details:
            _show_recorded(result, recorded, console)
        if judged is not None:
            show_sentence(f"\n{judged.sentence}", console, "bold")


def write_result(result: Result, request: Request) -> Guess | None:
    """Write a result and its picture, and return the judgement of a guess, if any."""
    document = result.as_json()
    judged = None
    if request.words.guess is not None:
        experiment = EXPERIMENTS[result.experiment]
        judged = judge(*asked_for(request.words.guess, experiment), result)
        document["guess"] = judged.as_json()
    files.write_json(request.files.json, document)
    if request.files.plot is not None:
        write_picture_file(result, request.files.plot)
    return judged


def record_and_draw(
    backend: Backend, result: Result, request: Request, console: Console
) -> Profile:
    """Repeat a result's cases under the profiler, and write the trace and a picture if wanted."""
    duration = precisedelta(seconds_unprofiled(result), minimum_unit="seconds", format="%.2g")
    show_sentence(
        f"Recording it once more: {duration} without the profiler, several times that if "
        "operations are tiny",
        console,
        ASIDE,
    )
    trace, picture = request.files.trace, request.files.timeline
    with measurement_progress(terminal_console(stderr=True), "profiler"):
        recorded = record(backend, result, trace)
    if trace is not None:
        show_sentence(f"Wrote {trace}: open it in ui.perfetto.dev\n", console, ASIDE)
    if picture is not None:
        write_picture_file(recorded.timeline, picture)
    return recorded


def _show_recorded(result: Result, recorded: Profile, console: Console) -> None:
    """Print the figures of a recording beside the clock's, and what the profiler cost."""
    timeline = recorded.timeline
    show_sentence(
        f"\nRecorded by the profiler of {timeline.source}, in one more repetition", console, "bold"
    )
    show_figures(recorded.figures, console, recorded.main)
    show_prices(interference(cases_of(timeline)), console)
    show_sentence(overhead(result, recorded.seconds), console, ASIDE)
    show_sentences(map(str, timeline.notes), console, bullet="· ")


def refuse_invalid(result: Result) -> None:
    """Raise MeasurementError for an invalid result, and DisturbedError for one without a verdict.

    A count is a verdict without times, unless the result is invalid by more than a disturbance.
    """
    is_wrong = bool(result.problems) and not result.is_merely_disturbed
    if result.counts and not is_wrong:
        return
    measured = f"{result.experiment} on {result.backend['name']}"
    if result.problems:
        error = MeasurementError if is_wrong else DisturbedError
        raise error(f"{measured} gave an invalid result: {result.problems[0]}")
    if not result.has_verdict:
        raise DisturbedError(f"{measured}: {result.explanation}")
