"""`parallel-core diff`: two saved comparisons held against each other, for a regression check."""

import json
from pathlib import Path

import click
from rich.console import Console

from parallel_core import files
from parallel_core.command_line import options
from parallel_core.command_line.compare import read_comparison
from parallel_core.comparison.difference import difference
from parallel_core.errors import RequestError
from parallel_core.terminal.difference import show_difference

__all__ = ["diff"]


@click.command()
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option(
    "--fail-if-slower",
    "limit",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="Exit with status 1 where a case is shown to have become slower by more than this.",
)
@options.json_file
def diff(old: Path, new: Path, limit: float | None, json_path: Path | None) -> None:
    """Compare NEW with OLD: two folders (or files) that `parallel-core compare` has written."""
    if json_path is not None:
        files.check_writable(json_path)
    found = difference(read_comparison(old), read_comparison(new))
    if not found.changes:
        raise RequestError(f"{old} and {new} have no measured case in common")
    slower = found.slower_by_more_than(limit) if limit is not None else ()
    console = Console(stderr=json_path == files.STANDARD_OUTPUT, highlight=False)
    show_difference(found, console)
    if json_path is not None:
        text = json.dumps(found.as_json(), indent=1, ensure_ascii=False) + "\n"
        files.write_whole(json_path, lambda stream: stream.write(text.encode()))
    if slower:
        worst = max(slower, key=lambda change: change.ratio.low)
        click.echo(
            f"parallel-core: {len(slower)} of {len(found.changes)} cases became slower by more than {limit:g} %, "
            f"most of all {worst.cell}: {worst.case} (× {worst.ratio.estimate:.2f})",
            err=True,
        )
        raise SystemExit(1)
