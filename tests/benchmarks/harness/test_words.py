"""Words are counted as a reader meets them, and the pages have no more than one reads."""

from benchmarks.harness.words import counts, words
from tests.tree import ROOT

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


def test_tables_and_code_in_a_line_count_and_blocks_of_code_do_not() -> None:
    assert words(PAGE) == len(["A", "title", "a", "table's", "cells"]) + len(
        ["`code`", "a", "link", "3", "Two", "words"]
    )


def test_the_pages_have_at_most_18_000_words() -> None:
    assert 10_000 < counts(ROOT).total() <= 18_000
