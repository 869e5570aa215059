"""Docstrings of this project have no markup but code spans and lists: what else reStructuredText
would see is text.
"""

from typing import Any

from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

__all__ = ["setup"]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Let stars and bars be themselves."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", _escape)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _escape(*event: Any) -> None:
    """Take the event of Sphinx, whose last argument are the lines of a docstring."""
    lines: list[str] = event[-1]
    lines[:] = [line.replace("*", r"\*").replace("|", r"\|") for line in lines]
