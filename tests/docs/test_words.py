"""README and pages have no more words than one reads: tables count, and so do the texts from which
the page of metrics is generated. Code, comments, directives and the addresses of links do not, nor
what notebooks showed.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.tree import ROOT

MOST_WORDS = 17_000
NOT_READ = (
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"^(`{3,}).*?^\1\s*$", re.DOTALL | re.MULTILINE),
    re.compile(r"^:{3,}.*$|^:[a-z-]+:.*$", re.MULTILINE),
    re.compile(r"(?<=\])\([^)]*\)"),
)
"""Comments, blocks of code, directives, and the addresses of links."""


def words(markdown: str) -> int:
    """Return how many words a text has; a word has a letter or a digit."""
    for left_out in NOT_READ:
        markdown = left_out.sub("", markdown)
    return sum(bool(re.search(r"\w", word)) for word in markdown.split())


def markdown_of(page: Path) -> str:
    """Return the Markdown of a page, or of a notebook's cells."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".md":
        return text
    cells = json.loads(text)["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def texts() -> Iterator[str]:
    """Iterate over what a reader finds; lessons that were run on MXNet are the same lessons."""
    docs = ROOT / "docs"
    for page in (ROOT / "README.md", *docs.rglob("*.md"), *docs.rglob("*.ipynb")):
        folders = page.relative_to(ROOT).parts[1:]
        if "on-mxnet" not in folders and not any(folder.startswith("_") for folder in folders):
            yield markdown_of(page)
    metrics = tomllib.loads((docs / "reference/metrics.toml").read_text(encoding="utf-8"))
    for texts_of_experiment in metrics.values():
        yield from texts_of_experiment.values()


def test_the_pages_have_few_enough_words() -> None:
    assert 10_000 < sum(map(words, texts())) <= MOST_WORDS
