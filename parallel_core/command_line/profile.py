"""`parallel-core profile`: run a program of the user's own under its framework's profiler, and say
what overlapped.
"""

import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from parallel_core.command_line import options
from parallel_core.own_program import running
from parallel_core.own_program.analysis import Analysis, analyse
from parallel_core.own_program.running import Recorded
from parallel_core.report.plots import write_picture_file
from parallel_core.system import files
from parallel_core.system.errors import RequestError
from parallel_core.system.formatting import figure, percent
from parallel_core.system.machine import MachineWatch, sample_machine, watched
from parallel_core.terminal.console import ASIDE, DOUBTFUL, terminal_console
from parallel_core.terminal.layout import show_sentence, show_sentences
from parallel_core.terminal.timeline import show_prices
from parallel_core.trace_analysis.case_spans import MAX_SLOWDOWN
from parallel_core.trace_analysis.trace_files import pack_trace

ENDING = ".json.gz"
"""Of traces."""


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
@options.path("--json", "json_path", "The sentences and all figures.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND …")
def profile(
    warm_up: int, steps: int, output: Path, json_path: Path | None, command: tuple[str, ...]
) -> int:
    """Profile a PyTorch, JAX or MXNet program of your own.

    Says whether its exchanges are hidden and what bounds a step.

    \b
    parallel-core profile -- python train.py --epochs 1
    parallel-core profile --steps 10 -- torchrun --nproc-per-node 2 train.py

    A script.py, or -m MODULE, runs with this Python. A step ends where the program calls its first
    optimizer's step() (MXNet: a trainer's), or the step() of a torch.profiler in it; in JAX with a
    jax.profiler.StepTraceAnnotation. A program without these puts its steps under `with
    parallel_core.profiled_step():`. The program's output, exit status and signals stay its own; the
    answer is printed on standard error.
    """
    if json_path == files.STANDARD_OUTPUT:
        raise RequestError("--json needs a file: standard output is the program's")
    files.check_outputs(json_path, others=map(Path, command))
    console = terminal_console(stderr=True)
    with (
        _recording_folder(output) as folder,
        # Beside the traces: they may be larger than the system's temporary folder.
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
    found = None
    if traces:
        with _in_one_line(console):
            found = analyse(traces, load.taken_share)
    with _in_one_line(console):
        files.write_json(json_path, _document(command, status, processes, traces, load, found))
    if found is not None:
        with _in_one_line(console):
            _show(found, traces, load, folder / "timeline.svg", console)
    return running.end_as(status)


@contextmanager
def _recording_folder(parent: Path) -> Iterator[Path]:
    """Make a folder for this recording, and remove it again if nothing was put into it."""
    folder = files.make_dated_folder(parent, "profile")
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def _in_one_line(console: Console) -> Iterator[None]:
    """Print an error and go on: the program has ended as it has, and its status counts."""
    try:
        yield
    except (RequestError, OSError) as error:
        console.print(f"parallel-core: {error}", soft_wrap=True)


def _packed(processes: Sequence[Recorded], folder: Path) -> dict[Path, Recorded]:
    """Move the processes' traces to the folder, under the names of their ranks."""
    with_trace = [one for one in processes if one.trace is not None]
    ranks = [one.rank for one in with_trace]
    if None not in ranks and len(set(ranks)) == len(ranks):
        names = [f"rank{rank}" for rank in ranks]
    else:
        names = (
            ["trace"] if len(ranks) == 1 else [f"process{number}" for number in range(len(ranks))]
        )
    packed = {}
    for one, name in zip(with_trace, names, strict=True):
        assert one.trace is not None
        path = folder / f"{name}{ENDING}"
        pack_trace(one.trace, path, one.steps_recorded)
        packed[path] = one
    return packed


def _show(
    found: Analysis, traces: Iterable[Path], load: MachineWatch, picture: Path, console: Console
) -> None:
    if load.is_disturbed:
        taken = (
            f"Other processes took {percent(load.taken_share)} of the time of "
            f"{figure(load.cores)} cores meanwhile"
        )
        show_sentence(f"{taken}, so that the intervals are wider.", console, DOUBTFUL, bullet="! ")
    show_sentences(found.answer.sentences, console, bullet="· ")
    show_sentences([row.in_words for row in found.unhidden], console, bullet="· ")
    if found.answer.slowdown <= MAX_SLOWDOWN:
        # Of several processes one stands for all.
        show_prices(next(iter(found.figures.values())).interference, console)
    show_sentences(found.notes, console, ASIDE, bullet="· ")
    console.print(
        f"More: {shlex.join(('parallel-core', 'trace', *map(str, traces)))}", soft_wrap=True
    )
    write_picture_file(found.timeline, picture)
    console.print(f"Timeline: {picture}", soft_wrap=True)


def _document(
    command: Sequence[str],
    status: int,
    processes: Sequence[Recorded],
    traces: Mapping[Path, Recorded],
    load: MachineWatch,
    found: Analysis | None,
) -> dict[str, object]:
    path_of = {one.pid: path for path, one in traces.items()}
    figures = {} if found is None else found.figures
    named = (
        "pid",
        "framework",
        "rank",
        "marker",
        "steps_seen",
        "steps_recorded",
        "core_wait_share",
    )
    return {
        "command": command,
        "status": status,
        "sentences": [] if found is None else found.answer.sentences,
        "answer": None if found is None else asdict(found.answer),
        "unhidden": [] if found is None else [asdict(row) for row in found.unhidden],
        "load": asdict(load),
        "processes": [
            {
                **{name: getattr(one, name) for name in named},
                "trace": str(path) if (path := path_of.get(one.pid)) else None,
                "figures": asdict(figures[path]) if path and path in figures else None,
            }
            for one in processes
        ],
    }
