"""`parallel-core profile`: run a program of the user's own under its framework's profiler, and say what overlapped."""

import gzip
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from parallel_core.command_line import options
from parallel_core.errors import RequestError
from parallel_core.jobs.own_program.answer import answer
from parallel_core.jobs.own_program.running import (
    Recorded,
    end_as,
    interpreted,
    recorded_in,
    run_program,
    why_incomplete,
)
from parallel_core.jobs.own_program.step_figures import StepFigures, step_figures
from parallel_core.plots import can_draw, write_picture_file
from parallel_core.system import files
from parallel_core.system.formatting import listed
from parallel_core.trace_analysis.trace_files import read_timeline

__all__ = ["profile"]


@dataclass(frozen=True)
class _Shown:
    """A process's steps, its files, and what was wrong with its trace."""

    recorded: Recorded
    figures: StepFigures
    trace: Path
    picture: Path | None
    notes: tuple[str, ...]


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--warm-up", type=options.POSITIVE, default=3, show_default=True, metavar="N", help="Steps before the recording."
)
@click.option("--steps", type=options.POSITIVE, default=5, show_default=True, metavar="N", help="Steps to record.")
@click.option(
    "--output",
    type=options.PATH,
    default=Path("profile"),
    show_default=True,
    metavar="FOLDER",
    help="For a trace and a picture of each process.",
)
@click.option("--json", "json_path", type=options.PATH, metavar="FILE", help="The sentences and all figures.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND …")
def profile(warm_up: int, steps: int, output: Path, json_path: Path | None, command: tuple[str, ...]) -> int:
    """Run a PyTorch or MXNet program of your own, and say whether its exchanges are hidden and what bounds a step.

    \b
    parallel-core profile -- python train.py --epochs 1
    parallel-core profile --steps 10 -- torchrun --nproc-per-node 2 train.py

    A script.py, or -m MODULE, runs with this Python. A step ends where the program calls its first optimizer's step()
    (MXNet: a trainer's), or the step() of its own torch.profiler. A program without these puts its steps
    under `with parallel_core.profiled_step():`. The program's output, exit status and signals stay its own; the answer
    is printed on standard error.
    """
    if json_path == files.STANDARD_OUTPUT:
        raise RequestError("--json needs a file: standard output is the program's")
    files.check_writable(json_path)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with _scratch_folder(output) as scratch:
        status = run_program(interpreted(command), Path(scratch), warm_up, steps)
        processes = recorded_in(Path(scratch))
        console.print()
        shown = _shown(processes, output, console)
    for line in why_incomplete(processes, warm_up, steps):
        console.print(f"parallel-core: {escape(line)}")
    sentences = answer([one.figures for one in shown]) if shown else ()
    for sentence in sentences:
        console.print(f"· {escape(sentence)}")
    _list_files(shown, console)
    if json_path is not None:
        files.write_json(json_path, _document(command, status, sentences, processes, shown))
    return end_as(status)


def _scratch_folder(output: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        output.mkdir(parents=True, exist_ok=True)
        # Beside the traces: they may be larger than the system's temporary folder.
        return tempfile.TemporaryDirectory(prefix=".recording-", dir=output)
    except OSError as error:
        raise RequestError(f"cannot write to {output}: {error.strerror or error}") from error


def _shown(processes: Sequence[Recorded], output: Path, console: Console) -> list[_Shown]:
    """Move the traces to the folder, read them and draw them; what cannot be read becomes a line."""
    with_trace = [one for one in processes if one.trace is not None]
    shown = []
    for one, name in zip(with_trace, _names(with_trace), strict=True):
        path = output / f"{name}.json.gz"
        assert one.trace is not None
        try:
            with one.trace.open("rb") as plain, gzip.open(path, "wb", compresslevel=5) as packed:
                shutil.copyfileobj(plain, packed)
            timeline = read_timeline(path)
            picture = output / f"{name}.svg" if can_draw() else None
            if picture is not None:
                write_picture_file(timeline, picture)
        except (RequestError, OSError) as error:
            # The program has ended as it has; its status counts.
            console.print(f"parallel-core: {escape(str(error))}")
            continue
        shown.append(_Shown(one, step_figures(timeline, one.steps_recorded, one.rank), path, picture, timeline.notes))
    return shown


def _names(processes: Sequence[Recorded]) -> list[str]:
    ranks = [one.rank for one in processes]
    if None not in ranks and len(set(ranks)) == len(ranks):
        return [f"rank{rank}" for rank in ranks]
    return ["trace"] if len(processes) == 1 else [f"process{number}" for number in range(len(processes))]


def _list_files(shown: Sequence[_Shown], console: Console) -> None:
    for note in dict.fromkeys(note for one in shown for note in one.notes):
        console.print(f"· {escape(note)}", style="dim")
    if shown:
        console.print(escape(f"Traces: {listed([str(one.trace) for one in shown])}"))
        more = str(shown[0].trace.parent if len(shown) > 1 else shown[0].trace)
        console.print(escape(f"More of them: {shlex.join(('parallel-core', 'trace', more))}"))
    if pictures := [str(one.picture) for one in shown if one.picture is not None]:
        console.print(escape(f"Timelines: {listed(pictures)}"))
    elif shown:
        console.print("A timeline needs matplotlib: pip install 'parallel-core[plot]'", markup=False)


def _document(
    command: Sequence[str],
    status: int,
    sentences: Sequence[str],
    processes: Sequence[Recorded],
    shown: Sequence[_Shown],
) -> dict[str, object]:
    by_process = {one.recorded.pid: one for one in shown}
    return {
        "command": command,
        "status": status,
        "sentences": sentences,
        "processes": [
            {
                "pid": one.pid,
                "framework": one.framework,
                "rank": one.rank,
                "marker": one.marker,
                "steps_seen": one.steps_seen,
                "steps_recorded": one.steps_recorded,
                "trace": str(own.trace) if (own := by_process.get(one.pid)) else None,
                "picture": str(own.picture) if own and own.picture else None,
                "figures": own.figures.as_json() if own else None,
            }
            for one in processes
        ],
    }
