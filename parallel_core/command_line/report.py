"""`parallel-core report`: the tables and the page of a saved comparison, written again."""

from pathlib import Path

import click

from parallel_core.comparison.analysis import analyse
from parallel_core.comparison.storage import REPORT, read_comparison, result_path
from parallel_core.report import write_report
from parallel_core.system import files
from parallel_core.terminal.comparison import show_comparison, show_screen
from parallel_core.terminal.console import terminal_console

__all__ = ["report"]


@click.command()
@click.argument("saved", type=click.Path(path_type=Path))
def report(saved: Path) -> None:
    """Show a saved comparison, and write its report.

    SAVED is a folder that `compare` has written. Use it to see the results of a comparison that was interrupted.
    """
    folder = saved if saved.is_dir() else saved.parent
    comparison = read_comparison(saved)
    files.check_outputs(folder / REPORT, others=[result_path(saved)])
    analysis = analyse(comparison)
    page = write_report(analysis, folder)
    console = terminal_console()
    show_comparison(analysis, console)
    show_screen(analysis, console)
    console.print(f"Report:  {page}", soft_wrap=True)
