"""How many words README and pages have, by section: `python -m benchmarks.harness.words`.

Tables count, and the texts from which the page of metrics is generated. Code, comments, directives
and the addresses of links do not, nor what notebooks showed.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

CODE = re.compile(r"^(`{3,}).*?^\1\s*$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
DIRECTIVE = re.compile(r"^:{3,}.*$|^:[a-z-]+:.*$", re.MULTILINE)
ADDRESS = re.compile(r"\]\([^)]*\)")
README, METRICS = Path("README.md"), Path("docs/reference/metrics.toml")


def words(markdown: str) -> int:
    """Return how many words a text has; a word has a letter or a digit."""
    text = markdown
    for left_out in (COMMENT, CODE, DIRECTIVE):
        text = left_out.sub("", text)
    return sum(bool(re.search(r"\w", word)) for word in ADDRESS.sub("]", text).split())


def markdown_of(page: Path) -> str:
    """Return the Markdown of a page, or of a notebook's cells."""
    if page.suffix == ".md":
        return page.read_text(encoding="utf-8")
    cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(one["source"]) for one in cells if one["cell_type"] == "markdown")


def pages(docs: Path) -> Iterator[tuple[str, Path]]:
    """Iterate over the pages with their sections; what was run on MXNet are the same lessons."""
    for page in sorted((*docs.rglob("*.md"), *docs.rglob("*.ipynb"))):
        section, *within = page.relative_to(docs).parts
        if not section.startswith("_") and "on-mxnet" not in within:
            yield (section if within else "first page"), page


def counts(root: Path) -> Counter[str]:
    """Return the words of each section of a checkout."""
    found = Counter({"README": words((root / README).read_text(encoding="utf-8"))})
    for section, page in pages(root / "docs"):
        found[section] += words(markdown_of(page))
    texts = tomllib.loads((root / METRICS).read_text(encoding="utf-8"))
    found["metrics"] = sum(words(text) for one in texts.values() for text in one.values())
    return found


@click.command()
@click.argument("root", type=click.Path(path_type=Path, exists=True, file_okay=False), default=".")
def main(root: Path) -> None:
    """Print the words of each section of the checkout ROOT, and of all."""
    found = counts(root)
    for section, number in {**found, "all": found.total()}.items():
        click.echo(f"{section:12}{number:8,}")


if __name__ == "__main__":
    main()
