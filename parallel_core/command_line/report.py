"""`parallel-core report`: show a saved comparison, and write its page."""

from pathlib import Path

import click

from parallel_core.command_line import options
from parallel_core.compare.analysis import analyse
from parallel_core.compare.storage import REPORT, read_comparison, result_path
from parallel_core.report import write_report
from parallel_core.system import files
from parallel_core.terminal.comparison import show_comparison, show_screen
from parallel_core.terminal.console import terminal_console


@click.command()
@click.argument("saved", type=options.PATH)
@options.details
def report(saved: Path, details: bool) -> None:
    """Show a saved comparison, and write its report.

    SAVED is a folder that `compare` has written. Use it to see the results of a comparison that was
    interrupted.
    """
    folder = saved if saved.is_dir() else saved.parent
    comparison = read_comparison(saved)
    files.check_outputs(folder / REPORT, others=[result_path(saved)])
    analysis = analyse(comparison)
    page = write_report(analysis, folder)
    console = terminal_console()
    show_screen(analysis, console)
    if details:
        show_comparison(analysis, console)
    else:
        console.print("Each cell: --details")
    console.print(f"Report:  {page}", soft_wrap=True)
