"""Places in a page that a program fills: `<!-- table: NAME from FOLDER -->`, lines, `<!-- end -->`.

A name may have words after it, which choose among tables of a kind: `<!-- table: answer overlap from FOLDER -->`.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

__all__ = ["refill"]

BLOCK = re.compile(r"^<!-- table: (\S+(?: \S+)*?) from (\S+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
OPENING = "<!-- table:"
LINK = re.compile(r"\]\((?!\w+:|#|/)([^)\s]+)\)")
"""The end of a link to a file, which is told from an address by what it begins with."""


def refill(text: str, page: Path, write: Callable[[str, Path], str], folder: Path | None = None) -> str:
    """Return a page's text with every block's lines written anew, by its name and folder, or by the folder given.

    Links in what is written are of the repository's root, and become relative to the page. Raises ValueError for a
    block without its beginning in the form above, or without an end.
    """

    def block(match: re.Match[str]) -> str:
        source = folder or Path(match[2])
        written = relative_links(write(match[1], source).strip(), page)
        return f"<!-- table: {match[1]} from {source} -->\n\n{written}\n\n<!-- end -->"

    if text.count(OPENING) != len(BLOCK.findall(text)):
        raise ValueError(
            f"a block of {page} is not of the form {OPENING} NAME from FOLDER --> … <!-- end -->, on lines of its own"
        )
    return BLOCK.sub(block, text)


def relative_links(text: str, page: Path) -> str:
    """Return a text whose links are of the repository's root as it must stand on a page."""
    return LINK.sub(lambda match: f"]({os.path.relpath(match[1], page.parent)})", text)
