"""Docstrings of this project have no markup but code spans and lists: what else reStructuredText would see is text."""

from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

__all__ = ["setup"]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Let stars and bars be themselves."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", _escape)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _escape(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:  # noqa: ARG001
    lines[:] = [line.replace("*", r"\*").replace("|", r"\|") for line in lines]
