"""`parallel-core trace`: read a profiler's file and show what overlapped and what waited."""

from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from parallel_core.command_line import options
from parallel_core.measurement.timing import without_garbage_collection
from parallel_core.plots import check_drawing, write_picture_file
from parallel_core.system import files
from parallel_core.terminal.timeline import show_figures
from parallel_core.trace_analysis.figures import timeline_figures
from parallel_core.trace_analysis.trace_files import read_timeline

__all__ = ["trace"]


@click.command()
@click.argument("file", type=options.PATH)
@click.option(
    "--timeline",
    "picture",
    type=options.PATH,
    metavar="PICTURE",
    help="Draw it, a lane for each queue, as PNG, SVG or PDF by the ending of the name.",
)
@options.json_file
def trace(file: Path, picture: Path | None, json_path: Path | None) -> None:
    """Show how busy each queue was in FILE, what overlapped, and the critical path.

    FILE is a Chrome trace, .json or .json.gz, written by `run --trace`, torch.profiler or mx.profiler, also by your
    own program.
    """
    if picture is not None:
        check_drawing(picture)
    files.check_writable(picture)
    files.check_writable(json_path)
    with without_garbage_collection():
        timeline = read_timeline(file)
        figures = timeline_figures(timeline)
    # With `--json -`, standard output is for the JSON alone.
    console = Console(stderr=json_path == files.STANDARD_OUTPUT, highlight=False)
    console.print(f"{escape(timeline.source)}: {len(timeline.spans):,} spans", style="bold")
    show_figures(figures, console)
    for note in timeline.notes:
        console.print(f"· {escape(note)}", style="dim")
    if picture is not None:
        write_picture_file(timeline, picture)
        console.print(f"Timeline: {picture}", soft_wrap=True)
    if json_path is not None:
        document = {"source": timeline.source, "notes": timeline.notes, "cases": [case.as_json() for case in figures]}
        files.write_json(json_path, document)
