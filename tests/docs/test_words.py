"""README and pages have no more words than one reads: tables count, and so do the texts from which
the page of metrics is generated. Code, comments, directives and the addresses of links do not, nor
what notebooks showed.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.tree import ROOT

MOST_WORDS = 17_000
CODE = re.compile(r"^(`{3,}).*?^\1\s*$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
DIRECTIVE = re.compile(r"^:{3,}.*$|^:[a-z-]+:.*$", re.MULTILINE)
ADDRESS = re.compile(r"\]\([^)]*\)")
PAGE = """# A title

<!-- for nobody -->
| a | table's cells |
| --- | --- |
| `code` | [a link](to/a/page.md) – 3 % |

```sh
make demo
```

:::{note}
Two words.
:::
"""


def words(markdown: str) -> int:
    """Return how many words a text has; a word has a letter or a digit."""
    text = markdown
    for left_out in (COMMENT, CODE, DIRECTIVE):
        text = left_out.sub("", text)
    return sum(bool(re.search(r"\w", word)) for word in ADDRESS.sub("]", text).split())


def markdown_of(page: Path) -> str:
    """Return the Markdown of a page, or of a notebook's cells."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".md":
        return text
    cells = json.loads(text)["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def pages() -> Iterator[tuple[str, Path]]:
    """Iterate over the pages with their sections; lessons that were run on MXNet are the same
    lessons.
    """
    docs = ROOT / "docs"
    for page in (*docs.rglob("*.md"), *docs.rglob("*.ipynb")):
        section, *inner = page.relative_to(docs).parts
        if not section.startswith("_") and "on-mxnet" not in inner:
            yield (section if inner else "first page"), page


def words_by_section() -> Counter[str]:
    """Return the number of words of README and of each section of the site."""
    counted = Counter({"README": words((ROOT / "README.md").read_text(encoding="utf-8"))})
    for section, page in pages():
        counted[section] += words(markdown_of(page))
    texts = tomllib.loads((ROOT / "docs/reference/metrics.toml").read_text(encoding="utf-8"))
    for texts_of_experiment in texts.values():
        counted["metrics"] += sum(map(words, texts_of_experiment.values()))
    return counted


def test_tables_and_code_in_a_line_count_and_blocks_of_code_do_not() -> None:
    assert words(PAGE) == len(["A", "title", "a", "table's", "cells"]) + len(
        ["`code`", "a", "link", "3", "Two", "words"]
    )


def test_the_pages_have_few_enough_words() -> None:
    counted = words_by_section()
    assert 10_000 < counted.total() <= MOST_WORDS, counted
