"""Fill the pages' tables, and write the page or pictures beside results; to be run from the
repository's root.

python -m benchmarks.tables            # from the folders that the pages name
python -m benchmarks.tables --check    # change nothing: status 1 if something differs

A place in a page that is filled is `<!-- table: NAME from FOLDER -->`, lines, `<!-- end -->`. A
name may have words after it, which choose among tables of a kind: `<!-- table: answer overlap from
FOLDER -->`.
"""

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click

from backends.errors import unknown
from benchmarks.harness.results import has_page, page, read_json, write_text
from benchmarks.tables.benchmarks import (
    how_fast,
    network,
    processes,
    variants,
)
from benchmarks.tables.comparisons import comparison_answer, pictures, planted_faults
from benchmarks.tables.exercises import answer, first_run, trace
from benchmarks.tables.screens import screens

OF_EXERCISES = (first_run, answer, trace)
OF_COMPARISONS = (comparison_answer, planted_faults)
OF_BENCHMARKS = (variants, processes, network, how_fast)
TABLES: Mapping[str, Callable[..., str]] = {
    table.__name__.replace("_", "-"): table
    for table in (*OF_EXERCISES, *OF_COMPARISONS, *OF_BENCHMARKS)
}
"""Each takes a machine's folder of results, then the words that stand after its name, and returns
Markdown.

Its links are of the repository's root.
"""
BLOCK = re.compile(
    r"^<!-- table: (\S+(?: \S+)*?) from (\S+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL
)
OPENING = "<!-- table:"
PICTURED = Path("benchmarks/results/epyc-avx512-2-cores/comparison.json")
"""The comparison that the pages show as pictures."""
LINK = re.compile(r"\]\((?!\w+:|#|/)([^)\s]+)\)")
"""The end of a link to a file, which is told from an address by what it begins with."""


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; exit with status 1 if a file differs.")
def main(check: bool) -> None:
    """Fill the pages' tables, and write the page or pictures beside results, or check that they are
    as written.
    """
    try:
        differing = list(differences())
    except (OSError, ValueError, KeyError) as error:
        raise click.ClickException(str(error)) from error
    for path, text in differing:
        if check:
            click.echo(f"{path} differs from its results: python -m benchmarks.tables")
        else:
            write_text(path, text)
            click.echo(f"{path} written")
    sys.exit(1 if check and differing else 0)


def differences() -> Iterator[tuple[Path, str]]:
    """Iterate over the files that do not hold what they must, with that."""
    for path, text in written():
        if not path.exists() or path.read_text() != text:
            yield path, text


def written() -> Iterator[tuple[Path, str]]:
    """Iterate over the files that are written from results, with what they must hold; the pages
    come first.

    Raises OSError, ValueError or KeyError, with a message for the reader, if a table cannot be
    written.
    """
    for path in pages():
        yield path, refill(path.read_text(), path, write_table)
    for path in sorted(Path("benchmarks/results").rglob("*.json")):
        document = read_json(path)
        if has_page(document):
            yield path.with_suffix(".md"), page(document)
        if path == PICTURED:
            for name, picture in pictures(path.parent).items():
                yield path.with_name(name), picture
            yield from screens()


def pages() -> Iterator[Path]:
    """Iterate over the pages that may have tables: the README, and those of the site that are
    written by hand.
    """
    yield Path("README.md")
    for path in sorted(Path("docs").rglob("*.md")):
        # Names that begin so are of what the site's build makes, and of its settings.
        if not any(part.startswith(("_", ".")) for part in path.parts):
            yield path


def refill(text: str, page: Path, write: Callable[[str, Path], str]) -> str:
    """Return a page's text with every block's lines written anew, by its name and folder.

    Links in what is written are of the repository's root, and become relative to the page. Raises
    ValueError for a block without its beginning in the form above, or without an end.
    """

    def block(match: re.Match[str]) -> str:
        table = write(match[1], Path(match[2])).strip()
        linked = LINK.sub(lambda link: f"]({os.path.relpath(link[1], page.parent)})", table)
        return f"<!-- table: {match[1]} from {match[2]} -->\n\n{linked}\n\n<!-- end -->"

    if text.count(OPENING) != len(BLOCK.findall(text)):
        raise ValueError(
            f"a block of {page} is not of the form {OPENING} NAME from FOLDER --> … <!-- end -->, "
            "on lines of its own"
        )
    return BLOCK.sub(block, text)


def write_table(name: str, folder: Path) -> str:
    """Write a table from a machine's folder of results; words after its name choose among those of
    its kind.

    Raises ValueError if there is no such table, and FileNotFoundError if the file that it comes
    from is missing.
    """
    kind, *words = name.split()
    if kind not in TABLES:
        raise ValueError(unknown("table", kind, TABLES))
    try:
        inspect.signature(TABLES[kind]).bind(folder, *words)
    except TypeError as error:
        raise ValueError(
            f"the table {name!r} has not the words that {kind!r} takes: {error}"
        ) from error
    try:
        return TABLES[kind](folder, *words)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"the table {name!r} needs {error.filename}, which is not there: measure it"
        ) from error


if __name__ == "__main__":
    main()
