"""`parallel-core trace`: what overlapped and what waited, read from a profiler's file."""

from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from parallel_core import files
from parallel_core.drawing import check_drawing
from parallel_core.terminal.timeline import show_figures
from parallel_core.timeline.figures import figures
from parallel_core.timeline.reading import read_timeline

__all__ = ["trace"]


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--timeline",
    "picture",
    type=click.Path(path_type=Path),
    metavar="PICTURE",
    help="Draw it, a lane for each queue: by its ending PNG, SVG or PDF.",
)
def trace(file: Path, picture: Path | None) -> None:
    """Show how busy each queue was in FILE, what overlapped, and what all waited for.

    FILE is a Chrome trace, as .json or .json.gz, that `run --trace`, torch.profiler or mx.profiler has written: of
    your own program, too.
    """
    if picture is not None:
        check_drawing(picture)
        files.check_writable(picture)
    timeline = read_timeline(file)
    console = Console(highlight=False)
    console.print(f"{escape(timeline.source)}: {len(timeline.spans):,} spans", style="bold")
    show_figures(figures(timeline), console)
    for note in timeline.notes:
        console.print(f"· {escape(note)}", style="dim")
    if picture is not None:
        # Drawing needs matplotlib, which is an extra.
        from parallel_core.drawing.timeline import draw_timeline

        kind = picture.suffix.removeprefix(".").lower()
        files.write_whole(picture, lambda stream: draw_timeline(timeline, stream, kind))
        console.print(f"Timeline: {picture}", soft_wrap=True)
