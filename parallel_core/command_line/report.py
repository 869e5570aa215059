"""`parallel-core report`: the tables and the page of a saved comparison, made anew."""

from pathlib import Path

import click
from rich.console import Console

from parallel_core.command_line.compare import write_readable
from parallel_core.comparison.storage import read_comparison
from parallel_core.terminal.comparison import show_comparison

__all__ = ["report"]


@click.command()
@click.argument("saved", type=click.Path(path_type=Path))
def report(saved: Path) -> None:
    """Show SAVED, a folder that `compare` has written, and write its report again.

    What an interrupted comparison has measured becomes a report in this way.
    """
    comparison = read_comparison(saved)
    written = write_readable(comparison, saved if saved.is_dir() else saved.parent)
    console = Console(highlight=False)
    show_comparison(comparison, console)
    console.print(f"Report: {written}", soft_wrap=True)
