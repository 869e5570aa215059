"""`parallel-core diff`: what changed between two saved comparisons."""

from pathlib import Path

import click

from parallel_core.command_line import options
from parallel_core.compare.cell_changes import compare_with_old
from parallel_core.compare.storage import read_comparison, result_path
from parallel_core.system import files
from parallel_core.system.errors import MeasurementError, RequestError
from parallel_core.terminal.comparison import show_difference


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
