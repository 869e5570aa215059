"""Places in a text that a program fills: `<!-- table: NAME from FOLDER -->`, lines, `<!-- end -->`."""

import re
from collections.abc import Callable
from pathlib import Path

__all__ = ["refill"]

BLOCK = re.compile(r"^<!-- table: (\S+) from (\S+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
OPENING = "<!-- table:"


def refill(text: str, write: Callable[[str, Path], str], folder: Path | None = None) -> str:
    """Return the text with every block's lines written anew, by its name and folder, or by the folder given.

    Raises ValueError for a block without its beginning in the form above, or without an end.
    """

    def block(match: re.Match[str]) -> str:
        source = folder or Path(match[2])
        return f"<!-- table: {match[1]} from {source} -->\n\n{write(match[1], source).strip()}\n\n<!-- end -->"

    if text.count(OPENING) != len(BLOCK.findall(text)):
        raise ValueError(
            f"a block is not of the form {OPENING} NAME from FOLDER --> … <!-- end -->, on lines of its own"
        )
    return BLOCK.sub(block, text)
