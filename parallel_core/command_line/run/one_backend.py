"""`run EXPERIMENT` on one backend, in one process or as a rank of a job: measure, write, show,
profile and answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from humanize import precisedelta
from rich.console import Console

import backends
from backends import Backend
from backends.process_groups import Rendezvous
from backends.profiling import check_profiler
from parallel_core.command_line.options import console_beside
from parallel_core.command_line.run.resources import arguments_of, files_of_resources
from parallel_core.comparison.storage import reason_path
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.runner.declaration import shown_case
from parallel_core.experiments.runner.guess import Guess, asked_for, judge
from parallel_core.jobs.rank import check_job, described, joined, share_gpus
from parallel_core.measurement.result import Result
from parallel_core.measurement.timing import repeatable
from parallel_core.report.plots import check_drawing, write_picture_file
from parallel_core.run import recording
from parallel_core.system import files
from parallel_core.system.errors import DisturbedError, MeasurementError, RequestError
from parallel_core.terminal.console import ASIDE, terminal_console
from parallel_core.terminal.layout import show_sentence, show_sentences
from parallel_core.terminal.progress import measurement_progress
from parallel_core.terminal.result import command_again, show
from parallel_core.terminal.timeline import show_figures, show_prices
from parallel_core.traces.case_spans import cases_of
from parallel_core.traces.cases import CaseFigures, timeline_figures
from parallel_core.traces.evidence.interference import interference
from parallel_core.traces.trace_files import write_trace_file


def run_on_one_backend(
    experiment: Experiment,
    values: Mapping[str, Any],
    own_values: Mapping[str, Any],
    given: Mapping[str, Any],
    measured: list[Result] | None,
) -> None:
    """Run an experiment on one backend, in this process alone or as a rank of a job.

    `values` are those of all options of the command, and `own_values` those of options that not
    every experiment has. `given` are the options that the user gave and that decide the run's work.
    The result of a process alone is added to `measured`, if there is such a list.

    Raises RequestError for options that contradict each other, MeasurementError for an invalid
    result, and DisturbedError if times are disturbed and nothing was counted.
    """
    rendezvous = _check_request(experiment, values)
    if rendezvous is None:
        _check_files(values)
        loaded = _load(experiment, values, rendezvous)
        if values["only_load"]:
            return
        result = _run_alone(experiment, loaded, values, given)
        if measured is not None:
            measured.append(result)
    else:
        if rendezvous.rank:
            # The first rank writes the files.
            values = {**values, "json_path": None, "plot_path": None}
        _check_files(values)
        loaded = _load(experiment, values, rendezvous)
        result = _run_in_job(experiment, loaded, rendezvous, values, own_values)
    _refuse_invalid(result)


def _run_alone(
    experiment: Experiment, loaded: Backend, values: Mapping[str, Any], given: Mapping[str, Any]
) -> Result:
    """Run an experiment in this process, report its result, and return it."""
    if values["trace_path"] or values["timeline_path"]:
        check_profiler(loaded)
    with _alone(experiment, values), arguments_of(experiment, loaded, values) as arguments:
        result = experiment.run(
            loaded, count=values["count"], sizes_chosen=values["sizes_chosen"], **arguments
        )
    _report_alone(result, loaded, values, given, console_beside(values["json_path"]))
    return result


def _run_in_job(
    experiment: Experiment,
    loaded: Backend,
    rendezvous: Rendezvous,
    values: Mapping[str, Any],
    own_values: Mapping[str, Any],
) -> Result:
    """Run an experiment as a rank of a job, and return its result.

    The first rank writes and shows the result of all ranks.
    """
    with (
        joined(loaded, rendezvous, experiment.name, own_values) as together,
        arguments_of(experiment, together, values) as arguments,
    ):
        # Nothing is counted, because a profiler sees only one process.
        result = experiment.run(together, count=0, **arguments)
        if together.group.rank == 0:
            console = console_beside(values["json_path"])
            of_all = described(result, together)
            judged = None
            try:
                judged = _write(of_all, values)
            finally:
                show(of_all, console, with_details=values["details"])
            _show_guess(judged, console)
    return result


def _check_request(experiment: Experiment, values: Mapping[str, Any]) -> Rendezvous | None:
    """Return where this process meets the other ranks of its job; None if it has no job.

    Raises RequestError for options that contradict each other or the job.
    """
    if values["interpreters"]:
        raise RequestError(
            "--python is for several backends side by side: a single one runs in this Python"
        )
    guess = values["guess"]
    if guess is not None:
        asked_for(guess, experiment)
    is_profiled = values["trace_path"] or values["timeline_path"]
    rendezvous = check_job(experiment.name, values["backend"])
    if rendezvous is not None and is_profiled:
        raise RequestError("the profilers see one process: leave out --trace and --timeline")
    if values["trace_path"] == files.STANDARD_OUTPUT:
        raise RequestError("--trace needs a file: standard output shows what was measured")
    return rendezvous


def _check_files(values: Mapping[str, Any]) -> None:
    """Raise RequestError if a file that the run is to write is no SVG, or cannot be written."""
    plot_path, timeline_path = values["plot_path"], values["timeline_path"]
    for picture in filter(None, (plot_path, timeline_path)):
        check_drawing(picture)
    trace_path = values["trace_path"] or values["trace_if_possible"]
    outputs = (values["json_path"], plot_path, trace_path, timeline_path)
    files.check_outputs(*outputs, others=files_of_resources(values))


def _load(
    experiment: Experiment, values: Mapping[str, Any], rendezvous: Rendezvous | None
) -> Backend:
    """Load the backend with the devices and settings that the options say.

    By default a rank of a job has one device.
    """
    default_devices = experiment.devices if rendezvous is None else 1
    devices = values["devices"] or default_devices
    if rendezvous is not None and isinstance(devices, int):
        share_gpus(rendezvous, devices)
    return backends.load(
        values["backend"],
        devices,
        values["device_kind"],
        values["engine"],
        values["threads"],
        values["workers"],
        values["variants"],
    )


def _refuse_invalid(result: Result) -> None:
    """Raise MeasurementError for an invalid result, and DisturbedError for one without a verdict.

    A count is a verdict without times, unless the result is invalid by more than a disturbance.
    """
    is_wrong = bool(result.problems) and not result.is_merely_disturbed
    if result.counts and (result.has_verdict or not is_wrong):
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
    """Show the progress of an experiment in this process, and keep its cases for the profiler."""
    is_profiled = values["trace_path"] or values["timeline_path"] or values["trace_if_possible"]
    is_training = experiment.extent is not None
    with ExitStack() as contexts:
        if is_profiled:
            contexts.enter_context(repeatable())
        if not is_training:
            # A training shows a separate bar.
            console = terminal_console(stderr=True)
            contexts.enter_context(measurement_progress(console, experiment.name))
        yield


def _report_alone(
    result: Result,
    loaded: Backend,
    values: Mapping[str, Any],
    given: Mapping[str, Any],
    console: Console,
) -> None:
    """Write a result, profile it if that is wanted, and show it with its answer and command."""
    trace_path, timeline_path = values["trace_path"], values["timeline_path"]
    judged = recorded = None
    # The result is shown even if a disk is full or the profiler fails.
    try:
        judged = _write(result, values)
        if trace_path or timeline_path:
            recorded = record(loaded, result, console, trace_path, timeline_path)
        elif values["trace_if_possible"] is not None:
            _record_if_possible(loaded, result, console, values["trace_if_possible"])
    finally:
        show(
            result,
            console,
            by_trace=recorded.sentence if recorded and result.has_verdict else "",
            again=command_again(result, given),
            with_details=values["details"],
        )
        if recorded and values["details"]:
            _show_recorded(result, recorded, console)
        _show_guess(judged, console)


def _write(result: Result, values: Mapping[str, Any]) -> Guess | None:
    """Write a result's files, and return the judgement of a guess, if any."""
    experiment, guess = EXPERIMENTS[result.experiment], values["guess"]
    document = result.as_json()
    judged = None
    if guess is not None:
        judged = judge(*asked_for(guess, experiment), result)
        document["guess"] = judged.as_json()
    files.write_json(values["json_path"], document)
    if values["plot_path"] is not None:
        write_picture_file(result, values["plot_path"])
    return judged


def _show_guess(judged: Guess | None, console: Console) -> None:
    """Print the judgement of a guess, if there is one."""
    if judged is not None:
        show_sentence(f"\n{judged.sentence}", console, "bold")


class Recorded(NamedTuple):
    """What a profiler recorded of one more repetition of a result's cases."""

    profile: recording.Profile
    figures: Sequence[CaseFigures]
    main: str
    """The case that is shown in full."""

    @property
    def sentence(self) -> str:
        """How efficient the main case was; empty if it was not recorded."""
        for case in self.figures:
            if case.case == self.main:
                return recording.about_efficiency(case)
        return ""


def record(
    backend: Backend,
    result: Result,
    console: Console,
    trace_path: Path | None,
    picture_path: Path | None,
) -> Recorded:
    """Repeat a result's cases under the profiler, and write the trace and a picture if wanted."""
    duration = precisedelta(
        recording.seconds_unprofiled(result), minimum_unit="seconds", format="%.2g"
    )
    show_sentence(
        f"Recording it once more: {duration} without the profiler, several times that if "
        "operations are tiny",
        console,
        ASIDE,
    )
    with measurement_progress(terminal_console(stderr=True), "profiler"):
        profile = recording.profile(backend, result)
    timeline = profile.timeline
    if trace_path is not None:
        write_trace_file(timeline, trace_path)
        show_sentence(f"Wrote {trace_path}: open it in ui.perfetto.dev\n", console, ASIDE)
    if picture_path is not None:
        write_picture_file(timeline, picture_path)
    figures = timeline_figures(timeline)
    drawn_case = EXPERIMENTS[result.experiment].drawn_case
    return Recorded(profile, figures, shown_case([case.case for case in figures], drawn_case))


def _show_recorded(result: Result, recorded: Recorded, console: Console) -> None:
    """Print the figures of a recording beside the clock's, and what the profiler cost."""
    profile, figures, main = recorded
    timeline = profile.timeline
    show_sentence(
        f"\nRecorded by the profiler of {timeline.source}, in one more repetition", console, "bold"
    )
    show_figures(figures, console, main)
    show_prices(interference(cases_of(timeline)), console)
    show_sentence(recording.overhead(result, profile.seconds), console, ASIDE)
    show_sentences(timeline.notes, console, bullet="· ")


def _record_if_possible(
    backend: Backend, result: Result, console: Console, trace_path: Path
) -> None:
    """Profile a cell of a comparison; if that fails, write the reason in place of the trace."""
    try:
        check_profiler(backend)
        record(backend, result, console, trace_path, None)
    except Exception as error:
        reason = f"{error}\n".encode()
        show_sentence(f"no trace: {error}", console)
        files.write_whole(reason_path(trace_path), lambda stream: stream.write(reason))
