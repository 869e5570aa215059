"""`parallel-core report` and `diff`: show a saved comparison again, and compare two of them."""

from pathlib import Path

import click

from parallel_core.command_line import options
from parallel_core.comparison.analysis import analyse
from parallel_core.comparison.difference import compare_with_old
from parallel_core.comparison.storage import REPORT, read_comparison, result_path
from parallel_core.report import write_report
from parallel_core.system import files
from parallel_core.system.errors import MeasurementError, RequestError
from parallel_core.terminal.comparison import show_comparison, show_difference, show_screen
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


@click.command()
@click.argument("old", type=options.PATH)
@click.argument("new", type=options.PATH)
@click.option(
    "--fail-if-slower",
    "limit",
    type=options.number(or_zero=True),
    metavar="PERCENT",
    help="Exit with status 1 if a case is significantly slower by more than this, or can no longer "
    "be measured.",
)
@options.json_file
def diff(old: Path, new: Path, limit: float | None, json_path: Path | None) -> None:
    """Compare two saved comparisons.

    NEW and OLD are folders (or files) that `parallel-core compare` has written.
    """
    files.check_outputs(json_path, others=map(result_path, (old, new)))
    difference = compare_with_old(read_comparison(old), read_comparison(new))
    if not difference.changes and not difference.broken:
        raise RequestError(f"{old} and {new} have nothing in common: {difference.left_out[0]}")
    files.write_json(json_path, difference.as_json())
    show_difference(difference, options.console_beside(json_path))
    if limit is None:
        return
    if difference.broken:
        raise MeasurementError(f"what was measured in {old} no longer is: {difference.broken[0]}")
    slower = difference.slower_by_more_than(limit)
    if slower:
        worst = max(slower, key=lambda change: change.ratio.low)
        raise MeasurementError(
            f"{len(slower)} of {len(difference.changes)} cases became slower by more than "
            f"{limit:g} %, "
            f"most of all {worst.cell}: {worst.case} (× {worst.ratio.estimate:.2f})"
        )
