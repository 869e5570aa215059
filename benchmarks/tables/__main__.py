"""Fill the pages' tables, and write the page beside each benchmark's JSON; to be run from the repository's root.

python -m benchmarks.tables                                      # from the folders that the pages name
python -m benchmarks.tables --results benchmarks/results/NAME    # from another machine's, which it names then
python -m benchmarks.tables --check                              # change nothing: status 1 if something differs
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from benchmarks import self_test
from benchmarks.harness.findings import page
from benchmarks.tables.all_tables import write_table
from benchmarks.tables.blocks import refill
from parallel_core.system.files import write_whole

__all__ = ["main", "pages", "written"]


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; exit with status 1 if a file differs.")
@click.option("--results", type=click.Path(path_type=Path), help="The folder of a machine's results.")
def main(check: bool, results: Path | None) -> None:
    """Fill the pages' tables, and write the page beside each benchmark's JSON, or check that they are as written."""
    try:
        differing = [(path, text) for path, text in written(results) if not is_written(path, text)]
    except (OSError, ValueError, KeyError) as error:
        raise click.ClickException(str(error)) from error
    for path, text in differing:
        if not check:
            replace(path, text)
        click.echo(f"{path} {'differs from its results: python -m benchmarks.tables' if check else 'written'}")
    sys.exit(1 if check and differing else 0)


def written(results: Path | None = None) -> Iterator[tuple[Path, str]]:
    """Iterate over the files that are written from results, with what they must hold; the pages come first.

    Raises OSError, ValueError or KeyError, with a message for the reader, if a table cannot be written.
    """
    for path in pages():
        yield path, refill(path.read_text(), path, write_table, results)
    for path in sorted(Path("benchmarks/results").rglob("*.json")):
        document = json.loads(path.read_text())
        if "findings" in document:
            yield path.with_suffix(".md"), page(document)
        elif "rates" in document:
            yield path.with_suffix(".md"), self_test.page(document)


def pages() -> Iterator[Path]:
    """Iterate over the pages that may have tables: the README, and those of the site that are written by hand."""
    yield Path("README.md")
    for path in sorted(Path("docs").rglob("*.md")):
        # Names that begin so are of what the site's build makes, and of its settings.
        if not any(part.startswith(("_", ".")) for part in path.parts):
            yield path


def replace(path: Path, text: str) -> None:
    """Write a text, whole or not at all."""
    write_whole(path, lambda stream: stream.write(text.encode()))


def is_written(path: Path, text: str) -> bool:
    """Return whether a file holds a text."""
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    main()
