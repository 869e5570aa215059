"""`parallel-core profile`: run the user's own program under its framework's profiler, and say what
overlapped.
"""

import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console

from parallel_core.command_line import options, requirements
from parallel_core.measurement.limits import Limit
from parallel_core.report.plots import write_picture_file
from parallel_core.system import files
from parallel_core.system.errors import DISTURBED, RequestError
from parallel_core.system.machine import MachineWatch, sample_machine, watched
from parallel_core.terminal.changes import show_changes
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.trace import show_analysis
from parallel_core.traces.figures import as_json
from parallel_core.traces.profile import running
from parallel_core.traces.profile.analysis import Analysis, analyse
from parallel_core.traces.profile.changes import changes_between
from parallel_core.traces.profile.recorded_steps import (
    RecordedSteps,
    read_recording,
    recorded_steps,
)
from parallel_core.traces.profile.requirements import Requirement, Unanswered, cannot_answer, judge
from parallel_core.traces.profile.running import Recorded
from parallel_core.traces.trace_files import pack_trace

PROCESS_FIELDS = (
    "pid",
    "framework",
    "rank",
    "marker",
    "steps_seen",
    "steps_recorded",
    "core_wait_share",
)
"""The fields of a recorded process in the JSON."""
ENDING = ".json.gz"
"""The ending of the names of traces."""


@click.command(context_settings={"allow_interspersed_args": False})
@options.option(
    "--warm-up", type=options.POSITIVE, default=3, metavar="N", help="Steps before the recording."
)
@options.option("--steps", type=options.POSITIVE, default=5, metavar="N", help="Steps to record.")
@options.option(
    "--output",
    type=options.PATH,
    default=files.RUNS,
    metavar="FOLDER",
    help="Where to make a folder for a trace of each process, which ui.perfetto.dev opens, and a "
    "picture.",
)
@requirements.limits
@options.option(
    "--repeat", type=options.POSITIVE, default=1, metavar="N", help="Run and record it N times."
)
@click.option(
    "--against",
    type=options.PATH,
    multiple=True,
    metavar="BEFORE",
    help="Say what changed since an earlier recording: a trace, or a folder of ranks. Repeatable.",
)
@options.path("--json", "json_path", "The sentences and all figures, of the last recording.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND …")
def profile(
    warm_up: int,
    steps: int,
    output: Path,
    limits: tuple[Limit, ...],
    repeat: int,
    against: tuple[Path, ...],
    json_path: Path | None,
    command: tuple[str, ...],
) -> int:
    """Profile a PyTorch, JAX or MXNet program of your own.

    Says whether its exchanges are hidden and what bounds a step.

    \b
    parallel-core profile -- python train.py --epochs 1
    parallel-core profile --steps 10 -- torchrun --nproc-per-node 2 train.py
    parallel-core profile --repeat 3 --against runs/before -- python train.py

    A script.py, or -m MODULE, runs with this Python. A step ends where the program calls its first
    optimizer's step() (MXNet: a trainer's), or the step() of a torch.profiler in it; in JAX with a
    jax.profiler.StepTraceAnnotation. A program without these puts its steps under `with
    parallel_core.profiled_step():`. The program's output, exit status and signals stay its own; the
    answer is printed on standard error.
    """
    if json_path == files.STANDARD_OUTPUT:
        raise RequestError("--json needs a file: standard output is the program's")
    files.check_outputs(json_path, others=(*map(Path, command), *against))
    before = [read_recording(path) for path in against]
    after: list[RecordedSteps] = []
    console = terminal_console(stderr=True)
    for _ in range(repeat):
        run = _run_once(command, output, warm_up, steps, console)
        if before and run.analysis is not None:
            after.append(recorded_steps(run.analysis.traces.values()))
        if run.status:
            break
    judged: tuple[Requirement, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()
    if run.analysis is not None:
        judged = judge(limits, run.analysis.answer.recording, run.analysis.unhidden)
        unanswered = cannot_answer(run.analysis.answer.recording)
    changes = changes_between(before, after) if after else None
    with _in_one_line(console):
        answers = {"requirements": judged, "cannot_answer": unanswered, "changes": changes}
        files.write_json(json_path, {**run.document, **as_json(answers)})
    if changes is not None:
        with _in_one_line(console):
            show_changes(changes, console)
    requirements.show_requirements(judged, console)
    if run.status == 0 and limits:
        # Nothing can be said of what was not recorded.
        return requirements.status_of(judged) if judged else DISTURBED
    return running.end_as(run.status)


@dataclass(frozen=True)
class Run:
    """A run of a program: its exit status, the JSON of its recording, and what was read of that."""

    status: int
    document: Mapping[str, object]
    analysis: Analysis | None


def _run_once(
    command: Sequence[str], output: Path, warm_up: int, steps: int, console: Console
) -> Run:
    """Run a program, and say what was recorded of it."""
    with (
        _recording_folder(output) as folder,
        # This folder lies beside the traces, which may not fit the system's temporary folder.
        tempfile.TemporaryDirectory(
            prefix=".recording-", dir=folder, ignore_cleanup_errors=True
        ) as scratch,
    ):
        before = sample_machine()
        status = running.run_program(running.interpreted(command), Path(scratch), warm_up, steps)
        load = watched(before, sample_machine())
        processes = running.recorded_in(Path(scratch))
        console.print()
        traces: dict[Path, Recorded] = {}
        with _in_one_line(console):
            traces = _packed(processes, folder)
    if line := running.why_incomplete(processes, warm_up, steps):
        console.print(f"parallel-core: {line}", soft_wrap=True)
    analysis = None
    if traces:
        with _in_one_line(console):
            analysis = analyse(traces, load.taken_share)
    if analysis is not None:
        with _in_one_line(console):
            _show(analysis, traces, folder / "timeline.svg", console)
    document = document_of(command, status, processes, traces, load, analysis)
    return Run(status, document, analysis)


@contextmanager
def _recording_folder(parent: Path) -> Iterator[Path]:
    """Make a folder for this recording, and remove it at the end of this context if it is empty."""
    folder = files.make_dated_folder(parent, "profile")
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def _in_one_line(console: Console) -> Iterator[None]:
    """Print an error of this context in one line, and go on: only the program's status counts."""
    try:
        yield
    except (RequestError, OSError) as error:
        console.print(f"parallel-core: {error}", soft_wrap=True)


def _packed(processes: Sequence[Recorded], folder: Path) -> dict[Path, Recorded]:
    """Move the traces of processes to a folder; return the processes by the paths of their traces.

    The traces are named after the ranks of the processes, if these have different ranks.
    """
    with_trace = [process for process in processes if process.trace is not None]
    ranks = [process.rank for process in with_trace]
    have_different_ranks = None not in ranks and len(set(ranks)) == len(ranks)
    if have_different_ranks:
        names = [f"rank{rank}" for rank in ranks]
    elif len(with_trace) == 1:
        names = ["trace"]
    else:
        names = [f"process{number}" for number in range(len(with_trace))]
    packed = {}
    for process, name in zip(with_trace, names, strict=True):
        assert process.trace is not None
        path = folder / f"{name}{ENDING}"
        pack_trace(process.trace, path, process.steps_recorded, process.core_wait_share)
        packed[path] = process
    return packed


def _show(analysis: Analysis, traces: Iterable[Path], picture: Path, console: Console) -> None:
    """Print an analysis, and the command that shows more; write the picture."""
    show_analysis(analysis, console)
    command = shlex.join(("parallel-core", "trace", "--details", *map(str, traces)))
    console.print(f"More: {command}", soft_wrap=True)
    write_picture_file(analysis.timeline, picture)
    console.print(f"Timeline: {picture}", soft_wrap=True)


def document_of(
    command: Sequence[str],
    status: int,
    processes: Sequence[Recorded],
    traces: Mapping[Path, Recorded],
    load: MachineWatch,
    analysis: Analysis | None,
) -> dict[str, object]:
    """Return the JSON of a recording, and of its analysis if there is one."""
    path_by_pid = {process.pid: path for path, process in traces.items()}
    read = {} if analysis is None else analysis.traces
    objects = []
    for process in processes:
        path = path_by_pid.get(process.pid)
        fields: dict[str, object] = {name: getattr(process, name) for name in PROCESS_FIELDS}
        fields["trace"] = None if path is None else str(path)
        fields["figures"] = None
        if path is not None and path in read:
            fields["figures"] = as_json(read[path].figures[0])
            fields["interference"] = as_json(read[path].prices)
        objects.append(fields)
    return {
        "command": command,
        "status": status,
        "sentences": [] if analysis is None else analysis.answer.sentences,
        "answer": as_json(analysis and analysis.answer),
        "unhidden": [] if analysis is None else as_json(analysis.unhidden),
        "load": asdict(load),
        "processes": objects,
    }
