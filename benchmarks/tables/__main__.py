"""Fill the README's tables, and write the page beside each benchmark's JSON; to be run from the repository's root.

python -m benchmarks.tables                                      # from the folders that the README names
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
from benchmarks.tables.blocks import refill
from benchmarks.tables.readme import TABLES
from parallel_core.system.files import write_whole

__all__ = ["main", "written"]

README = Path("README.md")


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; exit with status 1 if a file differs.")
@click.option("--results", type=click.Path(path_type=Path), help="The folder of a machine's results.")
def main(check: bool, results: Path | None) -> None:
    """Fill the README's tables, and write the page beside each benchmark's JSON, or check that they are as written."""
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
    """Iterate over the files that are written from results, with what they must hold; the README comes first.

    Raises OSError, ValueError or KeyError, with a message for the reader, if a table cannot be written.
    """
    yield README, refill(README.read_text(), write_table, results)
    for path in sorted(Path("benchmarks/results").rglob("*.json")):
        document = json.loads(path.read_text())
        if "findings" in document:
            yield path.with_suffix(".md"), page(document)
        elif "rates" in document:
            yield path.with_suffix(".md"), self_test.page(document)


def write_table(name: str, folder: Path) -> str:
    """Write one of the README's tables from a machine's folder of results."""
    if name not in TABLES:
        raise ValueError(f"no table is called {name!r} (known: {', '.join(TABLES)})")
    try:
        return TABLES[name](folder)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"the table {name!r} needs {error.filename}, which is not there: measure it") from error


def replace(path: Path, text: str) -> None:
    """Write a text, whole or not at all."""
    write_whole(path, lambda stream: stream.write(text.encode()))


def is_written(path: Path, text: str) -> bool:
    """Return whether a file holds a text."""
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    main()
